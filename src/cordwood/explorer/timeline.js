/** The Timeline page: the events of several whole streams in one table and one chart, for private keys. */

import * as address from "./address.js";
import { written } from "./api.js";
import * as choices from "./choices.js";
import * as described from "./described.js";
import { h, put } from "./dom.js";
import { EventTable } from "./event-table.js";
import { candidates } from "./explore-state.js";
import { takeText } from "./explore-taking.js";
import { count } from "./format.js";
import { Histogram } from "./histogram.js";
import { filterText, withClause } from "./lql.js";
import { tell } from "./overlays.js";
import { isOfEvents } from "./queries.js";
import * as ranges from "./ranges.js";
import { TimePicker } from "./ranges.js";
import { listed } from "./whereabouts.js";
import * as events from "./whole-streams.js";

const [USUAL_LIMIT, MOST_ROWS, MOST_OFFERED] = [100, 1000, 24];
const READING = "Reading…";
const NOT_ALLOWED = "Whole streams are shown for a private key without pins.";
const COLUMNS = [
  { name: "timestamp", label: "timestamp", isTime: true },
  { name: "stream", label: "stream" },
  { name: "event_message", label: "event_message" },
];

export class TimelinePage {
  constructor() {
    const choose = (names) => address.change({ streams: choices.streamsText(names), limit: "" });
    this.choice = new choices.StreamChoice(choose);
    const field = (name) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": name });
    [this.text, this.project] = [field("Search"), field("project")];
    this.text.classList.add("grow");
    this.text.placeholder = "Words, m.field:value, m.field:>=500 … Enter runs";
    this.project.placeholder = "all";
    this.project.size = 10;
    this.project.addEventListener("change", () => address.change({ project: this.project.value.trim() }));
    this.picker = new TimePicker({
      onRange: (range) => address.change({ range }),
      onZone: (utc) => address.change({ utc: utc ? "1" : "" }),
    });
    this.histogram = new Histogram({
      onSelect: (from, to) => address.change({ range: ranges.fixed(from, to) }),
      onPick: (name) => choose([name]),
    });
    this.table = new EventTable({
      tones: (name) => this.tones.get(name) ?? "",
      whole: events.wholeEvent,
      onFilter: (...filter) => this.filter(...filter),
      onCopy: (event) => takeText(written(event), "The event"),
    });
    this.summary = h("p", { class: "summary", role: "status" });
    this.problems = h("ul", { class: "problem plain-list" });
    const overview = { class: "card chart-card", "aria-label": "Histogram" };
    this.overview = h("section", overview, this.summary, this.histogram.element);
    this.result = h("div", { class: "result" });
    const more = { type: "button", class: "button", hidden: true, onclick: () => this.showMore() };
    this.more = h("button", more, "Show more");
    this.element = this.layout();
  }

  layout() {
    const projects = choices.projectChoice({
      counts: async () => events.projectsOf(await events.countsIn(this.streams, this.bounds)),
      chosen: () => this.view.project,
      onPick: (project) => address.change({ project }),
    });
    const label = h("label", { class: "inline-field" }, h("span", {}, "project"), this.project);
    const copy = h("button", { type: "button", class: "button", onclick: () => this.copyLink() }, "Copy a link");
    const run = h("button", { type: "submit", class: "button primary" }, "Run");
    const line = { class: "bar-line", role: "toolbar", "aria-label": "What to show" };
    return h(
      "div",
      { class: "page timeline" },
      h("h1", { class: "off-screen" }, "Timeline of streams"),
      h(
        "div",
        line,
        this.choice.element,
        h("div", { class: "joined-apart tight" }, label, projects),
        h("span", { class: "spring" }),
        this.picker.element,
      ),
      h("form", { class: "bar-line", onsubmit: (event) => this.submit(event) }, this.text, copy, run),
      h("div", { role: "alert" }, this.problems),
      this.overview,
      h(
        "section",
        { class: "card rows", "aria-label": "Rows" },
        this.result,
        this.table.element,
        h("div", { class: "more" }, this.more),
      ),
    );
  }

  async update(values) {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const isAllowed = await this.learn(values);
    if (signal.aborted) return undefined;
    if (!isAllowed) return put(this.element, h("p", { class: "empty" }, NOT_ALLOWED));
    const known = await events.streamsByTime(signal);
    if (signal.aborted) return undefined;
    this.show(values, known);
    return this.run(signal);
  }

  leave() {
    this.asking?.abort();
  }

  /** Find an endpoint that translates LQL; return whether the key may read whole streams. */
  async learn(values) {
    const open = candidates(await described.endpoints(), values).filter((one) => one.languages.includes("lql"));
    if (!open.length) return true;
    const { endpoint, subQueries } = await described.firstAllowed(open);
    const subQuery = subQueries.find(isOfEvents)?.name;
    this.lender = subQuery ? { endpoint, subQuery } : null;
    return events.mayCount(endpoint);
  }

