// The nodes of a cluster, who leads what, and what lacks replicas.

import { get, me, post } from "./api.js";
import { badge, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { form, toast } from "./forms.js";
import { number, plural } from "./format.js";
import { table } from "./table.js";

const REFRESH_MS = 3000;

export default async function cluster(page) {
  const figures = h("div");
  const nodes = h("div");

  function draw(found) {
    const away = found.nodes.filter((each) => each.address === null).length;
    fill(figures, facts([
      ["Nodes", number(found.nodes.length - away)], ["Nodes away", away ? badge(number(away), "bad") : "0"], ["Partitions", number(found.partitions)],
      ...Object.entries({ offline: "Without a leader", "too-few-in-sync": "Too few in sync", "under-replicated": "Under-replicated" }).map(([name, title]) =>
        [title, found.problems[name] ? badge(number(found.problems[name]), name === "under-replicated" ? "warn" : "bad") : "0"]),
    ]));
    fill(nodes, plainTable("Nodes", [
      { title: "Node", cell: (row) => [number(row.id), " ", row.here ? badge("this one", "accent") : null, row.controller ? badge("controller") : null] },
      { title: "Address", class: "name", cell: (row) => row.address ?? badge("away", "bad") },
      { title: "Rack", wide: true, cell: (row) => row.rack || "–" },
      { title: "Leads", number: true, cell: (row) => number(row.leads) },
      { title: "Replicas", number: true, cell: (row) => number(row.replicas) },
      { title: "Not in sync", number: true, cell: (row) => (row.not_in_sync ? badge(number(row.not_in_sync), "warn") : "0") },
      ...(me.administrator ? [{ title: "", class: "act", cell: (row) => (row.replicas ? h("button", { type: "button", onclick: () => drain(row.id) }, "Drain") : null) }] : []),
    ], found.nodes));
  }

  const drain = (node) => form({
    title: `Drain node ${node}`, action: "Drain", text: "All that it holds moves to the others, each partition to the one that holds least. It is served meanwhile. Then the node can be taken away.",
    preview: async () => {
      const { partitions } = await post("/api/console/cluster/drain", { node, preview: true });
      return h("p", {}, h("strong", {}, `${plural(partitions, "partition")} would move.`));
    },
    submit: async () => {
      const { partitions } = await post("/api/console/cluster/drain", { node });
      toast(`${plural(partitions, "partition")} ${partitions === 1 ? "moves" : "move"}. The node can be taken away when it holds nothing.`);
      draw(await get("/api/console/cluster", {}, page.signal));
    },
  });

  const found = await get("/api/console/cluster", {}, page.signal);
  const members = (row) => row.replicas.map((node) => [badge(node, row.in_sync.includes(node) ? "good" : "bad"), " "]);
  const shown = table(page, {
    caption: "Partitions", path: "/api/console/cluster/partitions", noun: "partition",
    filters: [{ name: "problems", label: "only those that lack something", value: "true" }],
    columns: [
      { title: "Topic", sort: "name", class: "name", cell: (row) => link(row.topic, "topics", row.topic) },
      { title: "Partition", number: true, cell: (row) => number(row.partition) },
      { title: "Leader", sort: "leader", number: true, cell: (row) => (row.leader < 0 ? badge("nobody", "bad") : number(row.leader)) },
      { title: "Epoch", sort: "epoch", number: true, wide: true, cell: (row) => number(row.epoch) },
      { title: "Replicas, and who is in sync", cell: members },
      { title: "State", sort: "problem", cell: (row) => (row.problem ? badge(row.problem, row.problem === "under-replicated" ? "warn" : "bad") : badge("fine", "good")) },
    ],
  });
  fill(page.main, heading("Cluster"), section(null, figures), section("Nodes", nodes,
    h("p", { class: "hint" }, "A node that is stopped (SIGTERM) hands what it leads to others before it goes.")), shown.element);
  draw(found);
  page.every(REFRESH_MS, async () => draw(await get("/api/console/cluster", {}, page.signal)));
}
