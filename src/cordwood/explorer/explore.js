/** The Explore page: events of a sub-query over time, as a histogram, a table and trees. */

import * as address from "./address.js";
import { ask, Problem, written } from "./api.js";
import { Chart } from "./chart.js";
import { KnownValues } from "./completion.js";
import * as described from "./described.js";
import { h, option, put } from "./dom.js";
import { Editor } from "./editor.js";
import { EventTable } from "./event-table.js";
import * as answers from "./explore-answers.js";
import { ExploreBar } from "./explore-bar.js";
import * as changes from "./explore-changes.js";
import * as state from "./explore-state.js";
import * as taking from "./explore-taking.js";
import { FieldList } from "./field-list.js";
import { Histogram } from "./histogram.js";
import { historyMenu } from "./history-menu.js";
import { eventPlace, linksOf } from "./ids.js";
import { addToHistory } from "./kept.js";
import { Live } from "./live.js";
import { tell } from "./overlays.js";
import { Patterns } from "./patterns.js";
import * as queries from "./queries.js";
import * as ranges from "./ranges.js";
import * as receipts from "./receipt.js";
import { notForThisKey, nothing, Whereabouts } from "./whereabouts.js";

/** The periods at which Live repeats the query: while its rows are also streamed, and when they cannot be. */
const [FOLLOWED_MS, LIVE_MS] = [4000, 2500];

export class ExplorePage {
  constructor() {
    this.subQueries = [];
    this.fields = [];
    this.lastText = "";
    this.values = new KnownValues();
    this.whereabouts = new Whereabouts();
    this.bar = new ExploreBar({
      change: (values) => address.change(values),
      run: () => this.runTyped(),
      stop: () => this.stop(),
      onSlow: () => this.isWaiting && !this.view.isLive && this.mark("Asking."),
      setParameter: changes.setParameter,
      setLanguage: (name) => changes.setLanguage(this, name),
    });
    this.editor = new Editor({ onRun: () => this.runTyped(), onInput: () => {}, context: () => this.editing() });
    this.histogram = new Histogram({
      onSelect: (from, to) => address.change({ range: ranges.fixed(from, to) }),
      onPick: (name) => changes.pickSeries(this, name),
    });
    this.table = new EventTable({
      whole: (row) => answers.wholeEvent(this.view, row),
      onFilter: (...filter) => changes.filter(this, ...filter),
      onRemove: (column) => changes.toggleColumn(this, column.path),
      onCopy: (event) => taking.takeText(written(event), "The event"),
      onArrange: (arrangement) => address.note(arrangement),
      linksOf: (...value) => (answers.isClickHouse(this.view) ? [] : linksOf(this.view, ...value)),
      placeOf: (row) => (answers.isEvent(this.view, row) ? eventPlace(this.view, row) : null),
    });
    this.chart = new Chart({
      onChange: (values) => address.note(values),
      before: () => answers.periodBefore({ ...this.view, columns: this.asked() }, this.bounds),
    });
    this.live = new Live({
      onRows: (rows) => this.showRows(state.withNewRows(this.answer, rows, this.view.limit)),
      onRefused: () => (this.isUnfollowable = true),
    });
    this.fieldList = new FieldList({
      valuesOf: (field) => this.topValues(field),
      onFilter: (...filter) => changes.filter(this, ...filter),
      onColumn: (field) => changes.toggleColumn(this, field.text),
    });
    this.series = h("select", {
      "aria-label": "Stack the bars by",
      onchange: () => address.change({ by: this.series.value }),
    });
    this.patterns = new Patterns();
    this.summary = h("p", { class: "summary", role: "status" });
    this.result = h("div", { class: "result" });
    this.more = h(
      "button",
      { type: "button", class: "button", hidden: true, onclick: () => this.showMore() },
      "Show more",
    );
    this.element = this.layout();
  }

