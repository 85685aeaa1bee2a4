// Transactions of Kafka's producers that are under way.

import { badge, empty, fill, h, heading } from "./dom.js";
import { duration, moment, number } from "./format.js";
import { table } from "./table.js";

export default async function transactions(page) {
  const shown = table(page, {
    caption: "Transactions", path: "/api/console/transactions", noun: "transaction",
    filters: [{ name: "all", label: "those that have ended, too", value: "true" }],
    none: empty("No transaction is under way", "Those of Kafka's producers are listed while they are open, or being ended."),
    columns: [
      { title: "Transactional id", sort: "name", class: "name", cell: (row) => row.name },
      { title: "State", cell: (row) => badge(row.state, row.state === "open" ? "accent" : "") },
      { title: "Open for", sort: "started", number: true, cell: (row) => (row.started === null || row.state !== "open" ? "–" : h("span", { title: moment(row.started) }, duration(Date.now() - row.started))) },
      { title: "Ends itself after", number: true, wide: true, cell: (row) => (row.timeout_ms >= 2 ** 31 - 1 ? "never" : duration(row.timeout_ms)) },
      { title: "Partitions", sort: "partitions", number: true, cell: (row) => number(row.partitions) },
      { title: "Producer", number: true, wide: true, cell: (row) => `${row.producer} · epoch ${row.epoch}` },
    ],
  });
  fill(page.main, heading("Transactions"), shown.element);
}
