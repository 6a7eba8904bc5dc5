/** The data of charts: the series of an answer, their order and colours: the same name has the same colour everywhere. */

import { cell } from "./format.js";

const TONES = [
  [/^(5xx|5\d\d|error|err|severe|failed|failure)$/i, "error"],
  [/^(critical|crit|alert|emergency|emerg|fatal|panic)$/i, "fatal"],
  [/^(4xx|4\d\d|warning|warn)$/i, "warning"],
  [/^(3xx|3\d\d|notice)$/i, "notice"],
  [/^(2xx|2\d\d|ok|info|information|log|informational|success)$/i, "fine"],
  [/^(1xx|1\d\d|debug|trace|verbose|statement)$/i, "quiet"],
];
const ORDER = ["fatal", "error", "warning", "notice", "fine", "quiet"];
const HUES = 8;

export const OTHERS = "other";
export const NONE = "–";

/** Return names with their tones, most severe first; a name without a tone gets a hue by its position. */
export function toned(names) {
  const sorted = [...names].sort((one, two) => rank(one) - rank(two) || one.localeCompare(two));
  let hue = 0;
  return sorted.map((name) => {
    const tone = toneOf(name);
    if (tone) return { name, tone };
    hue += 1;
    return { name, tone: `hue${((hue - 1) % HUES) + 1}` };
  });
}

/** Return the tone of a level or a status; empty for other values. */
export function toneOf(value) {
  if (value === OTHERS || value === NONE) return "rest";
  const found = TONES.find(([pattern]) => pattern.test(String(value)));
  return found ? found[1] : "";
}

function rank(name) {
  const tone = toneOf(name);
  if (tone === "rest") return ORDER.length + 1;
  return tone ? ORDER.indexOf(tone) : ORDER.length;
}

/** Columns that only events have: a chart of events is drawn only on request. */
const OF_EVENTS = ["id", "event_message", "metadata"];
/** Numbers above this are taken for times: microseconds since 1970, of the year 1990 or later. */
const LEAST_US = 6e14;
const [MOST_SERIES, MOST_BARS] = [8, 40];

/** Group the columns by what they can be: {times, numbers, texts}; null if nothing can be drawn. */
export function kindsOf(rows, columns) {
  if (rows.length < 2) return null;
  const present = (name) => rows.map((row) => row[name]).filter((value) => value !== null && value !== undefined);
  const kind = (name) => {
    const values = present(name);
    if (!values.length) return "none";
    if (values.every((value) => msOf(value) !== null)) return "times";
    if (values.every((value) => typeof value === "number")) return "numbers";
    return values.every((value) => typeof value !== "object") ? "texts" : "none";
  };
  const found = { times: [], numbers: [], texts: [], none: [] };
  for (const name of columns) found[kind(name)].push(name);
  // A numeric column may also be the category, such as a status, but then another one must be drawn.
  return found.numbers.length && found.times.length + found.texts.length + found.numbers.length > 1 ? found : null;
}

export function isOfEvents(columns) {
  return columns.some((name) => OF_EVENTS.includes(name));
}

/** Choose the columns to draw: those wished for if the answer has them, otherwise the most likely ones. */
export function chosen(rows, kinds, wished) {
  const axes = [...kinds.times, ...kinds.texts, ...kinds.numbers];
  const x = axes.includes(wished.x) ? wished.x : axes[0];
  const numbers = kinds.numbers.filter((name) => name !== x);
  const y = numbers.includes(wished.y) ? wished.y : "";
  const groups = [...kinds.texts, ...kinds.numbers].filter((name) => name !== x && name !== y);
  const isParted = new Set(rows.map((row) => cell(row[x]))).size === rows.length;
  const usual = isParted ? "" : (kinds.texts.find((name) => name !== x) ?? "");
  const group = wished.group === "-" ? "" : groups.includes(wished.group) ? wished.group : usual;
  const isTime = kinds.times.includes(x);
  return { x, y: group && !y ? numbers.find((name) => name !== group) : y, group, axes, numbers, groups, isTime };
}

/** Return the series: {series: [{name, tone, points: Map from positions on the axis to numbers}], places, notes}. */
export function seriesOf(rows, { x, y, group, numbers, isTime }) {
  const at = isTime ? (row) => msOf(row[x]) : (row) => cell(row[x]) || "–";
  const found = new Map();
  let isAdded = false;
  const add = (name, place, value) => {
    if (place === null || typeof value !== "number") return;
    const points = found.get(name) ?? found.set(name, new Map()).get(name);
    isAdded ||= points.has(place);
    points.set(place, (points.get(place) ?? 0) + value);
  };
  for (const row of rows) {
    if (group) add(cell(row[group]) || "–", at(row), row[y]);
    else for (const name of y ? [y] : numbers) add(name, at(row), row[name]);
  }
  const largest = [...found].sort(([, one], [, other]) => sum(other) - sum(one)).slice(0, MOST_SERIES);
  const kept = new Map(largest);
  const series = toned(kept.keys()).map((one) => ({ ...one, points: kept.get(one.name) }));
  const { places, cut } = placesOf(series, isTime);
  const notes = [
    found.size > kept.size ? `The ${kept.size} largest of ${found.size} groups.` : "",
    cut ? `The first ${MOST_BARS} of ${cut} values of ${x}.` : "",
    isAdded ? `Rows with the same ${group ? `${x} and ${group}` : x} are added up.` : "",
  ];
  return { series, places, notes: notes.filter(Boolean) };
}

/** Return the positions on the axis: times in ascending order, categories in the order of the rows. */
function placesOf(series, isTime) {
  const places = [...new Set(series.flatMap(({ points }) => [...points.keys()]))];
  if (isTime) return { places: places.sort((one, other) => one - other), cut: 0 };
  return { places: places.slice(0, MOST_BARS), cut: places.length > MOST_BARS ? places.length : 0 };
}

/** Return the milliseconds of a TIMESTAMP in microseconds, or of a DATETIME or DATE as text; null for other values. */
export function msOf(value) {
  if (typeof value === "number") return value > LEAST_US ? value / 1000 : null;
  if (typeof value !== "string" || !/^\d{4}-\d\d-\d\d(T[\d:.]+)?$/.test(value)) return null;
  const ms = Date.parse(value.length > 10 ? `${value.slice(0, 23)}Z` : value);
  return Number.isNaN(ms) ? null : ms;
}

function sum(points) {
  return [...points.values()].reduce((total, one) => total + Math.abs(one), 0);
}