  layout() {
    const history = historyMenu({ placeNow: () => state.placeOf(this.view) });
    const menus = h("div", { class: "joined-apart" }, history, taking.menuOf(this));
    this.needingView = [this.bar.element, this.bar.languages, menus];
    for (const part of this.needingView) part.inert = true;
    this.stack = h("label", { class: "inline-field" }, h("span", {}, "by"), this.series);
    return h(
      "div",
      { class: "page explore" },
      h("h1", { class: "off-screen" }, "Explore"),
      this.bar.element,
      h("div", { class: "query-line" }, this.bar.languages, this.editor.element, menus),
      h(
        "section",
        { class: "card chart-card", "aria-label": "Histogram" },
        h("div", { class: "chart-head" }, this.summary, this.bar.progress.element, this.stack),
        this.histogram.element,
      ),
      h(
        "div",
        { class: "columns" },
        h("aside", { class: "card side", "aria-label": "Fields" }, this.fieldList.element),
        h(
          "section",
          { class: "card rows", "aria-label": "Rows" },
          this.patterns.element,
          this.chart.element,
          this.result,
          this.table.element,
          h("div", { class: "more" }, this.more),
        ),
      ),
    );
  }

  /** Update the page; called when it is shown and whenever the address changes. */
  async update(values) {
    try {
      if (!(await this.read(values))) return undefined;
    } catch (problem) {
      return this.failWhole(problem, values.endpoint);
    }
    this.show();
    return this.isTypedEarly ? this.runTyped() : this.run();
  }

  leave() {
    this.bar.busy(false);
    this.live.stop();
    this.patterns.leave();
    this.asking?.abort();
    clearTimeout(this.timer);
  }

  /** Read all that the address refers to; return false if the address has changed meanwhile. */
  async read(values) {
    const turn = (this.turn = Symbol("turn"));
    const endpoints = await described.endpoints();
    const candidates = state.candidates(endpoints, values);
    if (!candidates.length)
      throw new Problem(0, {
        message: "No endpoint here takes queries of your own.",
        hint: "An endpoint file says sandbox = true.",
      });
    const { endpoint, subQueries } = await described.firstAllowed(candidates);
    if (turn !== this.turn) return false;
    Object.assign(this, { endpoints, subQueries, view: state.viewOf(values, endpoint, subQueries) });
    this.shape = subQueries.find((one) => one.name === this.view.subQuery);
    await this.learn();
    return turn === this.turn;
  }

  /** Read the fields of the sub-query: from the service, or from a sample of events if the key may not. */
  async learn() {
    const place = `${this.view.endpoint.name} ${this.view.subQuery}`;
    const isElsewhere = this.learntPlace !== place;
    const isTold = this.shape?.columns.some((one) => one.fields.length);
    if (isElsewhere || isTold) this.fields = state.fieldsWithTexts(this.shape);
    if (!isElsewhere) return;
    this.learntPlace = place;
    this.values.forget();
    this.table.forget();
    if (!isTold && state.hasEvents(this.view)) await this.learnFromEvents();
  }

  async learnFromEvents() {
    const found = await answers.fieldsOfEvents(this.view, ranges.bounds(this.view.range)).catch(() => []);
    if (found.length) this.fields = found;
  }

  show() {
    const { view } = this;
    for (const part of this.needingView) part.inert = false;
    this.bar.show(view, this.endpoints, this.subQueries);
    this.editor.area.placeholder =
      view.language === "sql"
        ? `select … from ${view.subQuery}`
        : "Search: words, m.field:value, m.field:>=500 … Enter runs";
    // Text that was typed but not run stays until the address has another query.
    if (view.text !== this.lastText) this.editor.value = view.text;
    this.lastText = view.text;
    this.seriesPath = state.seriesOf(view, this.fields);
    this.columns = state.columnsOf(view, this.seriesPath);
    this.patterns.show(view);
    const likely = this.fields.filter(({ kinds }) => kinds.some((kind) => kind !== "object" && kind !== "array"));
    put(
      this.series,
      option("none", "nothing", !this.seriesPath),
      likely.map((one) => option(one.text, one.text, one.text === this.seriesPath)),
    );
  }

