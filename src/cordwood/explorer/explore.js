/** Explore: events of a sub-query over time, as a histogram, a table and trees. */

import * as address from "./address.js";
import { Problem, ask, read } from "./api.js";
import * as described from "./described.js";
import { h, option, put } from "./dom.js";
import { Editor } from "./editor.js";
import { endpointFile } from "./endpoint-file.js";
import { EventTable } from "./event-table.js";
import { ExploreBar } from "./explore-bar.js";
import { saveMenu } from "./explore-menu.js";
import * as state from "./explore-state.js";
import { FieldList } from "./field-list.js";
import { Histogram } from "./histogram.js";
import { lineChart, plotOf } from "./lines.js";
import * as lql from "./lql.js";
import * as queries from "./queries.js";
import * as ranges from "./ranges.js";
import * as receipts from "./receipt.js";
import { copy, curlOf, downloadAs, downloadText } from "./save.js";
import * as sql from "./sql.js";
import { tell } from "./telling.js";
import { unwrapped } from "./tree.js";

const LIVE_MS = 2500;
const SQL_TO_BEGIN = (name) => `select timestamp, event_message\nfrom ${sql.name(name)}\norder by timestamp desc\nlimit 100`;

export class ExplorePage {
  constructor() {
    this.subQueries = [];
    this.fields = [];
    this.valuesByPath = new Map();
    this.bar = new ExploreBar({
      change: (values) => address.change(values), run: () => this.runTyped(),
      setParameter: (name, value) => this.setParameter(name, value), setLanguage: (name) => this.setLanguage(name),
    });
    this.editor = new Editor({ onRun: () => this.runTyped(), onInput: () => {}, context: () => this.editing() });
    this.histogram = new Histogram({ onSelect: (from, to) => address.change({ range: ranges.fixed(from, to) }), onPick: (name) => this.pickSeries(name) });
    this.table = new EventTable({
      whole: (row) => this.whole(row), onFilter: (...filter) => this.filter(...filter),
      onRemove: (column) => this.setColumns(this.columns.filter((one) => one !== column.path)), onCopy: (text) => this.copied(text, "The event"),
    });
    this.fieldList = new FieldList({ valuesOf: (field) => this.topValues(field), onFilter: (...filter) => this.filter(...filter), onColumn: (field) => this.toggleColumn(field) });
    this.series = h("select", { "aria-label": "Stack the bars by", onchange: () => address.change({ by: this.series.value }) });
    this.summary = h("p", { class: "summary", role: "status" });
    this.result = h("div", { class: "result" });
    this.more = h("button", { type: "button", class: "button", hidden: true, onclick: () => this.showMore() }, "Show more");
    this.element = this.layout();
  }

  layout() {
    const save = saveMenu({
      formats: () => this.view?.endpoint.formats ?? [], download: (form) => this.download(form),
      copyCurl: () => this.copyCurl(), copyLink: () => this.copied(location.href, "The link"), saveFile: (name) => this.saveFile(name),
    });
    const stack = h("label", { class: "inline-field" }, h("span", {}, "by"), this.series);
    return h("div", { class: "page explore" }, h("h1", { class: "off-screen" }, "Explore"),
      this.bar.element,
      h("div", { class: "query-line" }, this.bar.languages, this.editor.element, save),
      h("section", { class: "card chart-card", "aria-label": "Histogram" }, h("div", { class: "chart-head" }, this.summary, stack), this.histogram.element),
      h("div", { class: "columns" }, h("aside", { class: "card side", "aria-label": "Fields" }, this.fieldList.element),
        h("section", { class: "card rows", "aria-label": "Rows" }, this.result, this.table.element, h("div", { class: "more" }, this.more))));
  }

  /** Called when the page is shown and whenever the address changes. */
  async update(values) {
    try {
      await this.read(values);
    } catch (problem) {
      return this.failWhole(problem);
    }
    if (!this.view) return undefined;
    this.show();
    return this.run();
  }

  leave() {
    this.asking?.abort();
    clearTimeout(this.timer);
  }

  async read(values) {
    const turn = (this.turn = Symbol("turn"));
    const endpoints = await described.endpoints();
    const endpoint = state.chosenEndpoint(endpoints, values);
    if (!endpoint) throw new Problem(0, { message: "No endpoint here takes queries of your own.", hint: "An endpoint file says sandbox = true." });
    const subQueries = await described.scope(endpoint);
    if (turn !== this.turn) return;
    Object.assign(this, { endpoints, subQueries, view: state.viewOf(values, endpoint, subQueries) });
    this.shape = subQueries.find((one) => one.name === this.view.subQuery);
    await this.learn();
  }

