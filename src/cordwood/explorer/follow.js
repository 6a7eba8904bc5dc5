/** The Follow page: all events with one id, from all sub-queries, on one time axis with the gaps in between. */

import * as address from "./address.js";
import { Problem, written } from "./api.js";
import * as described from "./described.js";
import { h, put } from "./dom.js";
import { EventTable } from "./event-table.js";
import * as state from "./explore-state.js";
import { takeText } from "./explore-taking.js";
import { eventsOfId, MOST_EVENTS } from "./finding.js";
import { Lanes } from "./follow-lanes.js";
import { count, duration } from "./format.js";
import { eventPlace, LEAST_UNIQUE, linksOf } from "./ids.js";
import { bounds, TimePicker } from "./ranges.js";

const GRAVE = /(^|_)(level|severity|severity_text|error_severity|status|status_code)$/;
const TOOK = /(^|_)(ms|milliseconds)$/;
const COLUMNS = [
  { name: "timestamp", label: "timestamp" },
  { name: "after", label: "after", format: duration },
  { name: "gap", label: "gap", format: duration },
  { name: "took", label: "took", format: duration },
  { name: "source", label: "sub-query" },
  { name: "level", label: "level" },
  { name: "event_message", label: "event_message" },
];

export class FollowPage {
  constructor() {
    this.input = h("input", { type: "text", size: "40", autocomplete: "off", spellcheck: "false", required: true });
    const form = h(
      "form",
      { class: "bar-line", onsubmit: (event) => this.submit(event) },
      h("label", { class: "inline-field grow" }, h("span", {}, "Id"), this.input),
      h("button", { type: "submit", class: "button primary" }, "Follow"),
    );
    this.picker = new TimePicker({
      onRange: (range) => address.change({ range }),
      onZone: (utc) => address.change({ utc: utc ? "1" : "" }),
    });
    this.summary = h("p", { class: "summary", role: "status" });
    this.problems = h("ul", { class: "problem plain-list" });
    this.lanes = new Lanes((id) => this.table.reveal(id));
    this.table = new EventTable({
      label: "Events of the id",
      whole: async (row) => row.event,
      onCopy: (event) => takeText(written(event), "The event"),
      linksOf: (path, value) => this.links(path, value),
      placeOf: (row) => eventPlace({ ...this.view, subQuery: row.source }, row),
    });
    this.element = h(
      "div",
      { class: "page follow" },
      h("h1", { class: "off-screen" }, "Follow an id"),
      h("div", { class: "bar-line" }, form, h("span", { class: "spring" }), this.picker.element),
      h(
        "section",
        { class: "card chart-card", "aria-label": "Time axis" },
        this.summary,
        this.problems,
        this.lanes.element,
      ),
      h("section", { class: "card rows", "aria-label": "Rows" }, this.table.element),
    );
  }

  async update(values) {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const candidates = state.candidates(await described.endpoints(), values);
    if (!candidates.length) throw new Problem(0, { message: "No endpoint here takes queries of your own." });
    const { endpoint, subQueries } = await described.firstAllowed(candidates);
    if (signal.aborted) return;
    this.view = state.viewOf(values, endpoint, subQueries);
    Object.assign(this, { id: values.id ?? "", field: values.field ?? "", found: [], left: 0 });
    // Text that was typed before the endpoints were known stays.
    if (this.id) this.input.value = this.id;
    this.picker.show(this.view.range, this.view.utc);
    this.bounds = bounds(this.view.range);
    this.table.forget();
    put(this.problems);
    if (!endpoint.languages.includes("lql")) this.fail(endpoint.name, { message: "Ids are followed where LQL is." });
    else if (this.id) await this.ask(subQueries, signal);
    else this.show("Paste an id, or follow one that is a link in an event.");
  }

  leave() {
    this.asking?.abort();
  }

  submit(event) {
    event.preventDefault();
    const id = this.input.value.trim();
    address.change({ id, field: id.length < LEAST_UNIQUE ? this.field : "" });
  }

  async ask(subQueries, signal) {
    const capped = [];
    this.show("Reading…");
    await eventsOfId(this.view, subQueries, this.bounds, this, {
      signal,
      onFound: (name, events) => {
        if (events.length >= MOST_EVENTS) capped.push(name);
        this.found.push(...events.map((event) => rowOf(name, event)));
        if (events.length) this.show("Reading…");
      },
      onFailed: (name, problem) => this.fail(name, problem),
    });
    if (signal.aborted) return;
    const more = capped.length ? ` Only the first ${MOST_EVENTS} of ${capped.join(", ")} are shown.` : "";
    this.show(`${this.words()}${more}`);
  }

  fail(name, problem) {
    this.problems.append(h("li", {}, `${name}: ${problem.message}`));
  }

  show(words) {
    const rows = timed(this.found);
    put(this.summary, words);
    this.table.element.hidden = rows.length === 0;
    const has = (name) => rows.some((row) => row[name] !== null);
    const columns = COLUMNS.filter(({ name }) => has(name));
    this.table.show({ rows, columns, tone: "level", utc: this.view.utc });
    this.lanes.show(rows, this.view.utc);
  }

  words() {
    if (!this.found.length) return "No event in this time has this id. Try a wider time.";
    const rows = timed(this.found);
    const names = new Set(rows.map((row) => row.source));
    const events = rows.length === 1 ? "One event" : `${count(rows.length)} events`;
    const of = names.size === 1 ? `of ${[...names][0]}` : `of ${names.size} sub-queries`;
    if (rows.length === 1) return `${events} ${of}.`;
    const longest = rows.reduce((most, row) => (row.gap > most.gap ? row : most));
    const all = `${events} ${of}, ${duration(rows.at(-1).after)} from the first to the last.`;
    return `${all} The longest gap is ${duration(longest.gap)}, before “${longest.event_message.slice(0, 80)}”.`;
  }

  /** Return the links of the ids in a value, except the id that is shown. */
  links(path, value) {
    return linksOf(this.view, path, value).filter(({ id }) => id !== this.id);
  }
}

function rowOf(name, event) {
  const leaves = leavesOf(event.metadata ?? {});
  const level = leaves.find(([key, value]) => GRAVE.test(key) && typeof value !== "object");
  const took = leaves.find(([key, value]) => TOOK.test(key) && typeof value === "number");
  return {
    id: event.id,
    timestamp: event.timestamp,
    took: took ? took[1] * 1000 : null,
    source: name,
    level: level ? String(level[1]) : null,
    event_message: String(event.event_message ?? ""),
    event,
  };
}

/** Return the rows in order of time, with the microseconds since the first and since the previous one. */
function timed(found) {
  const rows = [...found].sort((one, other) => one.timestamp - other.timestamp);
  return rows.map((row, place) => ({
    ...row,
    after: row.timestamp - rows[0].timestamp,
    gap: place ? row.timestamp - rows[place - 1].timestamp : 0,
  }));
}

function leavesOf(value, found = []) {
  for (const [key, one] of Object.entries(value)) {
    if (typeof one === "object" && one !== null && !Array.isArray(one)) leavesOf(one, found);
    else found.push([key, one]);
  }
  return found;
}
