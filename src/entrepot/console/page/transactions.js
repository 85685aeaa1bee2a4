// Transactions of Kafka's producers that are under way.

import { path, remove } from "./api.js";
import { badge, empty, fill, h, heading } from "./dom.js";
import { confirm, toast } from "./forms.js";
import { duration, moment, number } from "./format.js";
import { table } from "./table.js";

export default async function transactions(page) {
  const abort = (row) => confirm({ title: `Abort the transaction of ${row.name}?`, action: "Abort", text: `Its records are never delivered to readers of committed ones, and its producer, if it still runs, can write no more. It holds back: ${row.places.join(", ") || "nothing yet"}.`,
    work: async () => { await remove(path("console", "transactions", row.name)); toast("The transaction is aborted."); shown.reload(); } });
  const shown = table(page, {
    caption: "Transactions", path: "/api/console/transactions", noun: "transaction",
    filters: [{ name: "all", label: "those that have ended, too", value: "true" }],
    none: empty("Nothing is under way", "Those of Kafka's producers are listed while they are open, or being ended."),
    columns: [
      { title: "Transactional id", sort: "name", class: "name", cell: (row) => row.name },
      { title: "State", wide: true, cell: (row) => badge(row.state, row.state === "open" ? "accent" : "") },
      { title: "Open for", sort: "started", number: true, cell: (row) => (row.started === null || row.state !== "open" ? "–" : h("span", { title: moment(row.started) }, duration(Date.now() - row.started))) },
      { title: "Ends itself after", number: true, wide: true, cell: (row) => (row.timeout_ms >= 2 ** 31 - 1 ? "never" : duration(row.timeout_ms)) },
      { title: "Partitions", sort: "partitions", number: true, wide: true, cell: (row) => h("span", { title: row.places.join(", ") }, number(row.partitions)) },
      { title: "Producer", number: true, wide: true, cell: (row) => `${row.producer} · epoch ${row.epoch}` },
      { title: "", class: "act", cell: (row) => (row.may_abort ? h("button", { type: "button", class: "danger", onclick: () => abort(row) }, "Abort") : null) },
    ],
  });
  fill(page.main, heading("Transactions"), shown.element);
}
