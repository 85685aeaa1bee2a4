// Users, and what they may do: permissions of virtual hosts, and access control lists.

import { get, me, path, put, remove } from "./api.js";
import { badge, fill, h, heading, plainTable, section } from "./dom.js";
import { attempt, confirm, form, toast } from "./forms.js";

export default async function users(page) {
  const [all, permissions, acls] = [h("div"), h("div"), h("div")];
  const button = (text, work, kind = "") => h("button", { type: "button", class: kind, onclick: work }, text);

  async function draw() {
    const [found, allowed, rules] = await Promise.all([
      get("/api/users", {}, page.signal), get("/api/permissions", {}, page.signal), get("/api/console/acls", {}, page.signal)]);
    fill(all, plainTable("Users", [
      { title: "Name", class: "name", cell: (row) => row.name },
      { title: "May", cell: (row) => badge(row.tags.join(", "), row.tags.includes("administrator") ? "accent" : "") },
      { title: "", class: "act", cell: (row) => h("div", { class: "actions" }, button("New password", () => password(row.name)), row.name === me.user ? null : button("Delete", () => drop(row.name), "danger")) },
    ], found));
    fill(permissions, plainTable("Permissions", [
      { title: "User", class: "name", cell: (row) => row.user },
      { title: "Virtual host", cell: (row) => row.vhost },
      ...["configure", "write", "read"].map((name) => ({ title: name[0].toUpperCase() + name.slice(1), cell: (row) => h("code", {}, row[name] || "–") })),
      { title: "", class: "act", cell: (row) => h("div", { class: "actions" }, button("Change", () => permit(row)), button("Remove", () => forbid(row))) },
    ], allowed, "Nobody may use queues, unless authorization is off"));
    fill(acls, plainTable("Access control lists", [
      { title: "User", class: "name", cell: (row) => row.user },
      { title: "May", cell: (row) => badge(`${row.permission} ${row.operation}`, row.permission === "deny" ? "bad" : "good") },
      { title: "What", class: "name", cell: (row) => `${row.kind} ${row.name}${row.pattern === "prefixed" ? "…" : ""}` },
      { title: "From", wide: true, cell: (row) => row.host },
    ], rules.entries, rules.enforced ? "No entries" : "Nobody is asked: authorization is off"));
  }

  const password = (name) => form({
    title: name ? `New password of ${name}` : "Add a user", action: name ? "Set" : "Add",
    fields: [...(name ? [] : [{ name: "name", label: "Name", required: true }]), { name: "password", label: "Password", type: "password", required: true }],
    submit: async (values) => {
      await put(path("users", name ?? values.name), { password: values.password });
      toast(name ? "The password is set." : `${values.name} is added.`);
      await draw();
    },
  });
  const drop = (name) => confirm({ title: `Delete the user ${name}?`, action: "Delete", text: "Connections that are open stay open.",
    work: async () => { await remove(path("users", name)); toast(`${name} is deleted.`); await draw(); } });
  const permit = (row = { user: "", vhost: "/", configure: ".*", write: ".*", read: ".*" }) => form({
    title: "Permissions", action: "Set", text: "Regular expressions of the names of queues and exchanges.",
    fields: ["user", "vhost", "configure", "write", "read"].map((name) => ({ name, label: name === "vhost" ? "Virtual host" : name[0].toUpperCase() + name.slice(1), value: row[name], required: name === "user" || name === "vhost" })),
    submit: async ({ user, vhost, ...rights }) => {
      await put(path("permissions", vhost, user), rights);
      toast("Set.");
      await draw();
    },
  });
  const forbid = (row) => confirm({ title: "Remove these permissions?", action: "Remove", text: `${row.user} in ${row.vhost}`,
    work: async () => { await remove(path("permissions", row.vhost, row.user)); await draw(); } });

  fill(page.main, heading("Users and rights", { actions: [button("Give permissions", () => permit()), button("Add a user", () => password(), "primary")] }),
    section("Users", all), section("Permissions of virtual hosts", permissions),
    section("Access control lists", h("p", { class: "hint" }, "Of topics, groups and the cluster. They are changed with Kafka's tool; this one lets max see all pages and change nothing: ",
      h("code", {}, "kafka-acls --add --allow-principal User:max --operation Describe --cluster")), acls));
  await draw();
  page.every(10_000, () => attempt(draw));
}
