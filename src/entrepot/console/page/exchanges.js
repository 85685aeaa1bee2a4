// Exchanges: the list, and one exchange with its bindings.

import { get, me, path, post, put, remove } from "./api.js";
import { address, badge, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { attempt, confirm, form, toast } from "./forms.js";
import { graph } from "./graph.js";
import { table } from "./table.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message", "x-message-deduplication"];
const DEFAULT = "amq.default";

export default function exchanges(page) {
  return page.parts.length >= 2 ? one(page, ...page.parts) : list(page);
}

const nameOf = (row) => row.name || "(default exchange)";

function list(page) {
  const shown = table(page, {
    caption: "Exchanges", path: "/api/exchanges", query: { page_size: 100 }, noun: "exchange",
    columns: [
      { title: "Name", sort: "name", class: "name", cell: (row) => [link(nameOf(row), "exchanges", row.vhost, row.name || DEFAULT), row.vhost === "/" ? null : h("span", { class: "hint" }, ` in ${row.vhost}`)] },
      { title: "Type", sort: "type", cell: (row) => badge(row.type) },
      { title: "Kept", wide: true, cell: (row) => (row.durable ? "durable" : "transient") },
      { title: "", wide: true, cell: (row) => [row.internal ? badge("internal") : null, row.auto_delete ? badge("auto-delete") : null] },
    ],
  });
  const drawing = section("What leads where", h("p", { class: "loading" }, "Loading…"));
  fill(page.main, heading("Exchanges", { actions: [
    h("a", { href: "#/route" }, "Where would this message go?"),
    me.creates.exchange ? h("button", { type: "button", class: "primary", onclick: () => declare(page) }, "Declare an exchange") : null] }), shown.element, drawing);
  drawn(page, "/").then((found) => fill(drawing, h("h2", {}, "What leads where"), found), () => drawing.remove()); // Who may not enter it.
}

/** Draw what leads where in a virtual host, or near one exchange. */
async function drawn(page, vhost, exchange) {
  const { edges, cut } = await get(path("console", "graph", vhost), { exchange }, page.signal);
  return [graph("Exchanges, what is bound to them, and who listens", edges.map((each) => edge(vhost, each))),
    cut ? h("p", { class: "hint" }, "There is more than this shows.") : null];
}

const WAYS = { unmatched: "what matches nothing", dead: "dead letters" };

function edge(vhost, { from, to, how, keys, count }) {
  if (WAYS[how]) return { from: end(vhost, from), to: end(vhost, to), hint: WAYS[how], text: how === "dead" ? "dead letters" : "no match", isAside: true };
  const shown = keys.map((key) => key || "–").join(", ");
  return { from: end(vhost, from), to: end(vhost, to), hint: count > keys.length ? `${shown} and ${count - keys.length} more` : shown,
    text: count > 1 ? `${keys[0] || "–"} +${count - 1}` : keys[0] };
}

export function end(vhost, { kind, name }) {
  const at = { exchange: ["exchanges", vhost, name || DEFAULT], queue: ["queues", vhost, name], topic: ["topics", name], session: ["sessions", name] }[kind];
  return { id: `${kind} ${name}`, name: name || "(default exchange)", kind, href: address(...at) };
}

function declare(page) {
  form({
    title: "Declare an exchange", action: "Declare",
    fields: [
      { name: "name", label: "Name", required: true }, { name: "vhost", label: "Virtual host", value: "/", required: true },
      { name: "type", label: "Type", options: TYPES }, { name: "durable", label: "Durable: it survives a restart", type: "checkbox", value: true },
      { name: "alternate", label: "Alternate exchange", hint: "It gets what matches no binding." },
    ],
    submit: async (values) => {
      const settings = values.alternate ? { "alternate-exchange": values.alternate } : {};
      if (values.type === "x-delayed-message") settings["x-delayed-type"] = "direct";
      await put(path("exchanges", values.vhost, values.name), { type: values.type, durable: values.durable, arguments: settings });
      toast(`${values.name} is declared.`);
      page.go(address("exchanges", values.vhost, values.name));
    },
  });
}

async function one(page, vhost, name) {
  const at = path("exchanges", vhost, name);
  const found = await get(at, {}, page.signal);
  const isDefault = found.name === "";
  const from = h("div");
  const drawing = h("div");
  const to = h("div");
  const destination = (row) => link(row.destination, row.destination_type === "queue" ? "queues" : "exchanges", vhost, row.destination);
  const unbind = (row) => h("button", { type: "button", onclick: () => confirm({ title: "Remove this binding?", action: "Remove", text: `${name} → ${row.destination}, key ${row.routing_key || "–"}`,
    work: async () => {
      await remove(path("bindings", vhost, "e", row.source, row.destination_type[0], row.destination, row.properties_key));
      await draw();
    } }) }, "Remove");

  async function draw() {
    const [source, target] = await Promise.all([get(`${at}/bindings/source`, {}, page.signal), get(`${at}/bindings/destination`, {}, page.signal)]);
    fill(from, plainTable("Bindings from here", [
      { title: "To", class: "name", cell: (row) => [destination(row), " ", badge(row.destination_type)] },
      { title: "Key", cell: (row) => h("code", {}, row.routing_key || "–") },
      { title: "Arguments", wide: true, cell: (row) => (Object.keys(row.arguments).length ? h("code", {}, JSON.stringify(row.arguments)) : "–") },
      ...(isDefault || !me.administrator ? [] : [{ title: "", class: "act", cell: unbind }]),
    ], source.slice(0, 500), "Nothing is bound to it"));
    fill(to, plainTable("Bindings to here", [
      { title: "From", cell: (row) => link(row.source, "exchanges", vhost, row.source) },
      { title: "Key", cell: (row) => h("code", {}, row.routing_key || "–") },
    ], target, "No exchange leads here"));
    if (!isDefault) fill(drawing, await drawn(page, vhost, name));
  }

  const bind = () => form({
    title: `Bind to ${name}`, action: "Bind",
    fields: [{ name: "kind", label: "A", options: [["q", "queue or topic"], ["e", "exchange"]] }, { name: "destination", label: "Named", required: true }, { name: "key", label: "Routing key" }],
    submit: async (values) => {
      await post(path("bindings", vhost, "e", name, values.kind, values.destination), { routing_key: values.key, arguments: {} });
      toast("Bound.");
      await draw();
    },
  });
  const drop = () => confirm({ title: `Delete ${name}?`, action: "Delete", text: "Its bindings go with it.", word: name,
    work: async () => { await remove(at); toast(`${name} is deleted.`); page.go("#/exchanges"); } });
  const actions = [
    h("a", { href: `#/route?exchange=${encodeURIComponent(name)}&vhost=${encodeURIComponent(vhost)}` }, "Where would it go?"),
    me.administrator && !isDefault ? h("button", { type: "button", class: "primary", onclick: bind }, "Bind") : null,
    me.administrator && !isDefault && !name.startsWith("amq.") ? h("button", { type: "button", class: "danger", onclick: drop }, "Delete") : null,
  ];
  fill(page.main, heading(nameOf(found), { kind: vhost === "/" ? "Exchange" : `Exchange in ${vhost}`, copy: isDefault ? null : name, actions }),
    section(null, facts([["Type", found.type], ["Durable", found.durable ? "yes" : "no"], ["Internal", found.internal ? "yes" : "no"],
      ...Object.entries(found.arguments).map(([key, value]) => [key, String(value)])])),
    isDefault ? null : section("What leads where", drawing),
    h("div", { class: "columns" }, section("Bindings from here", from), section("Bindings to here", to)));
  await attempt(draw);
}