  editing() {
    const { view, shape } = this;
    return {
      language: view?.language ?? "lql",
      shape: shape && { ...shape, subQueries: this.subQueries.map((one) => one.name) },
      valuesOf: (path, again) => (view ? this.values.of(view, path, again) : []),
    };
  }

  // Requests

  async run() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    this.bar.busy(true, asking.signal);
    this.bounds = ranges.bounds(this.view.range);
    const isLater = await this.askBoth(asking.signal);
    if (asking.signal.aborted) return undefined;
    this.bar.busy(false);
    const { view } = this;
    if (isLater) this.patterns.ask(view, this.answer, this.bounds);
    const follows = view.isLive && isLater && !this.isUnfollowable && queries.canFollow(view);
    if (follows) this.live.start(view.endpoint, queries.followRequest({ ...view, columns: this.asked() }));
    else this.live.stop();
    if (view.isLive && isLater) this.timer = setTimeout(() => this.run(), follows ? FOLLOWED_MS : LIVE_MS);
    return undefined;
  }

  stop() {
    const words = `Stopped after ${(this.bar.elapsedMs / 1000).toFixed(1)} s.`;
    this.leave();
    // The rows may have arrived, but not their histogram.
    return this.isWaiting ? this.mark(words) : tell(words);
  }

  /** Mark the shown answer as one of an earlier query. */
  mark(words) {
    put(this.summary, words, this.answer ? " What is shown is of the query before." : "");
    this.element.classList.add("is-behind");
  }

  /** Read the rows and the histogram; return whether Live may try again, which it may after a passing error. */
  async askBoth(signal) {
    const rows = this.askRows(signal);
    const bars =
      this.view.language === "sql" ? rows.then((isGood) => isGood && this.askBars(signal)) : this.askBars(signal);
    const [isGood] = await Promise.all([rows, bars]);
    return isGood;
  }

  async askRows(signal) {
    this.isWaiting = true;
    const isText = this.view.language === "sql" && !this.view.text.trim();
    if (isText) {
      const message = answers.isClickHouse(this.view) ? "Write a query." : "Write a query, or switch to LQL.";
      return this.failRows(new Problem(0, { message }));
    }
    try {
      const parameters = queries.rowsRequest({ ...this.view, columns: this.asked() }, this.bounds);
      const answer = await ask(this.view.endpoint, parameters, { signal, fresh: this.view.isLive });
      this.lastRequest = parameters;
      this.remember();
      this.editor.clearError();
      this.showRows(answer);
      return true;
    } catch (problem) {
      return this.failRows(problem);
    }
  }

  /** Return the columns to request, with those that the table needs to identify and colour events. */
  asked() {
    const { columns, view } = this;
    if (!columns.length) return ["*"];
    const needed = state.hasEvents(view) ? ["id", "timestamp"] : [];
    const colouring = this.seriesPath ? [this.seriesPath] : [];
    return [...new Set([...needed, ...columns, ...colouring])];
  }

  async askBars(signal) {
    const isSql = this.view.language === "sql";
    const isOfEvents = isSql ? this.answer.columns.includes("timestamp") : state.hasEvents(this.view);
    this.histogram.element.hidden = !isOfEvents;
    this.stack.hidden = isSql || !isOfEvents;
    if (!isOfEvents) return undefined;
    const about = {
      seriesPath: this.seriesPath,
      columns: this.answer?.columns ?? [],
      mostBars: this.histogram.mostBars,
      signal,
    };
    try {
      const { rows, step, receipt } = await answers.bars(this.view, this.bounds, about);
      this.showBars(rows, step * 1000);
      if (receipt.truncated) tell(`Not all bars are shown: they were cut by ${receipt.truncated}.`);
      return undefined;
    } catch (problem) {
      // Errors in the query itself are shown in the editor, and the histogram stays.
      const isTold = problem.name === "AbortError" || problem.status === 400 || problem.status === 422;
      if (!isTold) this.histogram.clear(problem.message);
      return undefined;
    }
  }

  // Display

  showRows(answer) {
    const { view } = this;
    Object.assign(this, { answer, isWaiting: false });
    this.element.classList.remove("is-behind");
    const { columns, tone, plotted } = state.tableOf(view, answer, this.columns, this.seriesPath);
    const { chart, ...arranged } = state.arrangement();
    this.patterns.makeRoom(view, answer);
    this.chart.show({ rows: answer.rows, columns: plotted, utc: view.utc, wished: chart });
    put(this.result, answer.rows.length ? null : nothing(this.whereabouts.of(view, this.bounds)));
    this.table.element.hidden = answer.rows.length === 0;
    const isCut = answers.hasMore(answer);
    this.table.show({ ...arranged, rows: answer.rows, columns, tone, utc: view.utc, isCut });
    this.fieldList.show(state.fieldsOfAnswer(view, answer, this.fields), this.columns, { isStale: true });
    this.more.hidden = !isCut;
    this.summarise(answer.receipt);
  }

  summarise(receipt) {
    const [first, , ...rest] = receipts.sentences(receipt);
    if (this.view.language === "sql" && !queries.timeParameters(this.view.endpoint))
      rest.push("The time range holds for LQL alone: this endpoint has no parameters for it.");
    put(this.summary, first, " ", h("span", { class: "faint" }, rest.join(" ")));
  }

  showBars(rows, stepMs) {
    const buckets = rows.map((row) => ({ at: row.at / 1000, series: row.series ?? "events", events: row.events }));
    const { from, to } = this.bounds;
    this.histogram.show({ buckets, stepMs, from: from / 1000, to: to / 1000, utc: this.view.utc });
  }

  failRows(problem) {
    if (problem.name === "AbortError") return false;
    this.isWaiting = false;
    const before = this.view.language === "sql" || !problem.line ? 0 : queries.LINES_BEFORE;
    const line = Math.max(0, problem.line - before);
    this.editor.fail({ message: problem.message, hint: problem.hint, line, column: problem.column });
    this.mark("");
    return problem.isPassing === true;
  }

  /** Show that the endpoint cannot be used: remove the answer of another one, and offer a way out of the address. */
  failWhole(problem, endpoint) {
    this.bar.busy(false);
    this.editor.fail({ message: problem.message, hint: problem.hint, line: 0, column: 0 });
    put(this.summary, "");
    put(this.result, endpoint && problem.status === 403 ? notForThisKey(endpoint) : null);
    this.table.element.hidden = true;
    this.more.hidden = true;
  }

  // Changes of the query

  /** Run the typed query; Enter that comes before the view is known takes effect later. */
  runTyped() {
    const text = this.editor.value.trim();
    this.isTypedEarly = !this.view;
    if (!this.view) return undefined;
    if (text === this.view.text) return this.run();
    this.lastText = text;
    return address.change({ q: text, lang: this.view.language === "sql" ? "sql" : "" });
  }

  /** Add an answered query to the history, unless it is one that Live repeats. */
  remember() {
    const { view } = this;
    const about = [view.subQuery, ...Object.values(view.parameters).filter(Boolean)].join(", ");
    if (!view.isLive) addToHistory({ place: state.placeOf(this.view), text: view.text, about });
  }

  asSql() {
    return answers.sqlOf({ ...this.view, columns: this.asked() }, ranges.bounds(this.view.range));
  }

  async showMore() {
    this.more.disabled = true;
    this.showRows(await answers.withNextPage(this.view, this.lastRequest, this.answer, this.asking.signal));
    this.more.disabled = false;
  }

  // Details

  topValues(field) {
    const path = this.view.language === "sql" ? field.path[0] : field.text;
    return answers.topValues(this.view, this.bounds ?? ranges.bounds(this.view.range), path);
  }

  /** Return the request of the shown rows, or of those that would be shown, for files and calls. */
  requestNow() {
    const view = { ...this.view, columns: this.asked() };
    return this.lastRequest ?? queries.rowsRequest(view, ranges.bounds(view.range));
  }
}
