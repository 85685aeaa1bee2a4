// mqtt.js over the transport and in the version that it is told: `node features.js ws 5`.
// Prints PASS or FAIL for each feature; `--list` prints their names.
"use strict";
const assert = require("node:assert");
const mqtt = require("mqtt");

const [transport, version] = process.argv.slice(2);
const protocolVersion = { 3.1: 3, "3.1.1": 4, 5: 5 }[version];
const run = `${transport}-${version}-${process.pid}`;
const WAIT_MS = 20000;

function options(clientId, extra = {}) {
  const all = { protocolVersion, clientId: `${clientId}-${run}`, reconnectPeriod: 0, clean: true, ...extra };
  if (protocolVersion === 3) all.protocolId = "MQIsdp";
  return all;
}
async function connect(clientId, extra) {
  const url = transport === "ws" ? process.env.WS_URL : process.env.MQTT_URL;
  const client = await mqtt.connectAsync(url, options(clientId, extra), false);
  client.got = [];
  client.waiting = [];
  client.on("message", (topic, payload, packet) => {
    client.got.push({ topic, payload, packet });
    client.waiting = client.waiting.filter((each) => !each());
  });
  return client;
}
function messages(client, count) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${client.got.length} of ${count} came`)), WAIT_MS);
    const look = () => {
      if (client.got.length < count) return false;
      clearTimeout(timer);
      resolve(client.got);
      return true;
    };
    if (!look()) client.waiting.push(look);
  });
}
const texts = (got) => got.map((each) => each.payload.toString());
const kept = (extra) =>
  protocolVersion === 5
    ? { clean: false, properties: { sessionExpiryInterval: 600 }, ...extra }
    : { clean: false, ...extra };

const features = {
  "QoS 0, 1 and 2, each to each": async () => {
    const client = await connect("qos");
    for (const wanted of [0, 1, 2]) {
      await client.subscribeAsync(`${run}/qos/${wanted}/+`, { qos: wanted });
      for (const sent of [0, 1, 2]) await client.publishAsync(`${run}/qos/${wanted}/${sent}`, "x", { qos: sent });
    }
    for (const { topic, packet } of await messages(client, 9)) {
      const [wanted, sent] = topic.split("/").slice(-2).map(Number);
      assert.equal(packet.qos, Math.min(wanted, sent), topic);
    }
    await client.endAsync();
  },
  "a thousand messages of QoS 2, in order": async () => {
    const client = await connect("many");
    await client.subscribeAsync(`${run}/many`, { qos: 2 });
    const all = [];
    for (let n = 0; n < 1000; n++) all.push(client.publishAsync(`${run}/many`, String(n), { qos: 2 }));
    await Promise.all(all);
    assert.deepEqual(texts(await messages(client, 1000)), [...Array(1000).keys()].map(String));
    await client.endAsync();
  },
  "a payload of a megabyte": async () => {
    const client = await connect("large");
    const body = Buffer.alloc(1 << 20, "entrepot");
    await client.subscribeAsync(`${run}/large`, { qos: 1 });
    await client.publishAsync(`${run}/large`, body, { qos: 1 });
    assert.ok((await messages(client, 1))[0].payload.equals(body));
    await client.endAsync();
  },
  "a session keeps what came meanwhile": async () => {
    const first = await connect("session", kept());
    await first.subscribeAsync(`${run}/session`, { qos: 1 });
    await first.endAsync();
    const other = await connect("other");
    for (const text of ["a", "b", "c"]) await other.publishAsync(`${run}/session`, text, { qos: 1 });
    await other.endAsync();
    let present;
    const again = await new Promise((resolve, reject) => {
      const url = transport === "ws" ? process.env.WS_URL : process.env.MQTT_URL;
      const client = mqtt.connect(url, options("session", kept()));
      const got = [];
      client.on("message", (topic, payload) => {
        got.push(payload.toString());
        if (got.length === 3) resolve({ client, got });
      });
      client.on("connect", (connack) => (present = connack.sessionPresent));
      client.on("error", reject);
      setTimeout(() => reject(new Error(`${got} came`)), WAIT_MS);
    });
    assert.equal(present, version !== "3.1"); // That version has no such flag.
    assert.deepEqual(again.got, ["a", "b", "c"]);
    await again.client.endAsync();
  },
  "a will when the connection breaks, and none after a good bye": async () => {
    const witness = await connect("witness");
    await witness.subscribeAsync(`${run}/will/+`, { qos: 1 });
    const will = (name) => ({ will: { topic: `${run}/will/${name}`, payload: Buffer.from("gone"), qos: 1, retain: false } });
    const polite = await connect("polite", will("polite"));
    await polite.endAsync();
    const broken = await connect("broken", will("broken"));
    broken.stream.destroy();
    const got = await messages(witness, 1);
    assert.equal(got[0].topic, `${run}/will/broken`);
    broken.end(true);
    await witness.endAsync();
  },
  "a retained message, and none when it is cleared": async () => {
    const client = await connect("retained");
    await client.publishAsync(`${run}/retained`, "still", { qos: 1, retain: true });
    await client.subscribeAsync(`${run}/retained`, { qos: 1 });
    const [first] = await messages(client, 1);
    assert.equal(first.packet.retain, true);
    await client.publishAsync(`${run}/retained`, "", { qos: 1, retain: true });
    await messages(client, 2);
    await client.unsubscribeAsync(`${run}/retained`);
    await client.subscribeAsync(`${run}/retained`, { qos: 1 });
    await client.publishAsync(`${run}/retained`, "live", { qos: 1 });
    const got = await messages(client, 3);
    assert.equal(got[2].packet.retain, false);
    await client.endAsync();
  },
  "wildcards, and a filter that is given up": async () => {
    const client = await connect("wildcards");
    await client.subscribeAsync([`${run}/w/+/heat`, `${run}/w/#`], { qos: 1 });
    await client.publishAsync(`${run}/w/1/heat`, "one", { qos: 1 });
    await messages(client, 1);
    await client.unsubscribeAsync(`${run}/w/#`);
    await client.publishAsync(`${run}/w/1/cold`, "none", { qos: 1 });
    await client.publishAsync(`${run}/w/2/heat`, "two", { qos: 1 });
    const got = texts(await messages(client, 2));
    assert.deepEqual([got[0], got[got.length - 1]], ["one", "two"]);
    assert.ok(!got.includes("none"));
    await client.endAsync();
  },
  "a client that is taken over": async () => {
    const first = await connect("twice");
    const closed = new Promise((resolve) => first.on("close", resolve));
    const second = await connect("twice");
    await closed;
    await second.publishAsync(`${run}/twice`, "x", { qos: 1 });
    await second.endAsync();
    first.end(true);
  },
  "keep-alive over some intervals": async () => {
    const client = await connect("alive", { keepalive: 1 });
    await new Promise((resolve) => setTimeout(resolve, 3500));
    assert.equal(client.connected, true);
    await client.endAsync();
  },
};
if (protocolVersion === 5) {
  features["user properties, content type, response topic, correlation data"] = async () => {
    const client = await connect("properties");
    await client.subscribeAsync(`${run}/properties`, { qos: 1, properties: { subscriptionIdentifier: 7 } });
    const properties = {
      userProperties: { a: ["1", "2"], b: "3" },
      contentType: "text/plain",
      responseTopic: `${run}/answer`,
      correlationData: Buffer.from([1, 2, 3]),
      payloadFormatIndicator: true,
      messageExpiryInterval: 60,
    };
    await client.publishAsync(`${run}/properties`, "x", { qos: 1, properties });
    const found = (await messages(client, 1))[0].packet.properties;
    assert.deepEqual({ ...found.userProperties }, properties.userProperties);
    assert.equal(found.contentType, "text/plain");
    assert.equal(found.responseTopic, properties.responseTopic);
    assert.ok(found.correlationData.equals(properties.correlationData));
    assert.equal(found.subscriptionIdentifier, 7);
    await client.endAsync();
  };
  features["a shared subscription deals out"] = async () => {
    const members = await Promise.all(["one", "two"].map((name) => connect(`share-${name}`)));
    for (const each of members) await each.subscribeAsync(`$share/g-${run}/${run}/shared`, { qos: 1 });
    for (let n = 0; n < 20; n++) await members[0].publishAsync(`${run}/shared`, String(n), { qos: 1 });
    const until = Date.now() + WAIT_MS;
    while (members[0].got.length + members[1].got.length < 20 && Date.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 20));
    const all = members.flatMap((each) => texts(each.got)).map(Number).sort((a, b) => a - b);
    assert.deepEqual(all, [...Array(20).keys()]);
    for (const each of members) await each.endAsync();
  };
  features["topic aliases"] = async () => {
    const client = await connect("alias", { autoAssignTopicAlias: true, properties: { topicAliasMaximum: 10 } });
    await client.subscribeAsync(`${run}/alias/#`, { qos: 1 });
    for (let n = 0; n < 6; n++) await client.publishAsync(`${run}/alias/${n % 2}`, String(n), { qos: 1 });
    const got = await messages(client, 6);
    assert.deepEqual(got.map((each) => each.topic), [0, 1, 2, 3, 4, 5].map((n) => `${run}/alias/${n % 2}`));
    await client.endAsync();
  };
  features["a refused topic has a reason"] = async () => {
    const client = await connect("refused");
    await assert.rejects(client.publishAsync("$SYS/mine", "x", { qos: 1 }), /Not authorized/i);
    await client.endAsync();
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
