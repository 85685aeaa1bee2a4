// Connections of clients: the list, and one with its channels.

import { get, me, path, remove } from "./api.js";
import { address, badge, empty, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { confirm, toast } from "./forms.js";
import { duration, moment, number } from "./format.js";
import { table } from "./table.js";

export default function connections(page) {
  return page.parts.length ? one(page, page.parts[0]) : list(page);
}

function closing(name, isMine, done) {
  if (!me.administrator && !isMine) return null;
  return h("button", { type: "button", class: "danger", onclick: () => confirm({
    title: "Close this connection?", text: `${name}: the client is told, and may connect again.`, action: "Close it",
    work: async () => { await remove(path("connections", name), { "X-Reason": "Closed in the console" }); toast("The connection is closed."); await done(); },
  }) }, "Close");
}

function list(page) {
  const shown = table(page, {
    caption: "Connections", path: "/api/console/connections", noun: "connection",
    none: empty("Nobody is connected", "Clients of Kafka, AMQP, MQTT and STOMP are listed here."),
    columns: [
      { title: "Client", sort: "name", class: "name", cell: (row) => [h("a", { href: address("connections", row.name), title: row.name }, row.name.split(" -> ")[0]), row.client ? h("div", { class: "hint" }, row.client) : null] },
      { title: "Protocol", sort: "protocol", cell: (row) => [badge(row.protocol), row.ssl ? badge("TLS", "good") : null] },
      { title: "User", sort: "user", wide: true, cell: (row) => row.user },
      { title: "Channels", number: true, wide: true, cell: (row) => number(row.channels) },
      { title: "Consumers", number: true, wide: true, cell: (row) => number(row.consumers) },
      { title: "Unacked", sort: "unacked", number: true, wide: true, cell: (row) => number(row.unacked) },
      { title: "Open for", sort: "connected", number: true, wide: true, cell: (row) => duration(Date.now() - row.connected_at) },
      { title: "State", wide: true, cell: (row) => badge(row.state, row.state === "running" ? "good" : "warn") },
      { title: "", class: "act", cell: (row) => closing(row.name, row.mine, () => shown.reload()) },
    ],
  });
  fill(page.main, heading("Connections"), shown.element);
}

async function one(page, name) {
  const found = await get(path("connections", name), {}, page.signal);
  const channels = await get(path("connections", name, "channels"), {}, page.signal);
  fill(page.main, heading(name, { kind: "Connection", actions: closing(name, found.user === me.user, () => page.go("#/connections")) }),
    section(null, facts([
      ["Protocol", found.protocol], ["User", found.user], ["Virtual host", found.vhost], ["From", `${found.peer_host}:${found.peer_port}`],
      ["State", found.state], ["TLS", found.ssl ? "yes" : "no"], ["Login", found.auth_mechanism || "none"], ["Heartbeat", found.timeout ? `${found.timeout} s` : "none"], ["Since", moment(found.connected_at)],
      ...Object.entries(found.client_properties).filter(([, value]) => typeof value !== "object").map(([key, value]) => [key, String(value)]),
    ])),
    section("Channels", plainTable("Channels", [
      { title: "Number", number: true, cell: (row) => number(row.number) },
      { title: "Consumers", number: true, cell: (row) => number(row.consumer_count) },
      { title: "Prefetch", number: true, cell: (row) => number(row.prefetch_count) },
      { title: "Unacked", number: true, cell: (row) => number(row.messages_unacknowledged) },
      { title: "Unconfirmed", number: true, wide: true, cell: (row) => number(row.messages_unconfirmed) },
      { title: "", wide: true, cell: (row) => [row.confirm ? badge("confirms") : null, row.transactional ? badge("transactional") : null] },
    ], channels, "It has no channels")));
}
