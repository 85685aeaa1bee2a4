// What the broker was started with, and where each value comes from.

import { get } from "./api.js";
import { badge, fill, h, heading, plainTable, section } from "./dom.js";

export default async function settings(page) {
  const all = await get("/api/console/settings", {}, page.signal);
  const rows = h("div");
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter settings", value: page.query.get("name") ?? "" });
  const only = h("input", { type: "checkbox", checked: page.query.get("changed") === "true" });
  const draw = () => {
    page.setQuery(Object.fromEntries([["name", filter.value], ["changed", only.checked ? "true" : ""]].filter(([, value]) => value)));
    const shown = all.filter((each) => each.name.includes(filter.value) && (!only.checked || each.origin !== "default"));
    fill(rows, plainTable("Settings", [
      { title: "Setting", class: "name", cell: (row) => h("code", {}, row.name) },
      { title: "Value", class: "name", cell: (row) => h("code", {}, row.value || "–") },
      { title: "Default", wide: true, cell: (row) => h("code", {}, row.default || "–") },
      { title: "From", class: "name", cell: (row) => (row.origin === "default" ? h("span", { class: "hint" }, "default") : badge(row.origin, "accent")) },
    ], shown, "No setting is like that"));
  };
  filter.addEventListener("input", draw);
  only.addEventListener("change", draw);
  fill(page.main, heading("Settings"), section(null, h("p", { class: "hint" }, "Of this broker, since its start. Passwords are not shown. Settings of a topic are on its page."),
    h("div", { class: "row" }, filter, h("label", { class: "check" }, only, h("span", {}, "only those that were changed"))), rows));
  draw();
}
