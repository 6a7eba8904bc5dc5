/** A choice of several streams: each with how many events it has and when the newest came. */

import { hashOf } from "./address.js";
import { h, put } from "./dom.js";
import { ago, compact } from "./format.js";
import { popover } from "./popover.js";
import { USUAL, around, bounds, isFixed } from "./ranges.js";
import { toned } from "./series.js";

/** More could not be told apart by their colours. */
export const MOST_STREAMS = 8;
const MOST_LISTED = 100;

/** Streams in an address: a name may have any character. */
export function streamsText(names) {
  return names.map(encodeURIComponent).join(",");
}

/** Where the events of a stream are shown: in a time, or where that has none in the one around its newest event. */
export function placeOfStream({ name, newest }, time = { range: USUAL, ...bounds(USUAL) }) {
  const isElsewhere = newest && (newest < time.from || (isFixed(time.range) && newest > time.to));
  return hashOf("timeline", { streams: streamsText([name]), range: isElsewhere ? around(newest, time) : time.range });
}

export function streamsFrom(text = "") {
  return text.split(",").filter(Boolean).map(decoded);
}

export class StreamChoice {
  /** `onChange(names)` is told of every change. */
  constructor(onChange) {
    Object.assign(this, { onChange, known: [], chosen: [] });
    this.words = h("span", {});
    this.button = h("button", { type: "button", class: "button" }, this.words);
    this.panel = h("div", { class: "picker values" });
    this.search = h("input", { type: "search", placeholder: "Find", "aria-label": "Find a stream" });
    this.search.addEventListener("input", () => this.draw());
    this.list = h("ul", { class: "plain-list" });
    this.about = h("p", { class: "faint", role: "status" });
    this.element = popover(this.button, this.panel, { label: "Streams", onOpen: () => this.fill() }).element;
  }

  /** `known`: [{name, events, newest}], in the order in which they are listed. */
  show(known, chosen) {
    Object.assign(this, { known, chosen });
    this.words.textContent = `Streams: ${chosen.length} of ${known.length}`;
    this.mark();
  }

  fill() {
    this.search.value = "";
    put(this.panel, this.search, this.list, this.about);
    this.draw();
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const fitting = this.known.filter(({ name }) => name.toLowerCase().includes(wanted));
    put(this.list, fitting.slice(0, MOST_LISTED).map((one) => this.item(one)));
    this.cut = fitting.length > MOST_LISTED ? `The first ${MOST_LISTED} of ${fitting.length}.` : "";
    this.mark();
  }

  item({ name, events, newest }) {
    const box = h("input", { type: "checkbox", value: name, onchange: () => this.toggle(box) });
    const about = events ? `${compact(events)}, ${newest ? ago(newest) : ""}` : "no events";
    const words = [h("span", { class: "value-name" }, name), h("span", { class: "faint" }, about)];
    return h("li", {}, h("label", { class: "check", title: name }, box, words));
  }

  toggle(box) {
    const others = this.chosen.filter((name) => name !== box.value);
    this.chosen = box.checked ? [...others, box.value] : others;
    this.mark();
    this.onChange(this.chosen);
  }

  /** The list stays as it is while it is used: focus is in it. */
  mark() {
    const isFull = this.chosen.length >= MOST_STREAMS;
    for (const box of this.list.querySelectorAll("input")) {
      box.checked = this.chosen.includes(box.value);
      box.disabled = isFull && !box.checked;
    }
    this.about.textContent = [this.cut, isFull ? `At most ${MOST_STREAMS} at once.` : ""].filter(Boolean).join(" ");
  }
}

/** The colour of each stream, the same in the chart and in the table. */
export function tonesOf(names) {
  return new Map(toned(names).map(({ name, tone }) => [name, tone]));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