  /** The fields of the sub-query: as the service tells them, or, where it does not, as events have them. */
  async learn() {
    const place = `${this.view.endpoint.name} ${this.view.subQuery}`;
    if (this.learntPlace === place) return;
    this.fields = state.fieldsWithTexts(this.shape);
    this.learntPlace = place;
    this.valuesByPath.clear();
    this.table.forget();
    const isTold = this.shape?.columns.some((one) => one.fields.length);
    if (!isTold && state.hasEvents(this.view) && !state.missing(this.view).length) await this.learnFromEvents();
  }

  async learnFromEvents() {
    const answer = await ask(this.view.endpoint, queries.sampleRequest(this.view, ranges.bounds(this.view.range))).catch(() => null);
    const found = new Map();
    for (const row of answer?.rows ?? []) collect(unwrapped(row), [], found);
    if (found.size) this.fields = [...found.values()];
  }

  show() {
    const { view } = this;
    this.bar.show(view, this.endpoints, this.subQueries);
    this.editor.area.placeholder = view.language === "sql" ? `select … from ${view.subQuery}` : "Search: words, m.field:value, m.field:>=500 … Enter runs";
    if (document.activeElement !== this.editor.area || this.editor.value === this.lastText) this.editor.value = view.text;
    this.lastText = view.text;
    this.seriesPath = state.seriesOf(view, this.fields);
    this.columns = state.columnsOf(view, this.seriesPath);
    const likely = this.fields.filter(({ kinds }) => kinds.some((kind) => kind !== "object" && kind !== "array"));
    put(this.series, option("none", "nothing", !this.seriesPath), likely.map((one) => option(one.text, one.text, one.text === this.seriesPath)));
  }

  editing() {
    const { view, shape } = this;
    return {
      language: view?.language ?? "lql",
      shape: shape && { ...shape, subQueries: this.subQueries.map((one) => one.name) },
      valuesOf: (path, again) => this.knownValues(path, again),
    };
  }

  // Asking

