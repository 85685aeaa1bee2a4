// Shows one message: what it is, what is in it (as JSON, text or bytes), and what one can do.

import { get, path } from "./api.js";
import { decodeAvro } from "./avro.js";
import { badge, facts, h } from "./dom.js";
import { bytes, moment } from "./format.js";
import { indented } from "./json.js";

const HEX_BYTES_MAX = 4096;
const FRAME_BYTES = 5; // A zero, and the number of a schema.
const PRETTY_CHARACTERS_MAX = 200_000;

/** Decode what the broker tells as `text` or `base64`. */
function dataOf(value) {
  if (value.text !== undefined) return new TextEncoder().encode(value.text);
  return Uint8Array.from(atob(value.base64), (character) => character.charCodeAt(0));
}

/** Return the ways to show a value; the first one is the best. What has a schema may have to wait. */
function ways(value) {
  const found = [];
  const data = dataOf(value);
  const number = schemaOf(data);
  if (number !== null) found.push([`Schema ${number}`, () => bySchema(number, data)]);
  if (value.text !== undefined) {
    const json = pretty(value.text);
    if (json !== null) found.push(["JSON", () => json]);
    found.push(["Text", () => value.text]);
  }
  found.push(["Hex", () => hex(data)]);
  return found;
}

const schemas = new Map(); // Number -> promise of {type, schema}; a number means the same for ever.

function schemaNumbered(number) {
  if (!schemas.has(number)) {
    const asked = get(path("console", "schemas", String(number)));
    asked.then((found) => found.type ?? schemas.delete(number), () => schemas.delete(number)); // It may be registered later.
    schemas.set(number, asked);
  }
  return schemas.get(number);
}

/** Decode a value by the schema that it names; show why not, and its bytes, if that fails. */
async function bySchema(number, data) {
  try {
    const { type, schema, why } = await schemaNumbered(number);
    if (type === "AVRO") return indented(JSON.stringify(decodeAvro(schema, data, FRAME_BYTES)));
    if (type === "JSON") return indented(new TextDecoder().decode(data.subarray(FRAME_BYTES)));
    if (type === null) throw new Error(`That is not known here: ${why}.`);
    return `It has the schema ${number}, of ${type}, which is not decoded here.\n\n${hex(data)}`;
  } catch (error) {
    return `It begins as a value with the schema ${number}. ${error.message}\n\n${hex(data)}`;
  }
}

function pretty(text) {
  if (text.length > PRETTY_CHARACTERS_MAX || !/^\s*[[{"\d\-tfn]/.test(text)) return null;
  try {
    return indented(text);
  } catch { // It is no JSON, or too deep.
    return null;
  }
}

/** Return the number of the schema in the framing that registries use: a zero, four bytes. */
function schemaOf(data) {
  if (data.length <= FRAME_BYTES || data[0] !== 0) return null;
  const number = new DataView(data.buffer, data.byteOffset).getUint32(1);
  return number > 0 && number < 1_000_000 ? number : null;
}

function hex(data) {
  const lines = [];
  for (let start = 0; start < Math.min(data.length, HEX_BYTES_MAX); start += 16) {
    const some = data.slice(start, start + 16);
    const numbers = [...some].map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const letters = [...some].map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${numbers.padEnd(47)}  ${letters}`);
  }
  if (data.length > HEX_BYTES_MAX) lines.push(`… the first ${HEX_BYTES_MAX} bytes`);
  return lines.join("\n");
}

/** Show a value with a choice of ways; `whole` fetches more of one that was cut. */
function body(value, whole) {
  if (value === null) return [h("p", { class: "hint" }, "No value: a tombstone.")];
  const content = h("pre", { tabindex: "0" });
  const all = ways(value);
  let chosen = 0;
  const show = async (number) => {
    chosen = number;
    const text = await all[number][1]();
    if (chosen !== number) return;
    content.textContent = text || "(empty)";
    content.classList.toggle("as-is", all[number][0] === "Hex");
  };
  const select = h("select", { "aria-label": "Show the value as", onchange: (event) => show(event.target.selectedIndex) },
    all.map(([name], number) => h("option", { value: number }, name)));
  show(0);
  const told = value.text !== undefined ? new TextEncoder().encode(value.text).length : dataOf(value).length;
  const isCut = told < value.bytes;
  const note = isCut ? h("p", { class: "hint" }, `The first ${bytes(told)} of ${bytes(value.bytes)}. `,
    whole ? h("button", { type: "button", onclick: () => whole() }, "Show more") : null) : null;
  return { select, parts: [content, note] };
}

/**
 * Show a message. `head` are texts and badges, `pairs` facts beside the value, `more` facts that
 * are folded away.
 */
export function message({ head, value, pairs = [], more = [], actions = [], whole }) {
  const shown = body(value, whole);
  const parts = Array.isArray(shown) ? shown : shown.parts;
  return h("article", { class: "message" },
    h("header", {}, head, value ? h("span", { class: "hint" }, bytes(value.bytes)) : null,
      h("div", { class: "actions" }, Array.isArray(shown) ? null : shown.select, actions)),
    parts,
    pairs.length ? facts(pairs) : null,
    more.length ? h("details", {}, h("summary", {}, "Properties and headers"), facts(more)) : null);
}

/** Show a text that may be long or bytes, in one line. */
export function inline(value) {
  if (value === null || value === undefined) return h("span", { class: "hint" }, "no key");
  const text = value.text ?? [...dataOf(value)].slice(0, 40).map((each) => each.toString(16).padStart(2, "0")).join(" ");
  return h("span", { class: "key-text" }, text.length > 300 ? `${text.slice(0, 300)}…` : text);
}

/** Show a message of a queue, as RabbitMQ's API tells it. */
export function queued(found, actions = []) {
  const value = found.payload_encoding === "string" ? { text: found.payload } : { base64: found.payload };
  value.bytes = found.payload_bytes;
  const { headers = {}, ...properties } = found.properties;
  const { "x-death": deaths, ...others } = headers;
  const death = Array.isArray(deaths) ? deaths[0] : undefined;
  const plain = (each) => (typeof each === "object" ? JSON.stringify(each) : String(each));
  return message({
    head: [h("strong", {}, `#${found.offset}`), h("span", {}, moment(found.time)),
      h("span", { class: "hint" }, `${found.exchange || "default exchange"} → ${found.routing_key}`),
      found.redelivered ? badge("delivered before", "warn") : null,
      death ? badge(`dead letter: ${death.reason}`, "bad") : null],
    value,
    pairs: death ? [["Died in", death.queue], ["Reason", death.reason], ["Times", String(death.count)],
      ["First", death.time ? moment(typeof death.time === "number" ? death.time * 1000 : Date.parse(death.time)) : "–"]] : [],
    more: [...Object.entries(properties), ...Object.entries(others)].map(([name, each]) => [name, plain(each)]),
    actions,
  });
}
