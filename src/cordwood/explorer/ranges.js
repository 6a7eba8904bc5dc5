/** Time ranges: relative ones, which end now, and fixed ones; and the picker of a range. */

import { h, put } from "./dom.js";
import { time } from "./format.js";
import { popover } from "./overlays.js";

const SECONDS = { m: 60, h: 3600, d: 86_400 };

export const QUICK = [
  ["5m", "5 minutes"],
  ["15m", "15 minutes"],
  ["1h", "1 hour"],
  ["6h", "6 hours"],
  ["24h", "24 hours"],
  ["3d", "3 days"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];
export const USUAL = "24h";

/** The widths of a bar in the histogram, in seconds. */
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
  2_592_000,
];

/** Return the bounds of a range in microseconds. */
export function bounds(range, nowMs = Date.now()) {
  if (isFixed(range)) {
    const [from, to] = range.split("~").map(Number);
    return { from, to };
  }
  const to = Math.ceil(nowMs) * 1000;
  return { from: to - secondsOf(range) * 1_000_000, to };
}

export function isFixed(range) {
  return range.includes("~");
}

export function fixed(from, to) {
  return `${Math.round(Math.min(from, to))}~${Math.round(Math.max(from, to))}`;
}

export function isRange(text) {
  // With longer numbers, adding a step to a time would not change it, and a loop over times would not end.
  return /^\d{1,5}[mhd]$/.test(text) || /^\d{1,16}~\d{1,16}$/.test(text);
}

export function label(range, utc) {
  if (!isFixed(range)) {
    const quick = QUICK.find(([name]) => name === range);
    return `Last ${quick ? quick[1] : range}`;
  }
  const { from, to } = bounds(range);
  const [first, last] = [from, to].map((us) => time(us, { utc, digits: 0 }));
  return `${first} – ${first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last}`;
}

/** Return a range with the same middle, and its width multiplied by a factor. */
export function scaled(range, factor) {
  const { from, to } = bounds(range);
  const middle = (from + to) / 2;
  const half = ((to - from) / 2) * factor;
  return fixed(middle - half, Math.min(middle + half, Date.now() * 1000));
}

export function moved(range, share) {
  const { from, to } = bounds(range);
  const by = (to - from) * share;
  return fixed(from + by, to + by);
}

/** Return a range of the same width, with a given time near its end. */
export function around(us, { from, to }) {
  const width = to - from;
  return fixed(us - width * 0.9, us + width * 0.1);
}

/** Return the narrowest width of a bar with which at most `mostBars` are needed. */
export function stepFor({ from, to }, mostBars) {
  const seconds = (to - from) / 1_000_000;
  return STEPS.find((step) => seconds / step <= mostBars) ?? STEPS.at(-1);
}

function secondsOf(range) {
  return Number(range.slice(0, -1)) * SECONDS[range.at(-1)];
}

export class TimePicker {
  constructor({ onRange, onZone }) {
    Object.assign(this, { onRange, onZone, range: "24h", utc: false });
    this.name = h("span", {});
    this.open = h("button", { type: "button", class: "button" }, this.name);
    this.panel = h("div", { class: "picker" });
    this.popover = popover(this.open, this.panel, { label: "Time range", onOpen: () => this.fill() });
    const step = (sign, title, change) =>
      h(
        "button",
        { type: "button", class: "button icon", title, "aria-label": title, onclick: () => this.onRange(change()) },
        sign,
      );
    this.element = h(
      "div",
      { class: "joined" },
      step("‹", "Earlier", () => moved(this.range, -0.5)),
      this.popover.element,
      step("›", "Later", () => moved(this.range, 0.5)),
      step("−", "Wider: twice the time", () => scaled(this.range, 2)),
      step("+", "Narrower: half the time", () => scaled(this.range, 0.5)),
    );
  }

  show(range, utc) {
    Object.assign(this, { range, utc });
    this.name.textContent = label(range, utc);
  }

  fill() {
    const quick = QUICK.map(([name, words]) =>
      h(
        "button",
        {
          type: "button",
          class: "choice",
          "aria-pressed": String(name === this.range),
          onclick: () => this.pick(name),
        },
        words,
      ),
    );
    const { from, to } = bounds(this.range);
    const [first, last] = [this.field("From", from), this.field("To", to)];
    const use = h("button", { type: "submit", class: "button primary" }, "Use these");
    const form = h(
      "form",
      { class: "stack", onsubmit: (event) => this.useFields(event, first.input, last.input) },
      first.element,
      last.element,
      use,
    );
    const zone = h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", checked: this.utc, onchange: (event) => this.onZone(event.target.checked) }),
      "Show times in UTC",
    );
    put(this.panel, h("div", { class: "choices" }, quick), form, zone);
  }

  field(words, us) {
    const input = h("input", { type: "datetime-local", step: "1", required: true, value: this.written(us) });
    return { input, element: h("label", { class: "field" }, words, input) };
  }

  useFields(event, first, last) {
    event.preventDefault();
    this.pick(fixed(this.read(first.value), this.read(last.value)));
  }

  pick(range) {
    this.popover.close();
    this.onRange(range);
  }

  written(us) {
    const shift = this.utc ? 0 : new Date(us / 1000).getTimezoneOffset() * 60_000;
    return new Date(us / 1000 - shift).toISOString().slice(0, 19);
  }

  read(text) {
    return Date.parse(this.utc ? `${text}Z` : text) * 1000;
  }
}
