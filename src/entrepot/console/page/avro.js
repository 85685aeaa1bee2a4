// Decodes Avro: a value and the text of its schema become what JSON can show.
//
// Both come from strangers. So how deep it goes and how much it makes is bounded.

const DEPTH_MAX = 64;
const ITEMS_MAX = 100_000;
const DECIMAL_BYTES_MAX = 64;
const SCALE_MAX = 200;
const PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

/** Decode a value from the place where it begins. Throws an Error that says what is wrong. */
export function decodeAvro(text, data, start = 0) {
  const names = new Map();
  const schema = resolve(JSON.parse(text), "", names, 0);
  const reader = new Reader(data, start);
  const value = read(schema, reader, names, 0);
  if (reader.place !== data.length) throw new Error(`${data.length - reader.place} bytes are left over.`);
  return value;
}

/** Return the schema with full names, and note those that it defines. */
function resolve(schema, space, names, depth) {
  if (depth > DEPTH_MAX) throw new Error("The schema is too deep.");
  const inner = (each, where = space) => resolve(each, where, names, depth + 1);
  if (Array.isArray(schema)) return { type: "union", of: schema.map((each) => inner(each)) };
  if (typeof schema === "string") return PRIMITIVES.includes(schema) ? { type: schema } : { type: "named", name: full(schema, space) };
  if (schema === null || typeof schema !== "object") throw new Error("The schema is none of Avro.");
  if (typeof schema.type === "object") return inner(schema.type);
  const { type } = schema;
  if (["record", "error", "enum", "fixed"].includes(type)) {
    const name = full(schema.name, schema.namespace ?? space);
    const made = { ...schema, name };
    names.set(name, made);
    const within = name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : "";
    if (schema.fields) made.fields = schema.fields.map((each) => ({ name: each.name, type: inner(each.type, within) }));
    return made;
  }
  if (type === "array") return { type, items: inner(schema.items) };
  if (type === "map") return { type, values: inner(schema.values) };
  return PRIMITIVES.includes(type) ? schema : inner(type);
}

function full(name, space) {
  if (typeof name !== "string") throw new Error("The schema is none of Avro.");
  return name.includes(".") || !space ? name : `${space}.${name}`;
}

class Reader {
  constructor(data, place) {
    this.data = data;
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    this.place = place;
    this.items = 0;
  }

  take(count) {
    const begun = this.place;
    if (count < 0 || begun + count > this.data.length) throw new Error("The value is shorter than its schema says.");
    this.place += count;
    return begun;
  }

  bytes(count) {
    const begun = this.take(count);
    return this.data.subarray(begun, begun + count);
  }

  long() {
    let found = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.data[this.take(1)];
      found |= BigInt(byte & 127) << shift;
      if (byte < 128) return (found >> 1n) ^ -(found & 1n);
    }
    throw new Error("A number is too long.");
  }

  count() {
    const found = this.long();
    if (found > BigInt(this.data.length) * 8n + BigInt(ITEMS_MAX) || found < -(2n ** 40n)) throw new Error("A length is impossible.");
    return Number(found);
  }

  note() {
    this.items += 1;
    if (this.items > ITEMS_MAX) throw new Error("There are too many values in it.");
  }
}

function read(schema, reader, names, depth) {
  if (depth > DEPTH_MAX) throw new Error("The value is too deep.");
  reader.note();
  const inner = (each) => read(each, reader, names, depth + 1);
  switch (schema.type) {
    case "null": return null;
    case "boolean": return reader.data[reader.take(1)] !== 0;
    case "int": case "long": return logical(schema, reader.long());
    case "float": return reader.view.getFloat32(reader.take(4), true);
    case "double": return reader.view.getFloat64(reader.take(8), true);
    case "bytes": return binary(schema, reader.bytes(reader.count()));
    case "fixed": return binary(schema, reader.bytes(schema.size));
    case "string": return new TextDecoder().decode(reader.bytes(reader.count()));
    case "enum": return member(schema.symbols, reader);
    case "union": return inner(member(schema.of, reader));
    case "array": return blocks(reader, () => inner(schema.items));
    case "map": return Object.fromEntries(blocks(reader, () => [new TextDecoder().decode(reader.bytes(reader.count())), inner(schema.values)]));
    case "named":
      if (!names.has(schema.name)) throw new Error(`The schema refers to ${schema.name}, which is not in it.`);
      return inner(names.get(schema.name));
    case "record": case "error":
      return Object.fromEntries(schema.fields.map((field) => [field.name, inner(field.type)]));
    default: throw new Error(`The schema has a type ${schema.type}.`);
  }
}

function member(all, reader) {
  const place = reader.count();
  if (place < 0 || place >= all.length) throw new Error("A value is none of its schema's choices.");
  return all[place];
}

function blocks(reader, one) {
  const found = [];
  for (;;) {
    let count = reader.count();
    if (count === 0) return found;
    if (count < 0) {
      reader.long(); // The bytes of the block, for those who skip it.
      count = -count;
    }
    for (; count > 0; count -= 1) found.push(one());
  }
}

function logical({ logicalType }, value) {
  const ms = { date: (days) => days * 86_400_000n, "timestamp-millis": (each) => each, "timestamp-micros": (each) => each / 1000n }[logicalType];
  if (ms) {
    const moment = new Date(Number(ms(value)));
    if (!Number.isNaN(moment.getTime())) return logicalType === "date" ? moment.toISOString().slice(0, 10) : moment.toISOString();
  }
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
}

function binary({ logicalType, scale = 0 }, data) {
  const hex = [...data].map((each) => each.toString(16).padStart(2, "0")).join("");
  const isNumber = logicalType === "decimal" && data.length && data.length <= DECIMAL_BYTES_MAX && scale >= 0 && scale <= SCALE_MAX;
  if (!isNumber) return hex;
  const digits = String(BigInt.asIntN(data.length * 8, BigInt(`0x${hex}`)));
  const sign = digits.startsWith("-") ? "-" : "";
  const whole = digits.slice(sign.length).padStart(scale + 1, "0");
  return scale ? `${sign}${whole.slice(0, -scale)}.${whole.slice(-scale)}` : digits;
}
