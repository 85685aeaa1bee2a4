// Queries of Spark that tell the broker how far they are: pipelines, and streams of programs.

import { badge, empty, fill, h, heading, link } from "./dom.js";
import { duration, moment, number, rate } from "./format.js";
import { table } from "./table.js";

const SILENT_MS = 120_000;

function stateOf(row) {
  if (row.state === "failed") return [badge("failed", "bad"), row.error ? h("div", { class: "hint" }, row.error.slice(0, 300)) : null];
  if (row.state !== "running") return badge(row.state);
  return Date.now() - row.time > SILENT_MS ? badge("not heard of", "warn") : badge("running", "good");
}

export default async function spark(page) {
  const shown = table(page, {
    caption: "Queries of Spark", path: "/api/console/spark", noun: "query", nouns: "queries",
    none: empty("No query has told of itself", "entrepot pipeline run --report does, and spark.streams.addListener(entrepot.spark.reporting.Reports(…)) in a program."),
    columns: [
      { title: "Name", sort: "name", class: "name", cell: (row) => row.name ?? row.id },
      { title: "State", sort: "state", class: "name", cell: stateOf },
      { title: "Reads", wide: true, class: "name", cell: (row) => row.topics.map((topic) => [link(topic, "topics", topic), " "]) },
      { title: "Writes to", wide: true, class: "name", cell: (row) => row.sink || "–" },
      { title: "Behind", sort: "behind", number: true, cell: (row) => number(row.behind) },
      { title: "Rows", sort: "rows_per_s", number: true, wide: true, cell: (row) => rate(row.rows_per_s) },
      { title: "Batch", number: true, wide: true, cell: (row) => (row.batch === null ? "–" : `${number(row.batch)} in ${number(row.batch_ms)} ms`) },
      { title: "Heard", sort: "time", number: true, wide: true, cell: (row) => h("span", { title: moment(row.time) }, `${duration(Math.max(0, Date.now() - row.time))} ago`) },
    ],
  });
  fill(page.main, heading("Queries of Spark"), shown.element);
}
