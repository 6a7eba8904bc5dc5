/** The chart of an answer: its choice of columns, stacking, scale, and comparison with the previous period. */

import { bars, timePicture } from "./chart-drawing.js";
import { h, newId, option, put } from "./dom.js";
import { compact, time } from "./format.js";
import { chosen, isOfEvents, kindsOf, seriesOf } from "./series.js";

const ALL = "all numbers";

export class Chart {
  /**
   * `onChange(values)` is called with the chosen options, for the address. `before()` fetches {rows, shiftMs}: the rows
   * of the previous period, and the time by which they are shifted. Without `hasToggle`, the chart cannot be hidden.
   */
  constructor({ onChange = () => {}, before = null, hasToggle = true } = {}) {
    Object.assign(this, { onChange, before, hasToggle, wished: {}, rows: [], ghost: null });
    this.readout = h("p", { class: "chart-readout", id: newId("readout"), "aria-live": "polite" });
    this.frame = h("div", { class: "chart lines", tabindex: "0", role: "group", "aria-describedby": this.readout.id });
    this.frame.setAttribute("aria-label", "Chart. Arrow keys read its values.");
    this.controls = h("div", { class: "chart-controls" });
    this.legend = h("figcaption", { class: "chart-legend" });
    const parts = [this.controls, this.frame, this.readout, this.legend];
    this.element = h("figure", { class: "line-chart", hidden: true }, parts);
    this.frame.addEventListener("pointermove", (event) => this.point(event));
    this.frame.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.frame.clientWidth !== this.drawnWidth && this.draw()).observe(this.frame);
  }

  /** Show the chart of an answer. `wished`: {x, y, group, isStacked, isLog, isGhost, isShown}; each may be missing. */
  show({ rows, columns, utc, wished = {} }) {
    Object.assign(this, { rows, utc, wished, ghost: null, cursor: -1 });
    this.kinds = kindsOf(rows, columns);
    this.isOfEvents = isOfEvents(columns);
    this.element.hidden = !this.kinds;
    if (!this.kinds) return;
    this.redraw();
    if (wished.isGhost) this.readBefore();
  }

  /** Whether the chart is shown: as the reader chose, or if an answer without events has a time or text column. */
  get isShown() {
    return this.wished.isShown ?? (!this.isOfEvents && this.kinds.times.length + this.kinds.texts.length > 0);
  }

  change(wished) {
    this.wished = { ...this.wished, ...wished };
    this.redraw();
    if (wished.isGhost) this.readBefore();
    const { x = "", y = "", group = "", isStacked, isLog, isGhost, isShown } = this.wished;
    const flag = (value) => (value ? "1" : "");
    const shown = isShown === undefined ? "" : isShown ? "1" : "0";
    const kept = { stack: flag(isStacked), log: flag(isLog), before: flag(isGhost), chart: shown };
    this.onChange({ cx: x, cy: y, cg: group, ...kept });
  }

  redraw() {
    this.choice = chosen(this.rows, this.kinds, this.wished);
    this.found = seriesOf(this.rows, this.choice);
    this.showControls();
    for (const one of [this.frame, this.readout, this.legend]) one.hidden = !this.isShown;
    const ghostly = this.wished.isGhost && this.ghost ? " Dashed: the period before." : "";
    const notes = [...this.found.notes, ghostly, this.wished.isGhost ? (this.problem ?? "") : ""].join(" ").trim();
    const dot = (tone) => h("span", { class: `dot tone-${tone}` });
    const entry = ({ name, tone }) => h("span", { class: "legend-entry" }, dot(tone), name);
    put(this.legend, this.found.series.map(entry), h("span", { class: "faint" }, notes));
    this.readout.textContent = "";
    this.draw();
  }

  showControls() {
    const { choice, wished } = this;
    const { activeElement } = document;
    const focused = this.controls.contains(activeElement) && activeElement.getAttribute("aria-label");
    const select = (label, names, value, name) =>
      h(
        "label",
        { class: "inline-field" },
        h("span", {}, label),
        h(
          "select",
          { "aria-label": `Chart: ${label}`, onchange: (event) => this.change({ [name]: event.target.value }) },
          names.map(([one, words]) => option(one, words, one === value)),
        ),
      );
    const button = (words, name, isOn, isOff = false) =>
      h(
        "button",
        {
          type: "button",
          class: "button small",
          "aria-label": words,
          "aria-pressed": String(Boolean(isOn)),
          disabled: isOff,
          onclick: () => this.change({ [name]: !isOn }),
        },
        words,
      );
    const pairs = (names) => names.map((name) => [name, name]);
    const numbers = [...(choice.group ? [] : [["", ALL]]), ...pairs(choice.numbers)];
    const isMany = this.found.series.length > 1;
    const parts = [
      select("value", numbers, choice.y, "y"),
      select("over", pairs(choice.axes), choice.x, "x"),
      select("by", [["-", "nothing"], ...pairs(choice.groups)], choice.group || "-", "group"),
      button("Stacked", "isStacked", wished.isStacked && !wished.isLog, !isMany || wished.isLog),
      button("Log scale", "isLog", wished.isLog),
      this.before ? button("Period before", "isGhost", wished.isGhost) : null,
    ];
    const toggle = this.hasToggle ? button("Chart", "isShown", this.isShown) : null;
    put(this.controls, toggle, this.isShown ? parts : null);
    if (focused) this.controls.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  draw() {
    const width = this.frame.clientWidth;
    if (!this.kinds || !this.isShown || !width) return;
    this.drawnWidth = width;
    const { choice, found, wished, utc } = this;
    if (!found.places.length) return void put(this.frame, h("p", { class: "chart-empty" }, "No numbers to draw."));
    const label = `${choice.y || choice.numbers.join(", ")} over ${choice.x}${choice.group && ` by ${choice.group}`}`;
    const isStacked = Boolean(wished.isStacked && !wished.isLog && found.series.length > 1);
    const ghosts = wished.isGhost ? this.ghosts() : [];
    const drawn = { ...found, ghosts, isStacked, isLog: Boolean(wished.isLog), utc, label };
    this.frame.classList.toggle("has-bars", !choice.isTime);
    if (!choice.isTime) return void put(this.frame, bars(drawn));
    const { picture, x } = timePicture(drawn, width);
    this.x = x;
    put(this.frame, picture);
  }

  // The previous period

  async readBefore() {
    const { rows } = this;
    this.problem = "";
    const read = await this.before().catch((problem) => ({ problem }));
    if (rows !== this.rows) return;
    this.ghost = read.rows?.length ? read : null;
    this.problem = read.problem?.message ?? (this.ghost ? "" : "The period before has no rows.");
    this.redraw();
  }

  /** Return the series of the previous period, shifted to the current times, in the colours of the current series. */
  ghosts() {
    if (!this.ghost) return [];
    const { series } = seriesOf(this.ghost.rows, this.choice);
    const tones = new Map(this.found.series.map(({ name, tone }) => [name, tone]));
    const later = (at) => (this.choice.isTime ? at + this.ghost.shiftMs : at);
    return series
      .filter(({ name }) => tones.has(name))
      .map(({ name, points }) => ({
        name,
        tone: tones.get(name),
        points: new Map([...points].map(([at, value]) => [later(at), value])),
      }));
  }

  // The readout of values

  point(event) {
    if (!this.choice?.isTime || !this.x || !this.isShown) return;
    const at = event.clientX - this.frame.getBoundingClientRect().left;
    const apart = (place) => Math.abs(this.x(place) - at);
    const { places } = this.found;
    this.tell(places.reduce((best, place, index) => (apart(place) < apart(places[best]) ? index : best), 0));
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.choice?.isTime) return;
    event.preventDefault();
    this.tell(Math.max(0, Math.min(this.found.places.length - 1, this.cursor + by)));
  }

  tell(index) {
    this.cursor = index;
    const at = this.found.places[index];
    const present = this.found.series.filter(({ points }) => points.has(at));
    const values = present.map(({ name, points }) => `${name} ${compact(points.get(at))}`).join(", ");
    this.readout.textContent = `${time(at * 1000, { utc: this.utc, digits: 0 })}: ${values}`;
  }
}
