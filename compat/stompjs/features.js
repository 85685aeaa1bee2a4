// @stomp/stompjs over WebSocket, in the version that it is told: `node features.js 1.2`.
// Prints PASS or FAIL for each feature; `--list` prints their names.
"use strict";
const assert = require("node:assert");
const { WebSocket } = require("ws");
const { Client, Versions } = require("@stomp/stompjs");

const [version] = process.argv.slice(2);
const run = `${version}-${process.pid}`;
const WAIT_MS = 20000;

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing came`)), WAIT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
function connect(extra = {}) {
  const client = new Client({
    stompVersions: new Versions([version]),
    webSocketFactory: () => new WebSocket(process.env.WS_URL, [`v${version.replace(".", "")}.stomp`]),
    reconnectDelay: 0,
    heartbeatIncoming: 0,
    heartbeatOutgoing: 0,
    ...extra,
  });
  const opened = new Promise((resolve, reject) => {
    client.onConnect = () => resolve(client);
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.onWebSocketError = (event) => reject(new Error(event.message));
  });
  client.activate();
  return within(opened, "CONNECTED");
}
function collect(client, destination, headers = {}) {
  const got = [], waiting = [];
  const subscription = client.subscribe(destination, (message) => {
    got.push(message);
    waiting.splice(0).forEach((look) => look());
  }, headers);
  const wait = (count) => within(new Promise((resolve) => {
    const look = () => (got.length >= count ? resolve(got) : waiting.push(look));
    look();
  }), `${count} messages`);
  return { got, wait, subscription };
}
function receipt(client, action) {
  const id = `r-${Math.random()}`;
  const promise = new Promise((resolve) => client.watchForReceipt(id, resolve));
  action({ receipt: id });
  return within(promise, "RECEIPT");
}
const bodies = (got) => got.map((each) => each.body);

const features = {
  "a queue": async () => {
    const client = await connect();
    const destination = `/queue/a-${run}`;
    for (const body of ["one", "zwölf"]) await receipt(client, (headers) => client.publish({ destination, body, headers }));
    assert.deepEqual(bodies(await collect(client, destination).wait(2)), ["one", "zwölf"]);
    await client.deactivate();
  },
  "a topic, to all who listen": async () => {
    const clients = await Promise.all([connect(), connect()]);
    const destination = `/topic/b.${run}`;
    const listeners = clients.map((each) => collect(each, destination));
    for (const each of clients) await receipt(each, (headers) => each.publish({ destination: `/queue/x-${run}`, body: "", headers }));
    clients[0].publish({ destination, body: "news" });
    for (const each of listeners) assert.deepEqual(bodies(await each.wait(1)), ["news"]);
    for (const each of clients) await each.deactivate();
  },
  "a thousand messages, in order": async () => {
    const client = await connect();
    const destination = `/queue/many-${run}`;
    const listener = collect(client, destination);
    for (let n = 0; n < 1000; n++) client.publish({ destination, body: String(n) });
    assert.deepEqual(bodies(await listener.wait(1000)), [...Array(1000).keys()].map(String));
    await client.deactivate();
  },
  "acknowledged one by one, and given back": async () => {
    const client = await connect();
    const destination = `/queue/ack-${run}`;
    for (const body of ["one", "two"]) client.publish({ destination, body });
    const mode = version === "1.0" ? "client" : "client-individual";
    const got = await collect(client, destination, { ack: mode }).wait(2);
    await receipt(client, (headers) => got[0].ack(headers));
    await client.deactivate();
    const again = await connect();
    assert.deepEqual(bodies(await collect(again, destination).wait(1)), ["two"]);
    await again.deactivate();
  },
  "a transaction that is committed, and one that is not": async () => {
    const client = await connect();
    const destination = `/queue/tx-${run}`;
    const listener = collect(client, destination);
    const lost = client.begin();
    client.publish({ destination, body: "lost", headers: { transaction: lost.id } });
    lost.abort();
    const kept = client.begin();
    for (const body of ["a", "b"]) client.publish({ destination, body, headers: { transaction: kept.id } });
    kept.commit();
    assert.deepEqual(bodies(await listener.wait(2)), ["a", "b"]);
    await client.deactivate();
  },
  "bytes that are no text": async () => {
    const client = await connect();
    const destination = `/queue/bytes-${run}`;
    const listener = collect(client, destination);
    const binaryBody = new Uint8Array([0, 1, 255, 0, 254]);
    client.publish({ destination, binaryBody });
    assert.deepEqual([...(await listener.wait(1))[0].binaryBody], [...binaryBody]);
    await client.deactivate();
  },
  "a body of a megabyte": async () => {
    const client = await connect({ splitLargeFrames: true, maxWebSocketChunkSize: 8192 });
    const destination = `/queue/large-${run}`;
    const listener = collect(client, destination);
    const body = "entrepot".repeat(1 << 17);
    client.publish({ destination, body });
    assert.equal((await listener.wait(1))[0].body, body);
    await client.deactivate();
  },
  "headers": async () => {
    const client = await connect();
    const destination = `/queue/headers-${run}`;
    const listener = collect(client, destination);
    const value = version === "1.2" ? "with:colon\nand line" : "plain"; // See FINDINGS.md.
    client.publish({ destination, body: "x", headers: { mine: value } });
    assert.equal((await listener.wait(1))[0].headers.mine, value);
    await client.deactivate();
  },
  "an error ends the connection": async () => {
    const client = await connect();
    const failed = new Promise((resolve) => (client.onStompError = resolve));
    client.publish({ destination: "nowhere", body: "" });
    assert.ok((await within(failed, "ERROR")).headers.message);
    await client.deactivate({ force: true });
  },
};
if (version !== "1.0") {
  features["heart-beats in both directions"] = async () => {
    const client = await connect({ heartbeatIncoming: 400, heartbeatOutgoing: 400 });
    await new Promise((resolve) => setTimeout(resolve, 2500));
    assert.equal(client.connected, true);
    await client.deactivate();
  };
}

async function main() {
  if (process.argv.includes("--list")) {
    console.log(Object.keys(features).join("\n"));
    return;
  }
  for (const [name, feature] of Object.entries(features)) {
    try {
      await feature();
      console.log(`PASS ${name}`);
    } catch (error) {
      console.log(`FAIL ${name}: ${String(error && error.message).replace(/\n/g, " ")}`);
    }
  }
  process.exit(0);
}
main();
