// Queues: the list, and one queue with what one does to it.

import { get, me, path, post, put, remove } from "./api.js";
import { address, badge, empty, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { attempt, confirm, form, headersOf, toast } from "./forms.js";
import { number, plural, rate } from "./format.js";
import { queued } from "./messages.js";
import { table } from "./table.js";

const REFRESH_MS = 2000;
const SHOWN_BYTES = 65_536;
const PEEKED_MAX = 500;
const MOVED_AT_ONCE = 2000;

export default function queues(page) {
  return page.parts.length >= 2 ? one(page, ...page.parts) : list(page);
}

// --- the list

function list(page) {
  const flows = new Map();
  const shown = table(page, {
    caption: "Queues", path: "/api/console/queues", noun: "queue",
    before: (found) => found.items.forEach((row) => measure(flows, row)),
    none: empty("No queues yet", "A client declares them when it needs them; or declare one here.", declareButton(page)),
    columns: [
      { title: "Name", sort: "name", class: "name", cell: (row) => [link(row.name, "queues", row.vhost, row.name), row.vhost === "/" ? null : h("span", { class: "hint" }, ` in ${row.vhost}`)] },
      { title: "Type", sort: "type", wide: true, cell: (row) => [badge(row.type), " ", row.durable ? null : badge("transient"), row.exclusive ? badge("exclusive") : null] },
      { title: "Ready", sort: "ready", number: true, cell: (row) => (row.fault ? badge("down", "bad") : number(row.ready)) },
      { title: "Unacked", sort: "unacked", number: true, cell: (row) => number(row.unacked) },
      { title: "In", number: true, wide: true, cell: (row) => rate(row.rates?.in) },
      { title: "Out", number: true, wide: true, cell: (row) => rate(row.rates?.out) },
      { title: "Consumers", sort: "consumers", number: true, wide: true, cell: (row) => number(row.consumers) },
    ],
  });
  fill(page.main, heading("Queues", { actions: declareButton(page) }), shown.element);
}

/** Work out the rates of a queue since it was looked at last. */
function measure(flows, row) {
  const key = `${row.vhost}\n${row.name}`;
  const before = flows.get(key);
  const now = performance.now();
  if (before && row.accepted !== undefined) {
    const seconds = (now - before.now) / 1000;
    row.rates = { in: Math.max(0, (row.accepted - before.accepted) / seconds), out: Math.max(0, (row.settled - before.settled) / seconds) };
  }
  flows.set(key, { now, accepted: row.accepted, settled: row.settled });
}

function declareButton(page) {
  if (!me.creates.queue) return null;
  return h("button", { type: "button", class: "primary", onclick: () => declare(page) }, "Declare a queue");
}

function declare(page) {
  form({
    title: "Declare a queue", action: "Declare",
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "vhost", label: "Virtual host", value: "/", required: true },
      { name: "type", label: "Type", options: ["classic", "quorum", "stream"], hint: "Both kinds of queues are kept alike; a stream is a topic." },
      { name: "durable", label: "Durable: it survives a restart", type: "checkbox", value: true },
      { name: "letters", label: "Queue for dead letters", hint: "Rejected and expired messages go there." },
      { name: "ttl", label: "Time to live, in seconds", type: "number" },
      { name: "length", label: "At most so many messages", type: "number" },
    ],
    submit: async (values) => {
      const wanted = { "x-queue-type": values.type };
      if (values.letters) Object.assign(wanted, { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": values.letters });
      if (values.ttl) wanted["x-message-ttl"] = Math.round(Number(values.ttl) * 1000);
      if (values.length) wanted["x-max-length"] = Number(values.length);
      await put(path("queues", values.vhost, values.name), { durable: values.durable || values.type !== "classic", arguments: wanted });
      toast(`${values.name} is declared.`);
      page.go(values.type === "stream" ? address("topics", values.name) : address("queues", values.vhost, values.name));
    },
  });
}

// --- one queue

async function one(page, vhost, name) {
  const at = (...parts) => path("queues", vhost, name, ...parts);
  const found = await get(path("console", "queues", vhost, name), {}, page.signal);
  const may = found.may;
  const figures = h("div");
  const consumers = h("div");
  const bindings = h("div");
  const messages = h("div", { class: "messages" });
  const flows = new Map();
  const button = (text, work, kind = "") => h("button", { type: "button", class: kind, onclick: work }, text);

  async function refresh() {
    const now = await get(path("console", "queues", vhost, name), {}, page.signal);
    measure(flows, now);
    draw(now);
  }

  function draw(now) {
    const facts_ = now.fault ? [["State", badge("down", "bad")], ["Why", now.fault]] : [
      ["Ready", number(now.ready)], ["Unacknowledged", number(now.unacked)], ["Deferred", number(now.deferred)],
      ["Consumers", number(now.consumers)], ["In", rate(now.rates?.in)], ["Out", rate(now.rates?.out)],
      ["Accepted since its start", number(now.accepted)], ["Settled since its start", number(now.settled)],
    ];
    const dropped = Object.entries(now.dropped ?? {}).map(([reason, count]) => [`Dropped: ${reason}`, number(count)]);
    fill(figures, facts([...facts_, ...dropped]));
  }

  async function drawRest() {
    const [shown, bound] = await Promise.all([get(at(), {}, page.signal), get(at("bindings"), {}, page.signal)]);
    fill(consumers, plainTable("Consumers", [
      { title: "Consumer", class: "name", cell: (row) => row.consumer_tag },
      { title: "Connection", cell: (row) => link(row.channel_details.connection_name, "connections", row.channel_details.connection_name) },
      { title: "User", wide: true, cell: (row) => row.channel_details.user },
      { title: "Prefetch", number: true, wide: true, cell: (row) => number(row.prefetch_count) },
      { title: "State", cell: (row) => badge(row.active ? "active" : "waiting", row.active ? "good" : "") },
    ], shown.consumer_details, "Nobody consumes from it"));
    fill(bindings, plainTable("Bindings", [
      { title: "From", cell: (row) => (row.source ? link(row.source, "exchanges", vhost, row.source) : "default exchange") },
      { title: "Key", class: "name", cell: (row) => h("code", {}, row.routing_key || "–") },
      { title: "Arguments", wide: true, cell: (row) => (Object.keys(row.arguments).length ? h("code", {}, JSON.stringify(row.arguments)) : "–") },
    ], bound));
  }

  async function look(mode, count) {
    const rows = await post(at("get"), { count, ackmode: mode, encoding: "auto", truncate: SHOWN_BYTES });
    const isPeek = mode === "peek";
    const back = (row) => (may.read && isPeek && row.properties.headers?.["x-death"]
      ? button("Send back", () => attempt(async () => { await sendBack({ messages: [[row.lane, row.offset]] }); await look("peek", count); }))
      : null);
    const left = rows.at(-1)?.message_count ?? 0;
    const more = isPeek && left && count < PEEKED_MAX ? button(`Show more of ${number(left)} behind these`, () => attempt(() => look("peek", Math.min(PEEKED_MAX, count + 80)))) : null;
    fill(messages, rows.length ? rows.map((row) => queued(row, back(row))) : empty("No message is ready", "Messages that consumers hold are not shown."), more ? h("div", {}, more) : null);
    all.hidden = !(isPeek && rows.some((row) => row.properties.headers?.["x-death"]));
    if (!isPeek) toast(`${plural(rows.length, "message")} taken out of the queue.`);
    await refresh();
  }

  async function sendBack(body) {
    const { sent, stayed, reasons } = await post(path("console", "queues", vhost, name, "send-back"), body);
    if (!sent && stayed) throw new Error(`Nothing was sent back: ${reasons.join("; ")}.`);
    toast(`${plural(sent, "message")} sent back${stayed ? `; ${stayed} stayed: ${reasons.join("; ")}` : ""}.`);
    await refresh();
  }

  const publish = () => form({
    title: `Publish to ${name}`, action: "Publish", fields: [
      { name: "payload", label: "Body", type: "textarea" },
      { name: "headers", label: "Headers", type: "textarea", rows: 2, placeholder: "name: value", hint: "One in each line." },
      { name: "content_type", label: "Content type", placeholder: "application/json" },
      { name: "persistent", label: "Persistent: on disk before it is confirmed", type: "checkbox", value: true },
    ],
    submit: async (values) => {
      const properties = { delivery_mode: values.persistent ? 2 : 1, headers: headersOf(values.headers) };
      if (values.content_type) properties.content_type = values.content_type;
      await post(path("exchanges", vhost, "amq.default", "publish"), { properties, routing_key: name, payload: values.payload, payload_encoding: "string" });
      toast("Published.");
      await refresh();
    },
  });

  const move = () => form({
    title: `Move messages of ${name}`, action: "Move", fields: [
      { name: "to", label: "To the queue", required: true },
      { name: "count", label: "At most", type: "number", hint: "Empty means: all that are ready." },
    ],
    submit: async (values, tell) => {
      const wanted = values.count ? Number(values.count) : (await get(path("console", "queues", vhost, name))).ready;
      let moved = 0;
      for (let some = 1; some && moved < wanted && tell(`${number(moved)} of ${number(wanted)} are moved. Cancel stops it here.`);) {
        some = (await post(at("move"), { to: values.to, count: Math.min(MOVED_AT_ONCE, wanted - moved) })).moved;
        moved += some;
      }
      toast(`${plural(moved, "message")} moved to ${values.to}.`);
      await refresh();
    },
  });

  const placeOf = (values) => {
    if (Boolean(values.time) === (values.offset !== "")) throw new Error("Either a time or an offset.");
    return values.time ? { time: new Date(values.time).getTime() } : { offset: Number(values.offset) };
  };
  const rewind = () => form({
    title: `Rewind ${name}`, action: "Rewind", text: "Messages that were settled since then are ready again, as far as they are kept.",
    fields: [{ name: "time", label: "To the time", type: "datetime-local", hint: "Or leave it empty, and give an offset." }, { name: "offset", label: "To the offset", type: "number" }],
    preview: async (values) => {
      if (!values.time && values.offset === "") return [];
      const { again, leased } = await post(at("rewind"), { ...placeOf(values), preview: true });
      return h("p", {}, h("strong", {}, `${plural(again, "message")} would be ready again`), leased ? `, ${number(leased)} of which consumers hold now and would get twice` : "", ".");
    },
    submit: async (values) => {
      await post(at("rewind"), placeOf(values));
      toast(`${name} is rewound.`);
      await refresh();
    },
  });

  const takeOne = () => confirm({ title: `Take a message out of ${name}?`, action: "Take", text: "The first one that is ready is shown here, and is in the queue no more. A rewind brings it back, as long as it is kept.",
    work: () => look("ack_requeue_false", 1) });
  const allBack = () => confirm({ title: `Send all dead letters of ${name} back?`, action: "Send back", text: "Each goes to the queue in which it died, at most 1,000 at a time. Those that still cannot be processed there will come back.",
    work: () => sendBack({}) });
  const all = button("Send all dead letters back", allBack);
  all.hidden = true;
  const purge = () => confirm({ title: `Purge ${name}?`, action: "Purge", text: "All messages that are ready are removed.",
    work: async () => { await remove(at("contents")); toast("Purged."); await refresh(); } });
  const drop = () => confirm({ title: `Delete ${name}?`, action: "Delete", word: name, text: "The queue and all its messages are removed.",
    work: async () => { await remove(at()); toast(`${name} is deleted.`); page.go("#/queues"); } });

  const actions = [
    may.publish ? button("Publish", publish, "primary") : null,
    may.read ? [button("Move", move), button("Rewind", rewind), button("Purge", purge)] : null,
    may.delete ? button("Delete", drop, "danger") : null,
  ];
  const tools = may.read ? h("div", { class: "row" },
    button("Peek", () => attempt(() => look("peek", 20)), "primary"),
    button("Take one", takeOne), all)
    : h("p", { class: "hint" }, "Your user may not read this queue.");
  fill(page.main,
    heading(name, { kind: vhost === "/" ? "Queue" : `Queue in ${vhost}`, copy: name, actions }),
    section(null, figures),
    section("Messages", tools, messages),
    h("div", { class: "columns" }, section("Consumers", consumers), section("Bindings", bindings)),
    section("What it was declared with", facts([
      ["Type", found.type], ["Durable", found.durable ? "yes" : "no"], ["Exclusive", found.exclusive ? "yes" : "no"], ["Deleted with its last consumer", found.auto_delete ? "yes" : "no"],
      ...Object.entries(found.arguments).map(([key, value]) => [key, typeof value === "object" || value === "" ? JSON.stringify(value) : String(value)]),
    ])));
  measure(flows, found);
  draw(found);
  await drawRest();
  page.every(REFRESH_MS, refresh);
  page.every(REFRESH_MS * 3, drawRest);
}
