// Retained messages: the newest on each topic of MQTT that has one.

import { get, path, remove } from "./api.js";
import { empty, fill, h, heading } from "./dom.js";
import { attempt, confirm, panel, toast } from "./forms.js";
import { bytes, moment } from "./format.js";
import { message } from "./messages.js";
import { table } from "./table.js";

export default async function retained(page) {
  const forget = (name) => confirm({ title: `Forget the retained message of ${name}?`, action: "Forget", text: "Who subscribes later does not get it.",
    work: async () => {
      const { deleted } = await remove(`/api/retained?filter=${encodeURIComponent(name)}`);
      if (!deleted) throw new Error("Your user may not write there.");
      toast("Forgotten.");
      shown.reload();
    } });
  const look = (name) => attempt(async () => {
    const found = await get(path("console", "retained", name), {}, page.signal);
    const more = Object.entries(found.properties).map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : String(value)]);
    panel(name, message({ head: h("span", {}, moment(found.published)), value: found.value, more }));
  });
  const shown = table(page, {
    caption: "Retained messages", path: "/api/console/retained", noun: "retained message",
    none: empty("No retained messages", "A client of MQTT publishes one with the flag retain."),
    columns: [
      { title: "Topic", sort: "name", class: "name", cell: (row) => h("button", { type: "button", class: "link", onclick: () => look(row.name) }, row.name) },
      { title: "Size", sort: "bytes", number: true, cell: (row) => bytes(row.bytes) },
      { title: "Published", sort: "published", wide: true, cell: (row) => moment(row.published) },
      { title: "", class: "act", cell: (row) => (row.may_write ? h("button", { type: "button", onclick: () => forget(row.name) }, "Forget") : null) },
    ],
  });
  fill(page.main, heading("Retained messages"), shown.element);
}
