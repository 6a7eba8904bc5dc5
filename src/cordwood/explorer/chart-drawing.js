/** Drawings of series: lines or stacked areas over time, and bars for categories. */

import { timeAxis, timeMarks, valueAxis, valueMarks } from "./axes.js";
import { h, svg } from "./dom.js";
import { compact, time } from "./format.js";

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
