// Consumer groups and share groups: how far they are, and setting that anew.

import { get, path, post, remove } from "./api.js";
import { chart } from "./chart.js";
import { badge, empty, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { confirm, form, toast } from "./forms.js";
import { number, plural } from "./format.js";
import { table } from "./table.js";

const REFRESH_MS = 3000;
const SAMPLES_MAX = 1200; // An hour.

export default function groups(page) {
  return page.parts.length ? one(page, page.parts[0]) : list(page);
}

/** Say which partitions a member has; of which topics it wants some, if it has none. */
function reads({ assigned, topics }) {
  const some = Object.entries(assigned);
  if (!some.length) return h("span", { class: "hint" }, topics.length ? `nothing now, of ${topics.join(", ")}` : "nothing now");
  return some.map(([topic, numbers]) => h("div", {}, link(topic, "topics", topic), " ", h("span", { class: "hint" }, ranges(numbers))));
}

/** Write sorted numbers shortly: 0–3, 7. */
function ranges(numbers) {
  const found = [];
  for (const each of numbers) {
    if (found.length && found.at(-1)[1] === each - 1) found.at(-1)[1] = each;
    else found.push([each, each]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

const stateOf = (state) => badge(state, state === "Stable" ? "good" : state === "Empty" ? "" : "warn");

function list(page) {
  const shown = table(page, {
    caption: "Groups", path: "/api/console/groups", noun: "group",
    none: empty("No groups yet", "A Kafka consumer with a group.id makes one."),
    columns: [
      { title: "Name", sort: "name", class: "name", cell: (row) => link(row.name, "groups", row.name) },
      { title: "Kind", sort: "kind", cell: (row) => badge(row.kind) },
      { title: "State", sort: "state", cell: (row) => stateOf(row.state) },
      { title: "Lag", sort: "lag", number: true, cell: (row) => number(row.lag) },
    ],
  });
  fill(page.main, heading("Groups"), shown.element);
}

async function one(page, name) {
  const where = path("console", "groups", name);
  const found = await get(where, {}, page.signal);
  const figures = h("div");
  const rows = h("div");
  const members = h("div");
  const lag = chart({ title: "Lag since this page was opened", show: number, series: [{ name: "records", class: "b", value: (sample) => sample.lag }] });
  const samples = [];
  let count = 0; // Members.

  function draw(now) {
    count = now.members.length;
    samples.push({ t: Date.now(), lag: now.lag });
    if (samples.length > SAMPLES_MAX) samples.shift();
    lag.draw(samples);
    fill(figures, facts([["State", stateOf(now.state)], ["Kind", now.kind], ["Members", number(now.members.length)], ["Lag", number(now.lag)]]));
    fill(rows, plainTable("Partitions", [
      { title: "Topic", class: "name", cell: (row) => link(row.topic, "topics", row.topic) },
      { title: "Partition", number: true, cell: (row) => number(row.partition) },
      { title: "Offset", number: true, cell: (row) => number(row.offset) },
      { title: "End", number: true, wide: true, cell: (row) => number(row.end) },
      { title: "Lag", number: true, cell: (row) => number(row.lag) },
    ], now.partitions, "It has committed nothing yet"));
    fill(members, plainTable("Members", [
      { title: "Client", class: "name", cell: (row) => row.client },
      { title: "Address", cell: (row) => row.host },
      { title: "Member", wide: true, class: "name", cell: (row) => h("code", {}, row.id) },
      { title: "Reads", class: "name", cell: (row) => reads(row) },
    ], now.members, "It has no members now"));
  }

  const asked = (values) => {
    const body = { topic: values.topic, partition: values.partition === "" ? -1 : Number(values.partition) };
    if (values.to === "offset") body.offset = Number(values.place || 0);
    else if (values.to === "time") body.time = new Date(values.place).getTime();
    else body.to = values.to;
    if (values.to === "time" && Number.isNaN(body.time)) throw new Error("A time is written as 2030-01-02T03:04:05.");
    return body;
  };
  const reset = () => form({
    title: `Reset ${name}`, action: "Reset", text: `${count ? `It has ${plural(count, "member")} now: stop them first, or this is refused.` : "Where it goes on reading."} This is what would change:`,
    fields: [
      { name: "to", label: "To", options: [["first", "the beginning"], ["last", "the end"], ["offset", "an offset"], ["time", "a time"]] },
      { name: "place", label: "Which offset or time", placeholder: "17, or 2030-01-02T03:04:05" },
      { name: "topic", label: "Topic", options: [["", "all"], ...new Set(found.partitions.map((each) => each.topic))] },
      { name: "partition", label: "Partition", type: "number", hint: "Empty means: all." },
    ],
    preview: async (values) => {
      const { changes } = await post(`${where}/reset`, asked(values));
      return plainTable("Changes", [
        { title: "Partition", class: "name", cell: (row) => `${row.topic} ${row.partition}` },
        { title: "From", number: true, cell: (row) => number(row.offset) }, { title: "To", number: true, cell: (row) => number(row.to) },
        { title: "Read again", number: true, cell: (row) => number(row.again) },
      ], changes, "Nothing would change");
    },
    submit: async (values) => {
      const { changes } = await post(`${where}/reset`, { ...asked(values), confirm: true });
      toast(`${plural(changes.length, "partition")} reset.`);
      draw(await get(where, {}, page.signal));
    },
  });
  const drop = () => confirm({ title: `Delete ${name}?`, action: "Delete", text: "Its offsets are forgotten.", word: name,
    work: async () => { await remove(where); toast(`${name} is deleted.`); page.go("#/groups"); } });
  fill(page.main, heading(name, { kind: found.kind === "share" ? "Share group" : "Consumer group", copy: name, actions: [
    found.may.reset ? h("button", { type: "button", onclick: reset }, "Reset") : null,
    found.may.delete ? h("button", { type: "button", class: "danger", onclick: drop }, "Delete") : null] }),
    section(null, figures), h("div", { class: "charts wide" }, lag.element), section("Partitions", rows), section("Members", members));
  draw(found);
  page.every(REFRESH_MS, async () => draw(await get(where, {}, page.signal)));
}
