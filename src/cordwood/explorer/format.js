/** Numbers, bytes, times and durations as people read them. */

const UNITS = ["B", "KB", "MB", "GB", "TB"];
/** Made when first used: each takes a browser milliseconds. */
const formats = { whole: null, short: null };

export function count(number) {
  formats.whole ??= new Intl.NumberFormat("en");
  return formats.whole.format(number);
}

export function compact(number) {
  if (Math.abs(number) < 10_000) return count(round(number));
  formats.short ??= new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  return formats.short.format(number);
}

export function bytes(number) {
  let size = number;
  let unit = 0;
  while (size >= 1000 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size < 10 && unit ? size.toFixed(1) : Math.round(size)} ${UNITS[unit]}`;
}

export function milliseconds(number) {
  if (number < 1) return `${number.toFixed(1)} ms`;
  return number < 1000 ? `${Math.round(number)} ms` : `${(number / 1000).toFixed(number < 10_000 ? 2 : 1)} s`;
}

/** Microseconds as a length of time, in one or two units. */
export function duration(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 60_000_000) return milliseconds(us / 1000);
  const seconds = Math.round(us / 1_000_000);
  const minutes = Math.floor(seconds / 60) % 60;
  const [days, hours] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

/** How long ago, in one unit. */
export function ago(us, nowMs = Date.now()) {
  const seconds = Math.max(0, nowMs / 1000 - us / 1_000_000);
  const steps = [
    [60, 1, "s"],
    [3600, 60, "min"],
    [172_800, 3600, "h"],
    [Infinity, 86_400, "days"],
  ];
  const [, unit, name] = steps.find(([limit]) => seconds < limit);
  return `${Math.floor(seconds / unit)} ${name} ago`;
}

export function perSecond(number) {
  return number === 0 ? "0 /s" : `${number < 10 ? Number(number.toPrecision(2)) : compact(number)} /s`;
}

/** Microseconds since 1970 as a time of day with its date, in UTC or where the reader is. */
export function time(us, { utc = false, digits = 3 } = {}) {
  const at = parts(us / 1000, utc);
  const fraction = String(((us % 1_000_000) + 1_000_000) % 1_000_000)
    .padStart(6, "0")
    .slice(0, digits);
  return `${at.year}-${at.month}-${at.day} ${at.hour}:${at.minute}:${at.second}${digits ? `.${fraction}` : ""}`;
}

/** A label for an axis whose marks are so many seconds apart. */
export function axisTime(ms, stepSeconds, utc) {
  const at = parts(ms, utc);
  if (stepSeconds >= 86_400) return `${at.month}-${at.day}`;
  const clock = stepSeconds < 60 ? `${at.hour}:${at.minute}:${at.second}` : `${at.hour}:${at.minute}`;
  return at.hour === "00" && at.minute === "00" && at.second === "00" ? `${at.month}-${at.day}` : clock;
}

/** ISO 8601 in UTC with microseconds: what the API takes as a time. */
export function iso(us) {
  const fraction = String(Math.floor(us % 1_000_000)).padStart(6, "0");
  return `${new Date(Math.floor(us / 1_000_000) * 1000).toISOString().slice(0, 19)}.${fraction}Z`;
}

/** A value of a cell as one line of text. */
export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "object") return String(value);
  return JSON.stringify(value, (_, one) => (typeof one === "bigint" ? String(one) : one));
}

function parts(ms, utc) {
  const at = new Date(ms);
  const pad = (number) => String(number).padStart(2, "0");
  const read = (name) => (utc ? at[`getUTC${name}`]() : at[`get${name}`]());
  return {
    year: read("FullYear"),
    month: pad(read("Month") + 1),
    day: pad(read("Date")),
    hour: pad(read("Hours")),
    minute: pad(read("Minutes")),
    second: pad(read("Seconds")),
  };
}

function round(number) {
  return Number.isInteger(number) ? number : Number(number.toPrecision(4));
}