  async run() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const lacking = state.missing(this.view);
    if (lacking.length) return this.failWhole(new Problem(0, { message: `Fill in ${lacking.map((one) => one.name).join(", ")} first.` }));
    this.bar.busy(true);
    this.bounds = ranges.bounds(this.view.range);
    const isLater = await this.askBoth(asking.signal);
    if (asking.signal.aborted) return undefined;
    this.bar.busy(false);
    if (this.view.isLive && isLater) this.timer = setTimeout(() => this.run(), LIVE_MS);
    return undefined;
  }

  /** The rows and the histogram at once; whether it is worth asking again. */
  async askBoth(signal) {
    const rows = this.askRows(signal);
    const bars = this.view.language === "sql" ? rows.then((isGood) => isGood && this.askBars(signal)) : this.askBars(signal);
    const [isGood] = await Promise.all([rows, bars]);
    return isGood;
  }

  async askRows(signal) {
    const isText = this.view.language === "sql" && !this.view.text.trim();
    if (isText) return this.failRows(new Problem(0, { message: "Write a query, or switch to LQL." }));
    try {
      const parameters = queries.rowsRequest({ ...this.view, columns: this.asked() }, this.bounds);
      const answer = await ask(this.view.endpoint, parameters, { signal, fresh: this.view.isLive });
      this.lastRequest = parameters;
      this.editor.clearError();
      this.showRows(answer);
      return true;
    } catch (problem) {
      return this.failRows(problem);
    }
  }

  /** The columns of the request: what the table needs to know an event by comes with them. */
  asked() {
    const { columns, view } = this;
    if (!columns.length) return ["*"];
    const needed = state.hasEvents(view) ? ["id", "timestamp"] : [];
    const colouring = this.seriesPath ? [this.seriesPath] : [];
    return [...new Set([...needed, ...columns, ...colouring])];
  }

  async askBars(signal) {
    if (this.view.language === "lql" && !state.hasTime(this.view)) return this.histogram.clear("These rows have no time.");
    try {
      const { events, hasSeries } = await this.eventsSql(signal);
      const step = ranges.stepFor(this.bounds, this.histogram.mostBars);
      const text = queries.histogramSql(events, step, hasSeries);
      const { rows } = await ask(this.view.endpoint, queries.histogramRequest(this.view, this.bounds, text), { signal });
      return this.showBars(rows, step * 1000);
    } catch (problem) {
      if (problem.name !== "AbortError") this.histogram.clear(this.view.language === "sql" ? "No histogram of this query." : problem.message);
      return undefined;
    }
  }

  /** The query beneath the histogram: an LQL one is asked for in SQL, one in SQL is used as it is. */
  async eventsSql(signal) {
    if (this.view.language === "sql") {
      const names = this.answer?.columns ?? [];
      if (!names.includes("timestamp")) throw new Problem(0, { message: "These rows have no time." });
      const series = names.find((name) => /^(level|severity|error_severity|status|status_code)$/.test(name));
      const inner = sql.inner(this.view.text);
      return { events: series ? `select timestamp, ${sql.name(series)} as series from (\n${inner}\n) as q` : inner, hasSeries: Boolean(series) };
    }
    const text = queries.eventsLql(this.view, this.bounds, this.seriesPath);
    const address_ = `/api/endpoints/${encodeURIComponent(this.view.endpoint.name)}/sql`;
    const told = await read(address_, { lql: text }, { signal });
    return { events: told.sql, hasSeries: Boolean(this.seriesPath) };
  }

  // Showing

  showRows(answer) {
    const { view } = this;
    this.answer = answer;
    const isEvents = view.language === "lql" && this.columns.length > 0 && !lql.isChart(view.text) && !lql.hasColumns(view.text);
    const columns = isEvents ? this.eventColumns() : answer.columns.map((name) => ({ name, label: name, isTime: name === "timestamp" }));
    const tone = isEvents && this.seriesPath ? this.nameOf(this.seriesPath) : (answer.columns.find((name) => /^(level|.*severity|status|status_code)$/.test(name)) ?? "");
    const plot = isEvents ? null : plotOf(answer.rows, answer.columns);
    put(this.result, plot ? lineChart(answer.rows, plot, view.utc) : null, answer.rows.length ? null : this.nothing());
    this.table.element.hidden = answer.rows.length === 0;
    this.table.show({ rows: answer.rows, columns, tone, utc: view.utc });
    this.fieldList.show(this.fieldsNow(answer), this.columns, { isStale: true });
    this.more.hidden = !(isEvents && answer.rows.length >= view.limit && view.limit < state.MOST_ROWS && !lql.hasLimit(view.text));
    put(this.summary, receipts.sentences(answer.receipt).slice(0, 1), " ", h("span", { class: "faint" }, receipts.sentences(answer.receipt).slice(2).join(" ")));
  }

  /** In SQL the fields are the columns of its answer. */
  fieldsNow(answer) {
    if (this.view.language === "lql") return this.fields;
    return answer.columns.map((name) => ({ path: [name], text: name, kinds: [typeof answer.rows[0]?.[name]] }));
  }

  eventColumns() {
    return this.columns.map((path) => ({ path, name: this.nameOf(path), label: path, isTime: path === "timestamp", isRemovable: this.columns.length > 1 }));
  }

  /** What a column is called in the answer. */
  nameOf(path) {
    return /^\w+$/.test(path) ? path : queries.aliasOf(path);
  }

  nothing() {
    return h("div", { class: "empty" }, h("p", {}, "Nothing in this time that matches."),
      h("button", { type: "button", class: "button", onclick: () => address.change({ range: "7d" }) }, "Look at 7 days"));
  }

  showBars(rows, stepMs) {
    const buckets = rows.map((row) => ({ at: row.at / 1000, series: row.series ?? "events", events: row.events }));
    const { from, to } = this.bounds;
    this.histogram.show({ buckets, stepMs, from: from / 1000, to: to / 1000, utc: this.view.utc });
  }

  failRows(problem) {
    if (problem.name === "AbortError") return false;
    const before = this.view.language === "sql" || !problem.line ? 0 : queries.LINES_BEFORE;
    const line = Math.max(0, problem.line - before);
    this.editor.fail({ message: problem.message, hint: problem.hint, line, column: problem.column });
    put(this.summary, "No rows: the query could not be answered.");
    return false;
  }

  failWhole(problem) {
    this.bar.busy(false);
    this.editor.fail({ message: problem.message, hint: problem.hint, line: 0, column: 0 });
    put(this.summary, "");
  }

  // Changing the query

  runTyped() {
    const text = this.editor.value.trim();
    this.lastText = this.editor.value;
    if (text === (this.view?.text ?? "")) return this.run();
    return address.change({ q: text, lang: this.view.language === "sql" ? "sql" : "" });
  }

  filter(path, value, isNot) {
    const { view } = this;
    const text = view.language === "sql" ? sql.filtered(view.text, path, value, isNot) : lql.withClause(view.text, lql.filterText(path, value, isNot));
    address.change({ q: text });
    tell(isNot ? "Left out." : "Filtered.");
  }

  /** A class of statuses is a range of numbers; a level or any other name is itself. */
  pickSeries(name) {
    if (this.view.language === "sql" || !this.seriesPath) return;
    const status = /^([1-5])xx$/.exec(name);
    const clause = status ? `${this.seriesPath}:${status[1]}00..${status[1]}99` : name === "–" ? `${this.seriesPath}:NULL` : name === "other" ? "" : `${this.seriesPath}:${JSON.stringify(name)}`;
    if (clause) address.change({ q: lql.withClause(this.view.text, clause) });
  }

  setParameter(name, value) {
    if (name === "project") state.remember(value);
    address.change(state.parameterValue(name, value));
  }

  /** From LQL to SQL the query comes along; there is no way back but to where it came from. */
  async setLanguage(language) {
    if (language === "lql") return address.change({ lang: "", q: this.leftLql ?? "" });
    this.leftLql = this.view.text;
    return address.change({ lang: "sql", q: await this.asSql().catch(() => SQL_TO_BEGIN(this.view.subQuery)) });
  }

  async asSql() {
    if (this.view.language === "sql") return this.view.text;
    const view = { ...this.view, columns: this.asked() };
    const place = `/api/endpoints/${encodeURIComponent(view.endpoint.name)}/sql`;
    const told = await read(place, { lql: queries.rowsRequest(view, ranges.bounds(view.range)).lql });
    return told.sql;
  }

  toggleColumn({ text }) {
    const isThere = this.columns.includes(text);
    this.setColumns(isThere ? this.columns.filter((one) => one !== text) : [...this.columns, text]);
  }

  setColumns(columns) {
    address.change({ cols: columns.join("|") });
  }

  showMore() {
    address.change({ limit: Math.min(state.MOST_ROWS, this.view.limit * 3) }, { refines: true });
  }

  // Looking closer

  async whole(row) {
    const isEvent = row.id !== undefined && typeof row.timestamp === "number" && this.view.language === "lql";
    if (!isEvent) return unwrapped(row);
    const { rows } = await ask(this.view.endpoint, queries.eventRequest(this.view, row));
    return unwrapped(rows[0] ?? row);
  }

  async topValues(field) {
    const bounds = this.bounds ?? ranges.bounds(this.view.range);
    const path = this.view.language === "sql" ? field.path[0] : field.text;
    const { rows } = await ask(this.view.endpoint, queries.valuesRequest(this.view, bounds, path));
    return rows.map((row) => Object.values(row)).map(([value, events]) => ({ value, events }));
  }

  /** Values for completion: those that are known, and a look for more, once a field. */
  knownValues(path, again) {
    const known = this.valuesByPath.get(path);
    if (known) return known;
    this.valuesByPath.set(path, []);
    const quiet = { ...this.view, text: "" };
    ask(quiet.endpoint, queries.valuesRequest(quiet, ranges.bounds(quiet.range), path)).then(({ rows }) => {
      const found = rows.map((row) => Object.values(row)).filter(([value]) => typeof value !== "object");
      const texts = found.map(([value, events]) => ({ text: lql.filterText(["x"], value).slice(2), hint: String(events) }));
      this.valuesByPath.set(path, texts);
      if (texts.length) again();
    }, () => {});
    return [];
  }

  // Taking it elsewhere

  async download(form) {
    await downloadAs(this.view.endpoint, this.requestNow(), form).catch((problem) => tell(problem.message));
  }

  copyCurl() {
    return this.copied(curlOf(this.view.endpoint, this.requestNow()), "The call");
  }

  requestNow() {
    return this.lastRequest ?? queries.rowsRequest({ ...this.view, columns: this.asked() }, ranges.bounds(this.view.range));
  }

  async copied(text, what) {
    await copy(text).then(() => tell(`${what} is in the clipboard.`), () => tell("The clipboard cannot be written here."));
  }

  async saveFile(name) {
    try {
      const definition = await described.definition(this.view.endpoint);
      if (!definition) return tell("Only a private key may read the endpoint's own query, which the file holds.");
      return downloadText(endpointFile(definition, await this.asSql(), name), `${name}.sql`);
    } catch (problem) {
      return tell(problem.message);
    }
  }
}

/** Every path of an event that holds a value, with its kind. */
function collect(value, path, found) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, one] of Object.entries(value)) collect(one, [...path, key], found);
    return;
  }
  const text = lql.pathText(path);
  if (!found.has(text)) found.set(text, { path, text, kinds: [typeof (Array.isArray(value) ? value[0] : value)] });
}
