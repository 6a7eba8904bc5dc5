/** The time range picker: presets, a calendar for both ends, and buttons to narrow, widen and move the range. */

import { h, put } from "./dom.js";
import { popover } from "./popover.js";
import { QUICK, bounds, fixed, label, moved, scaled } from "./ranges.js";

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
