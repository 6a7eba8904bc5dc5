/** The page of one event, which has its own link: all its fields, and the events before and after it. */

import * as address from "./address.js";
import { Problem, written } from "./api.js";
import * as described from "./described.js";
import { h, put } from "./dom.js";
import * as state from "./explore-state.js";
import { takeText } from "./explore-taking.js";
import { neighbours, oneEvent } from "./finding.js";
import { duration, time } from "./format.js";
import { eventPlace, linksOf } from "./ids.js";
import { filterText, withClause } from "./lql.js";
import { fixed } from "./ranges.js";
import { eventTree } from "./tree.js";

const [FIRST_LINES, MOST_LINES] = [10, 320];
const AROUND_US = 1_800_000_000;

export class EventPage {
  constructor() {
    this.head = h("div", { class: "bar-line" });
    this.event = h("section", { class: "card pad", "aria-label": "Event" });
    this.lines = h("section", { class: "card pad", "aria-label": "Lines before and after" });
    const title = h("h1", { class: "off-screen" }, "Event");
    this.element = h("div", { class: "page one-event" }, title, this.head, this.lines, this.event);
  }

  async update(values) {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const [row, most] = [{ id: values.id ?? "", timestamp: Number(values.at) }, FIRST_LINES];
    const candidates = state.candidates(await described.endpoints(), values);
    if (!candidates.length || !row.id || !(row.timestamp > 0))
      throw new Problem(0, { message: "This is not a link to an event.", hint: "It has no id, or no time." });
    const { endpoint, subQueries } = await described.firstAllowed(candidates);
    if (signal.aborted) return;
    this.view = { ...state.viewOf(values, endpoint, subQueries), language: "lql", text: "" };
    const range = fixed(row.timestamp - AROUND_US, row.timestamp + AROUND_US);
    Object.assign(this, { row, around: { ...this.view, range } });
    this.showHead();
    put(this.event, h("p", { class: "faint" }, "Reading…"));
    put(this.lines, h("p", { class: "faint" }, "Reading…"));
    await Promise.all([this.readEvent(signal), this.readLines(most, signal)]);
  }

  leave() {
    this.asking?.abort();
  }

  showHead() {
    const { view, row } = this;
    const { endpoint, sub, ...parameters } = address.current().values;
    const kept = Object.fromEntries(Object.entries(parameters).filter(([name]) => name.startsWith("p.")));
    const explore = address.hashOf("explore", { endpoint, sub, ...kept, range: this.around.range });
    const copy = () => takeText(location.href, "The link");
    put(
      this.head,
      h("strong", {}, `${view.subQuery}, ${time(row.timestamp, { utc: view.utc })}`),
      h("span", { class: "spring" }),
      h("a", { class: "button", href: explore }, "Explore this hour"),
      h("button", { type: "button", class: "button", onclick: copy }, "Copy the link"),
    );
  }

  async readEvent(signal) {
    const event = await oneEvent(this.view, this.row, signal).catch((problem) => ({ problem }));
    if (signal.aborted) return undefined;
    if (!event) return put(this.event, h("p", { class: "empty" }, "This event is not there, or not for this key."));
    if (event.problem) return put(this.event, h("p", { class: "problem" }, event.problem.message));
    const copy = () => takeText(written(event), "The event");
    return put(
      this.event,
      h(
        "div",
        { class: "detail-bar" },
        h("h2", {}, "Event"),
        h("button", { type: "button", class: "button small", onclick: copy }, "Copy as JSON"),
      ),
      eventTree(event, {
        utc: this.view.utc,
        linksOf: (path, value) => linksOf(this.around, path, value),
        onFilter: (...filter) => this.explore(...filter),
      }),
    );
  }

  /** Open Explore with a filter by a value of the event. */
  explore(path, value, isNot, isWithin) {
    const { view, around } = this;
    const kept = Object.fromEntries(Object.entries(view.parameters).map(([name, one]) => [`p.${name}`, one]));
    const q = withClause("", filterText(path, value, { isNot, isWithin }));
    address.go("explore", { endpoint: view.endpoint.name, sub: view.subQuery, ...kept, range: around.range, q });
  }

  async readLines(most, signal) {
    const found = await neighbours(this.view, this.row, most, signal).catch((problem) => ({ problem }));
    if (signal.aborted) return undefined;
    if (found.problem) return put(this.lines, h("p", { class: "problem" }, found.problem.message));
    const { earlier, own, later, hasEarlier, hasLater } = found;
    const more = (has, words) =>
      has && most < MOST_LINES
        ? h("button", { type: "button", class: "button small", onclick: () => this.readLines(most * 2, signal) }, words)
        : null;
    const lines = [...earlier, { ...own, isThis: true }, ...later];
    return put(
      this.lines,
      h("h2", {}, "Lines before and after"),
      more(hasEarlier, "More before"),
      h("ol", { class: "context" }, lines.map((line) => this.line(line))),
      more(hasLater, "More after"),
      earlier.length + later.length ? null : h("p", { class: "faint" }, "There are no others within 30 days."),
    );
  }

  line(line) {
    const apart = line.timestamp - this.row.timestamp;
    const sign = apart < 0 ? "−" : "+";
    const when = line.isThis ? "this event" : `${sign}${duration(Math.abs(apart))}`;
    const words = [h("span", { class: "apart" }, when), h("span", { class: "line-text" }, line.event_message)];
    const place = line.isThis ? null : eventPlace(this.view, line);
    return h(
      "li",
      { class: line.isThis ? "is-this" : null, "aria-current": line.isThis ? "true" : null },
      place ? h("a", { href: place }, words) : words,
    );
  }
}
