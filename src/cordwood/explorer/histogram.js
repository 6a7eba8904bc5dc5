/** The histogram of events over time, as stacked bars. Dragging, or Shift with the arrow keys, selects a range. */

import { timeAxis, timeMarks, valueAxis, valueMarks } from "./chart-drawing.js";
import { h, newId, put, svg } from "./dom.js";
import { count, time } from "./format.js";
import { toned } from "./series.js";

const HEIGHT = 132;
const MARGIN = { top: 8, right: 6, bottom: 20, left: 42 };
const NARROWEST_BAR = 9;
/** A shorter drag is a click. */
const DRAG_PIXELS = 4;

export class Histogram {
  constructor({ onSelect, onPick }) {
    this.onSelect = onSelect;
    this.onPick = onPick;
    this.shown = null;
    this.cursor = null;
    this.anchor = null;
    this.readout = h("p", { class: "readout", id: newId("readout"), "aria-live": "polite" });
    this.legend = h("ul", { class: "legend", "aria-label": "Series" });
    this.frame = h("div", { class: "chart", tabindex: "0", role: "group", "aria-describedby": this.readout.id });
    this.frame.setAttribute("aria-label", "Events over time. Arrow keys read, shift selects, Enter zooms.");
    this.element = h(
      "div",
      { class: "histogram" },
      this.frame,
      h("div", { class: "chart-foot" }, this.legend, this.readout),
    );
    this.listen();
  }

  /** The number of bars that fit. */
  get mostBars() {
    return Math.max(12, Math.min(90, Math.floor(this.plotWidth / NARROWEST_BAR)));
  }

  /** The width of the bars' area. Reading it makes the browser lay out the page; drawing uses `drawnWidth` instead. */
  get plotWidth() {
    return Math.max(120, (this.frame.clientWidth || 800) - MARGIN.left - MARGIN.right);
  }

  /**
   * Show bars. `buckets`: [{at, series, events}]; `at`, `from` and `to` are in milliseconds. `series` are names, of
   * which some may have no events.
   */
  show({ buckets, stepMs, from, to, utc, series = [] }) {
    const names = toned(new Set([...series, ...buckets.map((one) => one.series)]));
    this.shown = { bars: barsOf(buckets, stepMs, from), names, stepMs, from, to, utc };
    this.cursor = this.anchor = null;
    this.draw();
  }

  clear(reason) {
    this.shown = null;
    put(this.frame, h("p", { class: "chart-empty" }, reason));
    put(this.legend);
    this.readout.textContent = "";
  }