  show(values, known) {
    const names = [...new Set(choices.streamsFrom(values.streams))];
    const wanted = names.slice(0, choices.MOST_STREAMS);
    const range = ranges.isRange(values.range ?? "") ? values.range : ranges.USUAL;
    const limit = Math.min(MOST_ROWS, Number(values.limit) || USUAL_LIMIT);
    const bounds = ranges.bounds(range);
    const view = { text: values.q ?? "", project: values.project ?? "", range, bounds, limit, utc: values.utc === "1" };
    this.streams = known.filter((one) => wanted.includes(one.name));
    const tones = choices.tonesOf(this.streams.map(({ name }) => name));
    Object.assign(this, { view, bounds, tones, hasFailed: false });
    this.choice.show(known, wanted);
    this.picker.show(view.range, view.utc);
    if (this.shownText !== view.text) this.text.value = this.shownText = view.text;
    if (document.activeElement !== this.project) this.project.value = view.project;
    const gone = wanted.filter((name) => !known.some((one) => one.name === name));
    const cut = names.length > wanted.length ? [`Only the first ${choices.MOST_STREAMS} streams of the link are shown.`] : [];
    put(this.problems, [...gone.map((name) => `There is no stream ${name}.`), ...cut].map((words) => h("li", {}, words)));
    if (!wanted.length) this.offer(known);
  }

  /** List streams to begin with, while none is chosen. */
  offer(known) {
    const some = known.filter((one) => one.events > 0);
    const begin = "Choose a stream to begin with, and others with the button above";
    const place = ({ name }) => this.place({ streams: choices.streamsText([name]) });
    const words = some.length ? listed(begin, some, place, MOST_OFFERED) : "No stream has events yet.";
    put(this.result, h("div", { class: "empty" }, h("div", { class: "whereabouts" }, words)));
  }

  async run(signal) {
    const { view, streams } = this;
    Object.assign(this, { rows: [], buckets: [], isCut: false });
    if (!streams.length) return this.showNone();
    this.overview.hidden = false;
    put(this.summary, READING);
    const step = ranges.stepFor(view.bounds, this.histogram.mostBars);
    try {
      const queries = await events.queriesOf(view.text, view.limit, this.lender, signal);
      const askStream = async (stream) => {
        const [rows, buckets] = await Promise.all([
          events.rowsOf(stream, queries, view, signal),
          events.bucketsOf(stream, queries, view, step, signal),
        ]);
        if (!signal.aborted) this.add(rows, buckets, step);
      };
      await events.each(streams, signal, askStream, ({ name }, problem) => this.fail(`${name}: ${problem.message}`));
    } catch (problem) {
      if (problem.name !== "AbortError") this.fail(`${problem.message} ${problem.hint ?? ""}`.trim());
    }
    if (!signal.aborted) this.showAll(step, this.words());
    return undefined;
  }

  fail(words) {
    this.hasFailed = true;
    this.problems.append(h("li", {}, words));
  }

  add(rows, buckets, step) {
    this.isCut ||= rows.length >= this.view.limit;
    this.rows.push(...rows);
    this.buckets.push(...buckets);
    this.showAll(step, READING);
  }

  showNone() {
    put(this.summary, "");
    this.overview.hidden = this.table.element.hidden = this.more.hidden = true;
  }

  showAll(step, words) {
    const { view, bounds, buckets } = this;
    const rows = this.rows.sort((one, other) => other.timestamp - one.timestamp).slice(0, view.limit);
    const isCut = this.isCut || this.rows.length > rows.length;
    const series = this.streams.map(({ name }) => name);
    const [from, to] = [bounds.from / 1000, bounds.to / 1000];
    this.histogram.show({ buckets, stepMs: step * 1000, from, to, utc: view.utc, series });
    this.table.element.hidden = rows.length === 0;
    this.table.show({ rows, columns: COLUMNS, tone: "stream", utc: view.utc, isCut });
    this.more.hidden = !isCut || view.limit >= MOST_ROWS;
    put(this.result, rows.length || this.hasFailed || words === READING ? null : this.empty());
    put(this.summary, words);
  }

  words() {
    const all = this.buckets.reduce((sum, one) => sum + one.events, 0);
    const shown = Math.min(this.rows.length, this.view.limit);
    const of = this.streams.length === 1 ? this.streams[0].name : `${this.streams.length} streams`;
    if (all > shown) return `The newest ${count(shown)} of ${count(all)} events of ${of}.`;
    return `${shown === 1 ? "One event" : `${count(shown)} events`} of ${of}.`;
  }

  /** Say that no event matches, with a link to the newest events of the chosen streams. */
  empty() {
    const newest = Math.max(0, ...this.streams.map((one) => one.newest ?? 0));
    const { from, to } = this.bounds;
    const place = this.place({ range: ranges.around(newest, this.bounds) });
    const there = h("a", { class: "button", href: place }, "Look at the newest events");
    const words = h("p", {}, "Nothing in this time that matches.");
    return h("div", { class: "empty" }, words, newest && (newest < from || newest > to) ? there : null);
  }

  // Changes of the query

  submit(event) {
    event.preventDefault();
    const q = this.text.value.trim();
    // An unchanged address notifies the page too, which then reads again and reports errors.
    address.change(q === this.view?.text ? {} : { q, limit: "" });
  }

  filter(path, value, isNot, isWithin = false) {
    if (path.join() === "project" && !isNot) return address.change({ project: String(value) });
    return address.change({ q: withClause(this.view.text, filterText(path, value, { isNot, isWithin })) });
  }

  showMore() {
    address.change({ limit: String(Math.min(MOST_ROWS, this.view.limit * 2)) }, { refines: true });
  }

  place(values) {
    return address.hashOf("timeline", { ...address.current().values, ...values });
  }

  /** Copy a link with a fixed time range, which shows others the same events. */
  copyLink() {
    if (!this.bounds) return tell("Nothing is shown yet.");
    const { from, to } = this.bounds;
    return takeText(new URL(this.place({ range: ranges.fixed(from, to) }), location.href).href, "The link");
  }
}
