// Sessions of MQTT's clients: the list, and one with its subscriptions.

import { get, me, path, remove } from "./api.js";
import { badge, empty, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { confirm, toast } from "./forms.js";
import { duration, number } from "./format.js";
import { table } from "./table.js";

export default function sessions(page) {
  return page.parts.length ? one(page, page.parts[0]) : list(page);
}

const stateOf = (row) => badge(row.connected ? "connected" : "away", row.connected ? "good" : "");

function list(page) {
  const shown = table(page, {
    caption: "MQTT sessions", path: "/api/console/sessions", noun: "session",
    none: empty("No sessions yet", "Each client of MQTT has one, while it is connected and as long afterwards as it asks for."),
    columns: [
      { title: "Client", sort: "name", class: "name", cell: (row) => link(row.client_id, "sessions", row.client_id) },
      { title: "State", sort: "connected", cell: stateOf },
      { title: "User", sort: "user", wide: true, cell: (row) => row.user },
      { title: "Subscriptions", sort: "subscriptions", number: true, wide: true, cell: (row) => number(row.subscriptions) },
      { title: "Waiting", sort: "ready", number: true, cell: (row) => number(row.messages_ready) },
      { title: "In flight", number: true, wide: true, cell: (row) => number(row.messages_unacknowledged) },
    ],
  });
  fill(page.main, heading("MQTT sessions"), shown.element);
}

async function one(page, client) {
  const found = await get(path("sessions", client), {}, page.signal);
  const mayDelete = me.administrator || found.user === me.user;
  const drop = () => confirm({ title: `Delete the session of ${client}?`, action: "Delete", text: "Its subscriptions and what waits for it are removed. A client that is connected is disconnected.",
    work: async () => { await remove(path("sessions", client)); toast("The session is deleted."); page.go("#/sessions"); } });
  fill(page.main, heading(client, { kind: "MQTT session", copy: client, actions: mayDelete ? h("button", { type: "button", class: "danger", onclick: drop }, "Delete") : null }),
    section(null, facts([["State", stateOf(found)], ["User", found.user], ["Kept after its end", found.durable ? (found.expiry_ms === null ? "for ever" : duration(found.expiry_ms)) : "no"],
      ["Waiting", number(found.messages_ready)], ["In flight", number(found.messages_unacknowledged)]])),
    section("Subscriptions", plainTable("Subscriptions", [
      { title: "Filter", class: "name", cell: (row) => h("code", {}, row.filter) },
      { title: "QoS", number: true, cell: (row) => number(row.qos) },
    ], found.subscription_details, "It has no subscriptions")));
}
