// Where would this message go? Typed in, and shown as a way.

import { path, post } from "./api.js";
import { address, badge, empty, fill, h, heading, link, section } from "./dom.js";
import { attempt, headersOf } from "./forms.js";
import { end } from "./exchanges.js";
import { plural } from "./format.js";
import { graph } from "./graph.js";

const EDGES_MAX = 120;

export default async function route(page) {
  const asked = page.query;
  const input = (name, value, rest = {}) => h("input", { name, value, autocomplete: "off", spellcheck: "false", ...rest });
  const vhost = input("vhost", asked.get("vhost") ?? "/");
  const exchange = input("exchange", asked.get("exchange") ?? "amq.topic");
  const key = input("key", asked.get("key") ?? "");
  const headers = h("textarea", { name: "headers", rows: "2", placeholder: "name: value", value: asked.get("headers") ?? "" });
  const way = h("div", { class: "stack" });
  const search = async (event) => {
    event?.preventDefault();
    page.setQuery(Object.fromEntries([vhost, exchange, key, headers].filter((each) => each.value).map((each) => [each.name, each.value])));
    await attempt(async () => {
      const name = exchange.value || "amq.default";
      draw(way, vhost.value, key.value, await post(path("console", "trace", vhost.value, name), { routing_key: key.value, headers: headersOf(headers.value) }));
    });
  };
  fill(page.main, heading("Where would this message go?"),
    section(null, h("p", { class: "hint" }, "Nothing is published. The way is found by the same rules as that of a message."),
      h("form", { onsubmit: search }, h("div", { class: "row" },
        h("label", {}, "Exchange", exchange), h("label", {}, "Routing key or subject", key), h("label", {}, "Virtual host", vhost),
        h("label", {}, "Headers", headers), h("button", { type: "submit", class: "primary" }, "Show the way")))),
    way);
  if (asked.get("key") !== null || asked.get("exchange") !== null) await search();
}

/** Return the edges of the way: from each exchange to what the message matches there. */
function edges(vhost, key, found) {
  const kinds = new Map(found.queues.map((each) => [each.name, each.kind]));
  const of = (kind, name) => end(vhost, { kind, name });
  const toQueue = (name) => of(kinds.get(name) ?? "queue", name);
  const all = found.hops.flatMap(({ exchange, queues, bindings, held, alternate }) => [
    ...bindings.map((each) => ({ from: of("exchange", exchange), text: each.routing_key,
      to: each.destination_type === "queue" ? toQueue(each.destination) : of("exchange", each.destination) })),
    ...queues.map((name) => ({ from: of("exchange", exchange), to: toQueue(name), text: "by its name" })),
    ...(alternate && !bindings.length && !queues.length && !held ? [{ from: of("exchange", exchange), to: of("exchange", alternate), text: "no match", isAside: true }] : []),
  ]);
  const first = of("exchange", found.hops[0]?.exchange ?? "");
  if (found.landing) all.push({ from: first, to: toQueue(found.landing), text: "by its subject" });
  all.push(...found.listeners.clients.map((client) => ({ from: first, to: of("session", client), text: "listens" })));
  return [{ from: { id: "message", name: key || "(no key)", kind: "message", href: "#/route" }, to: first }, ...all].slice(0, EDGES_MAX);
}

function draw(way, vhost, key, found) {
  const hops = found.hops.map((hop) => h("li", { class: "hop" },
    h("div", {}, hop.exchange ? link(hop.exchange, "exchanges", vhost, hop.exchange) : "default exchange", " ", badge(hop.type)),
    hop.queues.length ? h("p", {}, "By its name: ", hop.queues.join(", ")) : null,
    hop.held ? h("p", {}, "It waits here for its delay.") : null,
    hop.bindings.length ? h("ul", {}, hop.bindings.map((each) => h("li", {}, h("code", {}, each.routing_key || "–"), " → ",
      link(each.destination, each.destination_type === "queue" ? "queues" : "exchanges", vhost, each.destination), " ", badge(each.destination_type)))) : null,
    hop.binding_count > hop.bindings.length ? h("p", { class: "hint" }, `and ${hop.binding_count - hop.bindings.length} more`) : null,
    !hop.bindings.length && !hop.queues.length && !hop.held ? h("p", { class: "hint" }, hop.alternate ? `No binding matches: it goes on to ${hop.alternate}.` : "No binding matches.") : null));
  const targets = found.queues.map((each) => h("li", {}, each.kind === "topic" ? link(each.name, "topics", each.name) : h("a", { href: address("queues", vhost, each.name) }, each.name),
    " ", badge(each.kind, "accent"), found.landing === each.name ? h("span", { class: "hint" }, " because it has the name of the subject") : null));
  const heard = found.listeners.count
    ? h("p", {}, `${plural(found.listeners.count, "subscription")} hear it: `, found.listeners.clients.map((each) => [link(each, "sessions", each), " "])) : null;
  const isLost = !targets.length && !found.listeners.count && !found.hops.some((hop) => hop.held);
  const end = h("li", { class: "hop end" }, isLost
    ? empty("Nowhere", `A message with the key ${key || "–"} would be dropped, or returned if its publisher asks for that.`)
    : [h("p", {}, h("strong", {}, `${plural(found.queue_count, "queue or topic", "queues and topics")} would get it`)), h("ul", {}, targets), heard]);
  fill(way, section("The way", graph("The way of the message", edges(vhost, key, found))), h("ol", { class: "route", "aria-label": "The way of the message" }, hops, end));
}
