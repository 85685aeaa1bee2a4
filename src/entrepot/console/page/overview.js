// What is in the broker, and what happens now.

import { get, me } from "./api.js";
import { chart } from "./chart.js";
import { badge, empty, facts, fill, h, heading, link, plainTable, section } from "./dom.js";
import { byteRate, bytes, number, plural, rate, short, time, unit } from "./format.js";
import { watch } from "./live.js";

const TITLES = {
  kafka: "Kafka", amqp: "AMQP", mqtt: "MQTT", stomp: "STOMP", http: "HTTP", sqs: "SQS", bridge: "Bridges",
};

/** Add up what is known of a rate over all protocols; the first sample knows nothing. */
const total = (name) => (sample) => {
  const known = Object.values(sample.protocols).map((each) => each[name] ?? null).filter((each) => each !== null);
  return known.length ? known.reduce((sum, each) => sum + each, 0) : null;
};

export default async function overview(page) {
  const title = heading("Overview", { kind: me.node ? `${me.node} · version ${me.version}` : null });
  if (!me.monitor && !me.administrator) return forOthers(page, title);
  const tiles = h("div", { class: "tiles" });
  const alarms = h("div", { class: "alarms", role: "status", "aria-live": "polite" });
  const protocols = h("div");
  const feed = h("ol", { class: "feed" });
  const charts = [
    chart({ title: "Messages", show: rate, series: [
      { name: "in", class: "a", value: total("in") }, { name: "out", class: "b", value: total("out") }] }),
    chart({ title: "Bytes", show: byteRate, series: [
      { name: "in", class: "a", value: total("bytes_in") }, { name: "out", class: "b", value: total("bytes_out") }] }),
    chart({ title: "Backlog", show: short, series: [
      { name: "ready", class: "a", value: (sample) => sample.ready }, { name: "unacked", class: "b", value: (sample) => sample.unacked }] }),
    chart({ title: "Connections", show: short, series: [{ name: "open", class: "a", value: (sample) => sample.connections }] }),
    chart({ title: "Commits", show: rate, series: [{ name: "in a second", class: "a", value: (sample) => sample.commits }] }),
    chart({ title: "Time of a commit", show: (value) => unit(value, "ms"), series: [{ name: "ms", class: "b", value: (sample) => sample.commit_ms }] }),
    chart({ title: "Processor", show: (value) => unit(value, "%"), series: [{ name: "of a core", class: "a", value: ({ cpu }) => cpu && cpu * 100 }] }),
    chart({ title: "Memory", show: bytes, series: [{ name: "used", class: "a", value: (sample) => sample.memory }] }),
  ];
  fill(page.main, title, alarms, tiles,
    h("div", { class: "charts" }, charts.map((each) => each.element)),
    h("div", { class: "columns" }, section("By protocol", protocols), section("What just happened",
      h("div", { class: "scrolled", tabindex: "0", role: "log", "aria-label": "What just happened", "aria-live": "off" }, feed))));
  drawTiles(tiles, null);
  let last = 0;
  watch(page.signal, ({ samples, lines }) => {
    const sample = samples.at(-1);
    if (sample) {
      charts.forEach((each) => each.draw(samples));
      drawTiles(tiles, sample);
      drawAlarms(alarms, sample);
      drawProtocols(protocols, sample);
    }
    if ((lines.at(-1)?.[0] ?? 0) !== last) {
      last = lines.at(-1)[0];
      drawFeed(feed, lines);
    }
    if (!lines.length) fill(feed, h("li", { class: "hint" }, "Nothing yet."));
  });
}

function drawTiles(tiles, sample) {
  const tile = (name, value, ...parts) => h("a", { class: "tile", href: `#/${parts.join("/")}` },
    h("span", { class: "tile-value" }, value), h("span", { class: "tile-name" }, name));
  const at = (name, show = number) => (sample ? show(sample[name]) : "–");
  const free = sample?.disk_size ? `on disk, ${bytes(sample.disk_free)} free` : "on disk";
  fill(tiles,
    me.clustered ? tile("nodes", at("nodes"), "cluster") : null,
    me.queues ? [tile("messages ready", at("ready"), "queues"), tile("unacknowledged", at("unacked"), "queues"), tile("queues", at("queues"), "queues")] : null,
    tile("topics", at("topics"), "topics"),
    tile("partitions", at("partitions"), me.clustered ? "cluster" : "storage"),
    tile("connections", at("connections"), "connections"),
    tile(free, at("log_bytes", bytes), "storage"));
}

function drawAlarms(alarms, sample) {
  const found = [...sample.alarms];
  if (sample.errors) found.push(`${plural(sample.errors, "mistake")} of the broker's own since its start. The log has more.`);
  const text = found.join("\n");
  if (alarms.dataset.text === text) return; // A screen reader hears what is new, once.
  alarms.dataset.text = text;
  fill(alarms, found.map((each) => h("p", { class: "banner bad" }, each)));
}

function drawProtocols(element, sample) {
  const rows = Object.entries(sample.protocols).map(([name, each]) => ({ name, ...each }));
  const columns = [
    { title: "Protocol", cell: (row) => titleOf(row.name) },
    { title: "Connections", number: true, cell: (row) => number(row.connections) },
    { title: "In", number: true, cell: (row) => rate(row.in) },
    { title: "Out", number: true, cell: (row) => rate(row.out) },
    { title: "Bytes in", number: true, wide: true, cell: (row) => byteRate(row.bytes_in) },
    { title: "Bytes out", number: true, wide: true, cell: (row) => byteRate(row.bytes_out) },
  ];
  fill(element, plainTable("Rates by protocol", columns, rows),
    h("p", { class: "hint" }, "Kafka's consumers fetch ranges of files, so what goes out there is counted in bytes."));
}

function titleOf(name) {
  const [protocol, tls] = name.split("_");
  return `${TITLES[protocol] ?? protocol}${tls ? " over TLS" : ""}`;
}

function drawFeed(feed, lines) {
  const newest = lines.slice(-100).reverse();
  fill(feed, newest.map(([, at, level, part, text]) => h("li", { class: level },
    h("time", { datetime: new Date(at).toISOString() }, time(at)),
    badge(part, level === "info" ? "" : level === "warning" ? "warn" : "bad"), h("span", {}, text))));
}

/** Show what somebody sees who may not describe the broker as a whole. */
async function forOthers(page, title) {
  const found = await get("/api/overview", {}, page.signal);
  const counts = found.queue_totals;
  fill(page.main, title,
    section("What you may see", facts([
      ["Queues and streams", number(found.object_totals.queues)],
      ["Messages ready", number(counts.messages_ready)],
      ["Unacknowledged", number(counts.messages_unacknowledged)],
    ]), h("p", {}, link("Your queues", "queues"), " · ", link("Your topics", "topics"))),
    empty("Charts are for monitors", "They show the broker as a whole. An administrator can give your user the right to describe the cluster."));
}
