/** Numbers, bytes, times and durations in readable form. */

const UNITS = ["B", "KB", "MB", "GB", "TB"];
/** Created on first use, because each takes a browser milliseconds. */
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

/** Return microseconds as a duration, in one or two units. */
export function duration(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 60_000_000) return milliseconds(us / 1000);
  const seconds = Math.round(us / 1_000_000);
  const minutes = Math.floor(seconds / 60) % 60;
  const [days, hours] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

/** Return how long ago a time was, in one unit. */
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

/** Return microseconds since 1970 as a date and time, in UTC or in the reader's time zone. */
export function time(us, { utc = false, digits = 3 } = {}) {
  const at = parts(us / 1000, utc);
  const fraction = String(((us % 1_000_000) + 1_000_000) % 1_000_000)
    .padStart(6, "0")
    .slice(0, digits);
  return `${at.year}-${at.month}-${at.day} ${at.hour}:${at.minute}:${at.second}${digits ? `.${fraction}` : ""}`;
}

/** Return the label of a tick, with the precision that ticks at this distance need. */
export function axisTime(ms, stepSeconds, utc) {
  const at = parts(ms, utc);
  if (stepSeconds >= 86_400) return `${at.month}-${at.day}`;
  const clock = stepSeconds < 60 ? `${at.hour}:${at.minute}:${at.second}` : `${at.hour}:${at.minute}`;
  return at.hour === "00" && at.minute === "00" && at.second === "00" ? `${at.month}-${at.day}` : clock;
}

/** Return microseconds since 1970 as ISO 8601 in UTC, as the API accepts them. */
export function iso(us) {
  const fraction = String(Math.floor(us % 1_000_000)).padStart(6, "0");
  return `${new Date(Math.floor(us / 1_000_000) * 1000).toISOString().slice(0, 19)}.${fraction}Z`;
}

/** Return the value of a cell as one line of text. */
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
