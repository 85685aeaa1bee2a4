// Topics: the list, and one topic with its partitions, its records and who reads it.

import { get, me, path, post, put, remove } from "./api.js";
import { address, badge, empty, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { attempt, confirm, form, headersOf, toast } from "./forms.js";
import { bytes, duration, moment, number, plural } from "./format.js";
import { inline, message } from "./messages.js";
import { table } from "./table.js";

const REFRESH_MS = 3000;
const TABS = [["", "Records"], ["partitions", "Partitions"], ["groups", "Groups"], ["settings", "Settings"]];

export default function topics(page) {
  return page.parts.length ? one(page, page.parts[0]) : list(page);
}

function list(page) {
  const button = () => (!me.creates.topic ? null : h("button", { type: "button", class: "primary", onclick: () => create(page) }, "Create a topic"));
  const shown = table(page, {
    caption: "Topics", path: "/api/console/topics", noun: "topic",
    filters: [{ name: "internal", label: "the broker's own, too", value: "true" }],
    none: empty("No topics yet", "A Kafka producer makes one when it writes; or create one here.", button()),
    columns: [
      { title: "Name", sort: "name", class: "name", cell: (row) => [link(row.name, "topics", row.name), " ", row.internal ? badge("internal") : null, row.fault ? badge("cannot be read", "bad") : null] },
      { title: "Partitions", sort: "partitions", number: true, cell: (row) => number(row.partitions) },
      { title: "Records", sort: "records", number: true, cell: (row) => number(row.records) },
      { title: "Size", sort: "bytes", number: true, cell: (row) => bytes(row.bytes) },
    ],
  });
  fill(page.main, heading("Topics", { actions: button() }), shown.element);
}

function create(page) {
  form({
    title: "Create a topic", action: "Create",
    fields: [
      { name: "name", label: "Name", required: true, hint: "Letters, digits, dots, _ and -." },
      { name: "partitions", label: "Partitions", type: "number", value: "1" },
      { name: "cleanup", label: "What becomes of old records", options: [["", "deleted after their time"], ["compact", "compacted: the newest of each key stays"], ["compact,delete", "both"]] },
      { name: "days", label: "Kept for days", type: "number", hint: "Empty means: as the server has it." },
    ],
    submit: async (values) => {
      const settings = {};
      if (values.cleanup) settings["cleanup.policy"] = values.cleanup;
      if (values.days) settings["retention.ms"] = String(Math.round(Number(values.days) * 86_400_000));
      await put(path("console", "topics", values.name), { partitions: Number(values.partitions), settings });
      toast(`${values.name} is created.`);
      page.go(address("topics", values.name));
    },
  });
}

async function one(page, name) {
  const where = path("console", "topics", name);
  const found = await get(where, {}, page.signal);
  const tab = page.query.get("tab") ?? "";
  const figures = h("div");
  const draw = (now) => fill(figures, facts([
    ["Records", number(now.records)], ["Size", bytes(now.bytes)], ["Partitions", number(now.partitions)],
    now.queue ? ["It is", link("the messages of a queue", "queues", "/", name)] : null,
    now.fault ? ["Fault", now.fault] : null,
  ]));
  const actions = [
    found.may.write ? h("button", { type: "button", class: "primary", onclick: () => produce(page, name, found) }, "Produce") : null,
    found.may.alter ? h("button", { type: "button", onclick: () => grow(page, name, found) }, "Add partitions") : null,
    found.may.delete ? h("button", { type: "button", class: "danger", onclick: () => drop(page, name) }, "Delete") : null,
  ];
  const content = h("div", { class: "card" });
  fill(page.main,
    heading(name, { kind: found.queue ? "Topic of a queue" : found.internal ? "Internal topic" : "Topic", copy: name, actions }),
    section(null, figures),
    h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, TABS.map(([key, title]) =>
      h("a", { href: `${address("topics", name)}${key ? `?tab=${key}` : ""}`, "aria-current": key === tab ? "page" : undefined }, title))),
    content);
  draw(found);
  const refresh = async () => {
    const now = await get(where, {}, page.signal);
    draw(now);
    if (tab === "partitions") partitions(content, now);
    else if (tab === "groups") await groups(page, content, name);
  };
  page.every(REFRESH_MS, refresh);
  if (tab === "partitions") partitions(content, found);
  else if (tab === "settings") settings(page, content, name, found);
  else if (tab === "groups") await groups(page, content, name);
  else reader(page, content, name, found);
}