  draw() {
    const { shown } = this;
    if (!shown) return;
    this.drawnWidth = this.plotWidth;
    const width = this.drawnWidth + MARGIN.left + MARGIN.right;
    const marks = valueMarks(Math.max(0, ...shown.bars.map((bar) => bar.events)));
    const y = (value) => HEIGHT - MARGIN.bottom - (value / marks.at(-1)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-hidden": "true" });
    this.selection = svg("rect", {
      class: "selection",
      y: MARGIN.top,
      height: HEIGHT - MARGIN.top - MARGIN.bottom,
      width: 0,
    });
    const times = timeMarks(shown.from, shown.to, Math.max(2, Math.floor(this.drawnWidth / 80)), shown.utc);
    picture.append(
      ...[valueAxis(marks, y, MARGIN.left, width - MARGIN.right), timeAxis(times, this.x, HEIGHT)].flat(2),
    );
    picture.append(...shown.bars.flatMap((bar) => this.bar(bar, y)), this.selection);
    put(this.frame, picture);
    this.tell(null);
    this.showLegend();
  }

  x = (ms) => {
    const { from, to } = this.shown;
    return MARGIN.left + ((ms - from) / (to - from)) * this.drawnWidth;
  };

  bar(bar, y) {
    const left = Math.max(MARGIN.left, this.x(bar.at));
    const right = Math.min(MARGIN.left + this.drawnWidth, this.x(bar.at + this.shown.stepMs));
    const gap = right - left > 5 ? 1 : 0;
    let below = 0;
    return this.shown.names.flatMap(({ name, tone }) => {
      const events = bar.series.get(name) ?? 0;
      if (!events) return [];
      const top = y(below + events);
      const height = Math.max(1, y(below) - top);
      below += events;
      return [svg("rect", { class: `tone-${tone}`, x: left, y: top, width: Math.max(1, right - left - gap), height })];
    });
  }

  showLegend() {
    const { bars, names } = this.shown;
    const sum = (name) => bars.reduce((total, bar) => total + (bar.series.get(name) ?? 0), 0);
    const entry = ({ name, tone }) =>
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", class: "legend-entry", title: `Only ${name}`, onclick: () => this.onPick(name) },
          h("span", { class: `dot tone-${tone}` }),
          name,
          h("span", { class: "faint" }, count(sum(name))),
        ),
      );
    put(this.legend, names.length > 1 || names.some((one) => one.name !== "events") ? names.map(entry) : []);
  }

  listen() {
    this.frame.addEventListener("pointerdown", (event) => this.begin(event));
    this.frame.addEventListener("pointermove", (event) => this.move(event));
    this.frame.addEventListener("pointerup", (event) => this.end(event));
    this.frame.addEventListener("pointerleave", () => this.dragged === undefined && this.tell(null));
    this.frame.addEventListener("pointercancel", () => this.drop());
    this.frame.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  begin(event) {
    if (!this.shown || event.button !== 0) return;
    this.dragged = this.msAt(event);
    this.pressedAt = event.clientX;
    this.frame.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.shown) return;
    const at = this.msAt(event);
    if (this.dragged !== undefined) this.mark(this.dragged, at);
    this.tell(this.shown.bars.findLast((bar) => bar.at <= at));
  }

  end(event) {
    if (this.dragged === undefined) return;
    const [from, to] = [this.dragged, this.msAt(event)];
    this.drop();
    if (Math.abs(event.clientX - this.pressedAt) >= DRAG_PIXELS) this.onSelect(from * 1000, to * 1000);
  }

  drop() {
    this.dragged = undefined;
    this.selection?.setAttribute("width", 0);
  }

  msAt(event) {
    const left = this.frame.getBoundingClientRect().left + MARGIN.left;
    const share = Math.min(1, Math.max(0, (event.clientX - left) / this.drawnWidth));
    return this.shown.from + share * (this.shown.to - this.shown.from);
  }

  mark(from, to) {
    const [left, right] = [from, to].map(this.x).sort((one, two) => one - two);
    this.selection.setAttribute("x", left);
    this.selection.setAttribute("width", right - left);
  }

  key(event) {
    if (!this.shown?.bars.length) return;
    const last = this.shown.bars.length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -last - 1, End: last + 1 };
    if (event.key in moves) {
      event.preventDefault();
      this.step(moves[event.key], event.shiftKey);
    }
    if (event.key === "Enter" && this.cursor !== null) this.zoom();
    if (event.key === "Escape") this.step(0, false);
  }

  step(by, extends_) {
    const { bars } = this.shown;
    const before = this.cursor ?? (by > 0 ? -1 : bars.length);
    this.cursor = Math.min(bars.length - 1, Math.max(0, before + by));
    this.anchor = extends_ ? (this.anchor ?? Math.max(0, Math.min(before, bars.length - 1))) : null;
    this.mark(...this.cursorRange());
    this.tell(bars[this.cursor]);
  }

  cursorRange() {
    const { bars, stepMs, from, to } = this.shown;
    const [first, last] = [this.cursor, this.anchor ?? this.cursor].sort((one, two) => one - two);
    return [Math.max(from, bars[first].at), Math.min(to, bars[last].at + stepMs)];
  }

  zoom() {
    const [from, to] = this.cursorRange();
    this.onSelect(from * 1000, to * 1000);
  }

  tell(bar) {
    const { shown } = this;
    if (!shown) return;
    const total = shown.bars.reduce((sum, one) => sum + one.events, 0);
    const at = (ms) => time(ms * 1000, { utc: shown.utc, digits: 0 });
    const parts = bar
      ? shown.names
          .filter((one) => bar.series.get(one.name))
          .map((one) => `${one.name} ${count(bar.series.get(one.name))}`)
      : [];
    this.readout.textContent = bar
      ? `${at(bar.at)}: ${count(bar.events)}${parts.length > 1 ? ` (${parts.join(", ")})` : ""}`
      : `${count(total)} events`;
  }
}

/** Return a bar for each step of the range, including the empty ones. */
function barsOf(buckets, stepMs, from) {
  const byTime = new Map();
  for (const one of buckets) {
    const bar = byTime.get(one.at) ?? { at: one.at, events: 0, series: new Map() };
    bar.events += one.events;
    bar.series.set(one.series, (bar.series.get(one.series) ?? 0) + one.events);
    byTime.set(one.at, bar);
  }
  const first = Math.floor(from / stepMs) * stepMs;
  const last = Math.max(first, ...byTime.keys());
  for (let at = first; at <= last; at += stepMs)
    if (!byTime.has(at)) byTime.set(at, { at, events: 0, series: new Map() });
  return [...byTime.values()].sort((one, two) => one.at - two.at);
}
