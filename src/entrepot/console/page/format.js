// Numbers, sizes and times as people read them.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", year: "numeric" });

export function number(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  return value < 10_000 ? WHOLE.format(Math.round(value)) : SHORT.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  const text = value >= 100 ? short(value) : String(Math.round(value * 10) / 10);
  return `${text}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${place && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[place]}`;
}

export function byteRate(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

/** Show a number with one digit behind the point, and its unit. */
export function unit(value, name) {
  return value === null || value === undefined ? "–" : `${value.toFixed(1)} ${name}`;
}

export function time(ms) {
  return TIME.format(new Date(ms));
}

export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  return `${DATE.format(new Date(ms))}, ${TIME.format(new Date(ms))}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (!days) return `${hours} h${minutes ? ` ${minutes} min` : ""}`;
  return `${days} d${hours ? ` ${hours} h` : ""}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}
