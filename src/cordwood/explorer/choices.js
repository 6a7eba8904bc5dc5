/** Menus that list projects or streams with their numbers of events, to choose one project or several streams. */

import { hashOf } from "./address.js";
import { h, put } from "./dom.js";
import { ago, compact, count } from "./format.js";
import { popover } from "./overlays.js";
import { around, bounds, isFixed, USUAL } from "./ranges.js";
import { toned } from "./series.js";

const MOST_LISTED = 50;
/** With more streams, their colours could not be distinguished. */
export const MOST_STREAMS = 8;

/** A panel below a button, with a searchable list. `item(one)` returns an entry; `onOpen()` loads the list. */
class Choices {
  constructor(button, label, { item, onOpen }) {
    Object.assign(this, { item, known: [] });
    this.search = h("input", { type: "search", placeholder: "Find", "aria-label": "Find", oninput: () => this.draw() });
    this.list = h("ul", { class: "plain-list" });
    this.about = h("p", { class: "faint", role: "status" });
    const panel = h("div", { class: "picker values" }, this.search, this.list, this.about);
    const open = () => {
      this.search.value = "";
      onOpen();
    };
    this.popover = popover(button, panel, { label, onOpen: open });
  }

  /** Show the choices: `known` is [{name, …}], most important first; `words(found)` says what the list leaves out. */
  show(known, words) {
    Object.assign(this, { known, words });
    this.draw();
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = this.known.filter(({ name }) => name.toLowerCase().includes(wanted));
    put(this.list, found.slice(0, MOST_LISTED).map((one) => h("li", {}, this.item(one))));
    const cut = found.length > MOST_LISTED ? `The first ${MOST_LISTED} of ${count(found.length)}. ` : "";
    const none = this.known.length && !found.length ? `None has “${wanted}” in its name. ` : "";
    this.note = [cut, none];
    this.tell();
  }

  tell() {
    put(this.about, this.note, this.words());
  }
}

/**
 * Return a menu of projects. `counts()` fetches {projects, without, isCut}; `chosen()` is the current project;
 * `onPick(name)` is called for another one.
 */
export function projectChoice({ counts, chosen, onPick }) {
  const title = "Projects with events in this time";
  const button = h("button", { type: "button", class: "button icon", title, "aria-label": "Known values" }, "▾");
  const pick = (name) => {
    choices.popover.close();
    button.focus();
    onPick(name);
  };
  const item = ({ name, events, newest }) => {
    const isChosen = String(name === chosen());
    const about = `${name}: the newest ${ago(newest)}`;
    const given = { type: "button", "aria-pressed": isChosen, title: about, onclick: () => pick(name) };
    const number = h("span", { class: "faint" }, count(events));
    return h("button", { ...given, class: "choice value-choice" }, named(name), number);
  };
  const onOpen = async () => {
    choices.show([], () => "Counting…");
    const found = await counts().catch((problem) => ({ projects: [], problem }));
    choices.show(found.projects, () => found.problem?.message ?? wordsOf(found));
  };
  const choices = new Choices(button, "Values that have events", { item, onOpen });
  return choices.popover.element;
}

function wordsOf({ projects, without, isCut }) {
  if (!projects.length) return without ? `${count(without)} events, none with a project.` : "No events in this time.";
  return isCut ? "Only those with the most events are known here." : "";
}

export class StreamChoice {
  /** `onChange(names)` is called after every change. */
  constructor(onChange) {
    Object.assign(this, { onChange, known: [], chosen: [] });
    this.button = h("button", { type: "button", class: "button" });
    const onOpen = () => this.choices.show(this.known, () => (this.isFull ? `At most ${MOST_STREAMS} at once.` : ""));
    this.choices = new Choices(this.button, "Streams", { item: (one) => this.item(one), onOpen });
    this.element = this.choices.popover.element;
  }

  get isFull() {
    return this.chosen.length >= MOST_STREAMS;
  }

  /** Show the streams, [{name, events, newest}], in this order. The list is not redrawn while the reader uses it. */
  show(known, chosen) {
    Object.assign(this, { known, chosen });
    this.button.textContent = `Streams: ${chosen.length} of ${known.length}`;
    this.mark();
  }

  item({ name, events, newest }) {
    const box = h("input", { type: "checkbox", value: name, onchange: () => this.toggle(box) });
    this.markBox(box);
    const about = events ? `${compact(events)}, ${newest ? ago(newest) : ""}` : "no events";
    return h("label", { class: "check", title: name }, box, named(name), h("span", { class: "faint" }, about));
  }

  toggle(box) {
    const others = this.chosen.filter((name) => name !== box.value);
    this.chosen = box.checked ? [...others, box.value] : others;
    this.mark();
    this.onChange(this.chosen);
  }

  mark() {
    for (const box of this.choices.list.querySelectorAll("input")) this.markBox(box);
    if (this.choices.words) this.choices.tell();
  }

  markBox(box) {
    box.checked = this.chosen.includes(box.value);
    box.disabled = this.isFull && !box.checked;
  }
}

/** Return a name that is shortened by the style sheet if it does not fit. */
export function named(name) {
  return h("span", { class: "value-name" }, name || "(empty)");
}

/** Return stream names as one value of the address; each is encoded, because a name may have any character. */
export function streamsText(names) {
  return names.map(encodeURIComponent).join(",");
}

export function streamsFrom(text = "") {
  return text.split(",").filter(Boolean).map(decoded);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the address of a stream's events: in `time`, or around its newest event if it has none in that time. */
export function placeOfStream({ name, newest }, time = { range: USUAL, ...bounds(USUAL) }) {
  const isElsewhere = newest && (newest < time.from || (isFixed(time.range) && newest > time.to));
  return hashOf("timeline", { streams: streamsText([name]), range: isElsewhere ? around(newest, time) : time.range });
}

/** Return the colour of each stream, the same in the chart and in the table. */
export function tonesOf(names) {
  return new Map(toned(names).map(({ name, tone }) => [name, tone]));
}
