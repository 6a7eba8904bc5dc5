/** Axes of charts: round tick values, and their lines and labels. */

import { svg } from "./dom.js";
import { axisTime, compact } from "./format.js";

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
