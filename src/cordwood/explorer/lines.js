/** Rows with a time column as lines, a line for each column of numbers. */

import { timeAxis, timeMarks, valueAxis, valueMarks } from "./axes.js";
import { h, put, svg } from "./dom.js";
import { cell, compact } from "./format.js";
import { toned } from "./series.js";

const HEIGHT = 240;
const MARGIN = { top: 10, right: 26, bottom: 22, left: 52 };
const OF_EVENTS = ["id", "event_message", "metadata"];
/** Microseconds of any plausible log: from 1990 on. */
const LEAST_US = 6e14;

/** What can be drawn of these rows: a time column and columns of numbers; null when that is nothing, or events. */
export function plotOf(rows, columns) {
  if (rows.length < 2 || columns.some((name) => OF_EVENTS.includes(name))) return null;
  const timeColumn = columns.find((name) => rows.every((row) => msOf(row[name]) !== null));
  const values = columns.filter(
    (name) => name !== timeColumn && rows.every((row) => row[name] === null || typeof row[name] === "number"),
  );
  if (timeColumn && new Set(rows.map((row) => row[timeColumn])).size < rows.length) return null;
  const drawn = values.filter((name) => rows.some((row) => row[name] !== null));
  return timeColumn && drawn.length ? { timeColumn, values: drawn } : null;
}

export function lineChart(rows, plot, utc) {
  const frame = h("div", { class: "chart lines" });
  const draw = () => frame.clientWidth && put(frame, picture(rows, plot, utc, frame.clientWidth));
  new ResizeObserver(draw).observe(frame);
  return h("figure", { class: "line-chart" }, frame, legend(plot));
}

/** A TIMESTAMP in microseconds, or a DATETIME or DATE as text, in milliseconds. */
export function msOf(value) {
  if (typeof value === "number") return value > LEAST_US ? value / 1000 : null;
  if (typeof value !== "string" || !/^\d{4}-\d\d-\d\d(T[\d:.]+)?$/.test(value)) return null;
  const ms = Date.parse(value.length > 10 ? `${value.slice(0, 23)}Z` : value);
  return Number.isNaN(ms) ? null : ms;
}

function picture(rows, plot, utc, width) {
  const points = rows.map((row) => ({ at: msOf(row[plot.timeColumn]), row })).sort((one, two) => one.at - two.at);
  const [from, to] = [points[0].at, points.at(-1).at];
  const marks = valueMarks(Math.max(...points.flatMap(({ row }) => plot.values.map((name) => row[name] ?? 0))), 4);
  const x = (at) => MARGIN.left + ((at - from) / (to - from || 1)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => HEIGHT - MARGIN.bottom - (value / marks.at(-1)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const label = `${plot.values.join(", ")} by ${plot.timeColumn}`;
  const drawn = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": label });
  drawn.append(...valueAxis(marks, y, MARGIN.left, width - MARGIN.right).flat());
  drawn.append(...timeAxis(timeMarks(from, to, Math.max(2, Math.floor(width / 120)), utc), x, HEIGHT));
  drawn.append(...toned(plot.values).flatMap((series) => line(points, series, x, y, plot)));
  return drawn;
}

function line(points, { name, tone }, x, y, plot) {
  const present = points.filter(({ row }) => row[name] !== null);
  const places = present.map(({ at, row }) => `${x(at).toFixed(1)},${y(row[name]).toFixed(1)}`);
  const dots = present.map(({ at, row }) =>
    svg(
      "circle",
      { class: `tone-${tone}`, cx: x(at), cy: y(row[name]), r: present.length > 60 ? 1.5 : 3 },
      svg("title", {}, `${cell(row[plot.timeColumn])}  ${name}: ${compact(row[name])}`),
    ),
  );
  return [svg("polyline", { class: `stroke-${tone}`, points: places.join(" ") }), ...dots];
}

function legend(plot) {
  return h(
    "figcaption",
    { class: "legend" },
    toned(plot.values).map(({ name, tone }) =>
      h("span", { class: "legend-entry" }, h("span", { class: `dot tone-${tone}` }), name),
    ),
  );
}
