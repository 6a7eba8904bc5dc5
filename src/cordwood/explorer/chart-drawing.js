/** The drawing of charts: axes with round values, lines or stacked areas over time, and bars for categories. */

import { h, svg } from "./dom.js";
import { axisTime, compact, time } from "./format.js";

/** Return a few round values from zero to just above the largest. */
export function valueMarks(largest, most = 3) {
  if (largest <= 0) return [0, 1];
  const rough = largest / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const whole = Number.isInteger(largest) ? Math.max(1, Math.ceil(step)) : step;
  return Array.from({ length: Math.ceil(largest / whole) + 1 }, (_, place) => place * whole);
}

const TIME_STEPS = [
  1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 259_200, 604_800,
  2_592_000,
];

/** Return up to `most` tick times within a range in milliseconds, round on a clock in UTC or the local zone. */
export function timeMarks(fromMs, toMs, most, utc) {
  const seconds = (toMs - fromMs) / 1000;
  const step = TIME_STEPS.find((one) => seconds / one <= most) ?? TIME_STEPS.at(-1);
  const shift = utc ? 0 : new Date(toMs).getTimezoneOffset() * 60_000;
  const first = Math.ceil((fromMs - shift) / (step * 1000)) * step * 1000 + shift;
  const marks = [];
  for (let at = first; at <= toMs; at += step * 1000) marks.push({ at, label: axisTime(at, step, utc) });
  return marks;
}

/** Draw horizontal lines across a chart, each with its value beside it. */
export function valueAxis(marks, y, left, right) {
  return marks.map((mark) => [
    svg("line", { class: "grid", x1: left, x2: right, y1: y(mark), y2: y(mark) }),
    svg("text", { class: "mark", x: left - 6, y: y(mark) + 3.5, "text-anchor": "end" }, compact(mark)),
  ]);
}

export function timeAxis(marks, x, height) {
  return marks.map((mark) =>
    svg("text", { class: "mark", x: x(mark.at), y: height - 4, "text-anchor": "middle" }, mark.label),
  );
}

const HEIGHT = 240;
const MARGIN = { top: 10, right: 26, bottom: 22, left: 58 };
/** Above this number of points, dots are not drawn; the readout still shows each point. */
const MOST_DOTS = 400;

/** Draw lines or stacked areas over time; return {picture, x}, where `x` converts a time to its position. */
export function timePicture({ series, ghosts, places, isStacked, isLog, utc, label }, width) {
  const [from, to] = [places[0], places.at(-1)];
  const stacks = isStacked ? stacked(series, places) : null;
  const tops = stacks ? stacks.at(-1).tops : series.flatMap(({ points }) => [...points.values()]);
  const scale = scaleOf([...tops, ...ghosts.flatMap(({ points }) => [...points.values()])], isLog);
  const x = (at) => MARGIN.left + ((at - from) / (to - from || 1)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => HEIGHT - MARGIN.bottom - scale.share(value) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": label });
  picture.append(...valueAxis(scale.marks, y, MARGIN.left, width - MARGIN.right).flat());
  picture.append(...timeAxis(timeMarks(from, to, Math.max(2, Math.floor(width / 120)), utc), x, HEIGHT));
  picture.append(...ghosts.map((one) => line(one, from, to, x, y, isLog, "ghost")));
  if (stacks) picture.append(...stacks.map((one) => area(one, places, x, y)));
  else picture.append(...series.map((one) => line(one, from, to, x, y, isLog, "line")));
  const isFew = series.reduce((count, { points }) => count + points.size, 0) <= MOST_DOTS;
  if (isFew && !stacks) picture.append(...series.flatMap((one) => dots(one, x, y, isLog, utc)));
  return { picture, x };
}

/** Draw a bar for each category and series, or one stacked bar for each category. */
export function bars({ series, ghosts, places, isStacked, isLog, label }) {
  const total = (place) => series.reduce((sum, { points }) => sum + (points.get(place) ?? 0), 0);
  const values = places.flatMap((place) =>
    isStacked ? [total(place)] : series.map(({ points }) => points.get(place) ?? 0),
  );
  const scale = scaleOf([...values, ...ghosts.flatMap(({ points }) => [...points.values()])], isLog);
  const width = (value) => Math.max(0, scale.share(value) - (isLog ? 0 : scale.share(0)));
  const bar = ({ name, tone }, value, kind = "") =>
    h("span", {
      class: `bar-piece tone-${tone} ${kind}`,
      style: { "--share": width(value) },
      title: `${name}: ${compact(value)}`,
    });
  const line = (pieces, words) => h("div", { class: "bar-row" }, pieces, h("span", { class: "faint" }, words));
  const rowOf = (place) => {
    const present = series.filter(({ points }) => points.has(place));
    const one = (each) => line([bar(each, each.points.get(place))], compact(each.points.get(place)));
    const now = isStacked
      ? [line(present.map((each) => bar(each, each.points.get(place))), compact(total(place)))]
      : present.map(one);
    const before = ghosts.filter(({ points }) => points.has(place));
    const then = before.map((each) =>
      line([bar(each, each.points.get(place), "ghost")], `before: ${compact(each.points.get(place))}`),
    );
    return [h("dt", { title: place }, place), h("dd", {}, now, then)];
  };
  return h("dl", { class: "bar-chart", "aria-label": label }, places.map(rowOf));
}

/** Return a scale from values to shares of the chart's height or width, with round tick values. */
export function scaleOf(values, isLog) {
  const [least, most] = values.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, 0]);
  if (isLog) return logarithmic(values.filter((one) => one > 0));
  if (!(least < 0)) {
    const marks = valueMarks(most, 4);
    return { marks, share: (value) => value / marks.at(-1) };
  }
  const step = valueMarks(most - least, 4)[1];
  const first = Math.floor(least / step) * step;
  const marks = Array.from({ length: Math.ceil((most - first) / step) + 1 }, (_, place) => first + place * step);
  return { marks, share: (value) => (value - first) / (marks.at(-1) - first) };
}