function partitions(content, found) {
  fill(content, plainTable("Partitions", [
    { title: "Partition", number: true, cell: (row) => number(row.partition) },
    { title: "First offset", number: true, cell: (row) => number(row.start) },
    { title: "End", number: true, cell: (row) => number(row.end) },
    { title: "In open transactions", number: true, wide: true, cell: (row) => number(row.end - row.stable) },
    { title: "Segments", number: true, wide: true, cell: (row) => number(row.segments) },
    { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
    { title: "State", cell: (row) => (row.fault ? badge(row.fault, "bad") : badge("fine", "good")) },
  ], found.partition_details));
}

function settings(page, content, name, found) {
  const change = (row) => form({
    title: row.name, action: "Set", text: row.doc,
    fields: [
      { name: "value", label: "Value", value: row.value },
      ...(row.source === "this topic" ? [{ name: "reset", label: "Remove it: what applies to all topics applies here", type: "checkbox" }] : []),
    ],
    submit: async ({ value, reset }) => {
      await put(path("console", "topics", name, "settings", row.name), { value: reset ? null : value });
      toast(reset ? `${row.name} is removed.` : `${row.name} is set.`);
      page.reload();
    },
  });
  fill(content, plainTable("Settings", [
    { title: "Setting", class: "name", cell: (row) => [h("code", {}, row.name), h("div", { class: "hint" }, row.doc)] },
    { title: "Value", class: "name", cell: (row) => [h("code", {}, row.value || "–"), h("div", { class: "hint" }, meaning(row.name, row.value))] },
    { title: "From", wide: true, cell: (row) => (row.source === "default" ? h("span", { class: "hint" }, row.source) : badge(row.source, "accent")) },
    ...(found.may.set ? [{ title: "", class: "act", cell: (row) => h("button", { type: "button", onclick: () => change(row) }, "Change") }] : []),
  ], found.settings));
}

/** Say what a number means to people: times and sizes. */
function meaning(name, value) {
  const amount = Number(value);
  const unit = /\.(ms|bytes)$/.exec(name)?.[1];
  if (value === "" || !Number.isFinite(amount) || unit === undefined && !name.startsWith("flush")) return null;
  if (amount >= 2 ** 63 - 1024 || amount < 0) return "no limit";
  if (unit === "ms" && amount >= 1000) return duration(amount);
  return unit === "bytes" && amount >= 1024 ? bytes(amount) : null;
}

function grow(page, name, found) {
  form({
    title: `More partitions of ${name}`, action: "Add", text: "Partitions cannot be taken away again, and a key may belong to another partition afterwards.",
    fields: [{ name: "count", label: "Partitions", type: "number", value: String(found.partitions + 1), required: true }],
    submit: async ({ count }) => {
      await post(path("console", "topics", name, "partitions"), { count: Number(count) });
      toast(`${name} has ${plural(Number(count), "partition")}.`);
      page.reload();
    },
  });
}

async function groups(page, content, name) {
  const { items, cut } = await get(path("console", "topics", name, "groups"), {}, page.signal);
  const lags = new Map();
  items.forEach(({ group, lag }) => lags.set(group, (lags.get(group) ?? 0) + lag));
  fill(content, lags.size ? facts([...lags].slice(0, 50).map(([group, lag]) => [h("span", { class: "clamped" }, group), `${number(lag)} behind`])) : null, plainTable("Groups that read it", [
    { title: "Group", class: "name", cell: (row) => link(row.group, "groups", row.group) },
    { title: "Partition", number: true, cell: (row) => number(row.partition) },
    { title: "Offset", number: true, cell: (row) => number(row.offset) },
    { title: "End", number: true, wide: true, cell: (row) => number(row.end) },
    { title: "Lag", number: true, cell: (row) => number(row.lag) },
  ], items, "No group has committed an offset here"), cut ? h("p", { class: "hint" }, "There are more than this shows.") : null);
}

// --- records

function reader(page, content, name, found) {
  if (!found.may.read) {
    fill(content, empty("Your user may not read this topic"));
    return;
  }
  const asked = page.query;
  const from = h("select", { name: "from" }, [["last", "the newest"], ["first", "the beginning"], ["offset", "an offset"], ["time", "a time"]].map(([key, text]) => h("option", { value: key, selected: (asked.get("from") ?? "last") === key }, text)));
  const place = h("input", { name: "place", autocomplete: "off", value: asked.get("place") ?? "" });
  const placeLabel = h("label", {}, "Which", place);
  const partition = h("select", { name: "partition" }, h("option", { value: "" }, "all"), found.partition_details.map((each) => h("option", { value: each.partition, selected: asked.get("partition") === String(each.partition) }, each.partition)));
  const key = h("input", { name: "key", value: asked.get("key") ?? "", autocomplete: "off" });
  const text = h("input", { name: "text", value: asked.get("text") ?? "", autocomplete: "off" });
  const rows = h("div", { class: "messages" });
  const told = h("p", { class: "hint", role: "status" });
  const more = h("button", { type: "button", hidden: true, onclick: () => attempt(() => read(next)) }, "Go on from here");
  let next = "";

  function showPlace() {
    const isPlace = from.value === "offset" || from.value === "time";
    placeLabel.hidden = !isPlace;
    place.type = from.value === "time" ? "datetime-local" : "number";
  }

  function query() {
    const wanted = { partition: partition.value, key: key.value, text: text.value };
    if (from.value === "offset") wanted.offset = place.value || "0";
    else if (from.value === "time") wanted.time = place.value ? String(new Date(place.value).getTime()) : undefined;
    else wanted.from = (key.value || text.value) && from.value === "last" ? "first" : from.value;
    return wanted;
  }

  async function read(going) {
    const result = await get(path("console", "topics", name, "records"), { ...query(), ...(going ? { next: going } : {}) }, page.signal);
    next = result.next;
    more.hidden = !next;
    const isNewestFirst = query().from === "last";
    const ordered = isNewestFirst ? result.records.toReversed() : result.records;
    const shown = ordered.map((each) => record(page, name, each));
    if (going) rows.append(...shown);
    else fill(rows, shown.length ? shown : empty("No records", key.value || text.value ? "None of those that were looked at match." : "Nothing is here yet."));
    told.textContent = `${plural(result.records.length, "record")}, ${number(result.scanned)} looked at${result.unreadable ? `, ${number(result.unreadable)} cannot be read` : ""}.`;
  }

  async function search(event) {
    event?.preventDefault();
    const kept = { from: from.value, place: place.value, partition: partition.value, key: key.value, text: text.value };
    page.setQuery(Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== "")));
    await attempt(() => read(""));
  }

  from.addEventListener("change", showPlace);
  showPlace();
  fill(content,
    h("form", { class: "row", onsubmit: search },
      h("label", {}, "From", from), placeLabel, h("label", {}, "Partition", partition),
      h("label", {}, "Key contains", key), h("label", {}, "Text anywhere", text),
      h("button", { type: "submit", class: "primary" }, "Read")),
    told, rows, h("div", {}, more));
  search();
}

