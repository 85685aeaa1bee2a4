// The log on disk: what takes how much.

import { badge, fill, h, heading, link } from "./dom.js";
import { bytes, number } from "./format.js";
import { table } from "./table.js";

export default async function storage(page) {
  if (!page.query.has("sort")) {
    page.query.set("sort", "bytes"); // The largest first.
    page.query.set("sort_reverse", "true");
  }
  const shown = table(page, {
    caption: "Log on disk", path: "/api/console/storage", noun: "log",
    columns: [
      { title: "Name", sort: "name", class: "name", cell: (row) => [row.kind === "queue" ? h("span", { class: "clamped", title: row.name }, row.name) : link(row.name, "topics", row.name), row.directory === row.name ? null : h("div", { class: "hint" }, row.directory)] },
      { title: "Of", cell: (row) => badge(row.kind) },
      { title: "Partitions", sort: "partitions", number: true, wide: true, cell: (row) => number(row.partitions) },
      { title: "Segments", number: true, wide: true, cell: (row) => number(row.segments) },
      { title: "Size", sort: "bytes", number: true, cell: (row) => bytes(row.bytes) },
      { title: "State", cell: (row) => (row.faults.length ? badge(row.faults[0], "bad") : badge("fine", "good")) },
    ],
  });
  fill(page.main, heading("Log on disk"), shown.element);
}
