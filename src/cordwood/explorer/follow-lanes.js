/** The events of an id on one time axis, with a lane for each sub-query from its first event to its last. */

import { h, put, svg } from "./dom.js";
import { duration, time } from "./format.js";
import { toneOf } from "./series.js";

const [LANE, TOP, BOTTOM, RIGHT] = [26, 8, 22, 16];
const NAME_WIDTH = { wide: 150, narrow: 84 };
/** Gaps of at least this share of the whole time are shaded. */
const LONG_GAP = 0.15;
const MARKS = 5;

export class Lanes {
  /** `onPick(id)` is called when an event is clicked. */
  constructor(onPick) {
    this.onPick = onPick;
    this.frame = h("div", { class: "chart lanes" });
    this.element = h("figure", {}, this.frame);
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  /** Show the rows, in order of time; `gap` is in microseconds. */
  show(rows, utc) {
    Object.assign(this, { rows, utc });
    this.element.hidden = rows.length < 2;
    this.draw();
  }

  draw() {
    const { rows = [] } = this;
    const width = this.frame.clientWidth;
    if (rows.length < 2 || !width) return put(this.frame);
    const names = [...new Set(rows.map((row) => row.source))];
    const left = width > 600 ? NAME_WIDTH.wide : NAME_WIDTH.narrow;
    const [from, to] = [rows[0].timestamp, rows.at(-1).timestamp];
    const x = (at) => left + ((at - from) / (to - from || 1)) * (width - left - RIGHT);
    const height = TOP + names.length * LANE + BOTTOM;
    const about = `${rows.length} events of ${names.join(", ")} over ${duration(to - from)}`;
    const picture = svg("svg", { width, height, role: "img", "aria-label": about });
    picture.append(...this.gaps(x, height), ...axis(to - from, left, width, height));
    names.forEach((name, place) => picture.append(...this.lane(name, TOP + place * LANE + LANE / 2, x, left)));
    return put(this.frame, picture);
  }

  gaps(x, height) {
    const whole = this.rows.at(-1).timestamp - this.rows[0].timestamp;
    const long = this.rows.filter((row) => whole && row.gap / whole >= LONG_GAP);
    return long.map(({ timestamp, gap }) => {
      const [left, right] = [x(timestamp - gap), x(timestamp)];
      const words = `A gap of ${duration(gap)}`;
      return svg(
        "rect",
        { class: "gap", x: left, width: right - left, y: TOP, height: height - TOP - BOTTOM },
        svg("title", {}, words),
      );
    });
  }

  lane(name, y, x, left) {
    const rows = this.rows.filter((row) => row.source === name);
    const [first, last] = [rows[0].timestamp, rows.at(-1).timestamp];
    const words = `${name}: ${rows.length} events, ${duration(last - first)}`;
    const label = svg("text", { class: "mark", x: 0, y: y + 4 }, svg("title", {}, words), cut(name, left));
    const line = svg("line", { class: "lane", x1: x(first), x2: Math.max(x(last), x(first) + 1), y1: y, y2: y });
    return [label, line, ...rows.map((row) => this.dot(row, x(row.timestamp), y))];
  }

  /** Return the dot of an event, which only a pointer can use: the keyboard and screen readers have the table. */
  dot(row, cx, cy) {
    const words = `${time(row.timestamp, { utc: this.utc })} ${row.event_message.slice(0, 200)}`;
    const tone = toneOf(row.level ?? "") || "hue1";
    return svg(
      "circle",
      { class: `tone-${tone} pick`, cx, cy, r: 5, onclick: () => this.onPick(row.id) },
      svg("title", {}, words),
    );
  }
}

function axis(whole, left, width, height) {
  const marks = width > 600 ? MARKS : 2;
  return Array.from({ length: marks + 1 }, (_, place) => {
    const at = left + (place / marks) * (width - left - RIGHT);
    const anchor = place === marks ? "end" : place ? "middle" : "start";
    const words = `+${duration((whole * place) / marks)}`;
    return [
      svg("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
      svg("text", { class: "mark", x: at, y: height - 5, "text-anchor": anchor }, words),
    ];
  }).flat();
}

function cut(name, width) {
  const most = Math.floor(width / 7);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}