function record(page, name, each) {
  const head = [h("strong", {}, `${each.partition}:${each.offset}`), h("span", {}, moment(each.time)), inline(each.key)];
  const more = each.headers.map(([header, value]) => [header, value === null ? "–" : value.text ?? `${bytes(value.bytes)} of bytes`]);
  const element = message({ head, value: each.value, more, whole: () => attempt(async () => {
    const whole = await get(path("console", "topics", name, "records", String(each.partition), String(each.offset)), {}, page.signal);
    element.replaceWith(message({ head, value: whole.value, more }));
  }) });
  return element;
}

function produce(page, name, found) {
  form({
    title: `Produce to ${name}`, action: "Produce",
    fields: [
      { name: "key", label: "Key", hint: "Empty means: none." },
      { name: "value", label: "Value", type: "textarea" },
      { name: "headers", label: "Headers", type: "textarea", rows: 2, placeholder: "name: value", hint: "One in each line." },
      { name: "partition", label: "Partition", options: [["", "as the key says"], ...found.partition_details.map((each) => [String(each.partition), String(each.partition)])] },
    ],
    submit: async (values) => {
      const body = { value: values.value, headers: headersOf(values.headers) };
      if (values.key) body.key = values.key;
      if (values.partition !== "") body.partition = Number(values.partition);
      const { partition, offset } = await post(path("console", "topics", name, "records"), body);
      toast(`Record ${partition}:${offset} is on disk.`);
      page.reload();
    },
  });
}

function drop(page, name) {
  confirm({ title: `Delete ${name}?`, action: "Delete", word: name, text: "The topic and all its records are removed.",
    work: async () => { await remove(path("console", "topics", name)); toast(`${name} is deleted.`); page.go("#/topics"); } });
}