/** Scale from the power of ten below the least value to the one above the largest; values <= 0 are at the bottom. */
function logarithmic(values) {
  const powers = values.map(Math.log10);
  const first = Math.floor(powers.reduce((low, one) => Math.min(low, one), Infinity));
  const last = Math.ceil(powers.reduce((high, one) => Math.max(high, one), -Infinity));
  if (!values.length) return { marks: [1, 10], share: () => 0 };
  const end = Math.max(last, first + 1);
  const every = Math.ceil((end - first) / 6);
  const length = Math.floor((end - first) / every) + 1;
  const marks = Array.from({ length }, (_, place) => 10 ** (first + place * every));
  return { marks, share: (value) => (value > 0 ? (Math.log10(value) - first) / (end - first) : 0) };
}

function line({ name, tone, points }, from, to, x, y, isLog, kind) {
  const places = [...points]
    .filter(([at, value]) => at >= from && at <= to && (!isLog || value > 0))
    .sort(([one], [other]) => one - other)
    .map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
  const words = svg("title", {}, kind === "ghost" ? `${name}, the period before` : name);
  return svg("polyline", { class: `stroke-${tone} ${kind}`, points: places.join(" ") }, words);
}

function dots({ name, tone, points }, x, y, isLog, utc) {
  const shown = [...points].filter(([, value]) => !isLog || value > 0);
  return shown.map(([at, value]) => {
    const words = `${time(at * 1000, { utc, digits: 0 })}  ${name}: ${compact(value)}`;
    const place = { cx: x(at), cy: y(value), r: shown.length > 60 ? 1.5 : 3 };
    return svg("circle", { class: `tone-${tone}`, ...place }, svg("title", {}, words));
  });
}

/** Stack the series: each is drawn on the sum of those before it, and a missing value counts as zero. */
function stacked(series, places) {
  let below = places.map(() => 0);
  return series.map((one) => {
    const foots = below;
    const tops = places.map((at, place) => foots[place] + Math.max(0, one.points.get(at) ?? 0));
    below = tops;
    return { ...one, foots, tops };
  });
}

function area({ name, tone, foots, tops }, places, x, y) {
  const point = (value, place) => `${x(places[place]).toFixed(1)},${y(value).toFixed(1)}`;
  const outline = [...tops.map(point), ...foots.map(point).reverse()];
  return svg("polygon", { class: `tone-${tone}`, points: outline.join(" ") }, svg("title", {}, name));
}
