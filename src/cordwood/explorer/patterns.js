/** The panel of message patterns: templates of the found messages with their counts over time, and filters by them. */

import * as address from "./address.js";
import { ask } from "./api.js";
import { h, put, svg } from "./dom.js";
import { isClickHouse, translated } from "./explore-answers.js";
import { ago, compact, count, time } from "./format.js";
import { tell } from "./overlays.js";
import {
  MOST_LISTED,
  patternOf,
  patternsOf,
  patternsSql,
  PLACEHOLDER,
  regexOf,
  textOf,
  withoutPattern,
  withPattern,
} from "./pattern-query.js";
import { histogramRequest, messagesLql } from "./queries.js";
import { stepFor } from "./ranges.js";
import * as sql from "./sql.js";

/** The number of bars in the small chart of a pattern, and its size in pixels. */
const [MOST_BARS, WIDTH, HEIGHT] = [40, 120, 22];
const NEEDED = ["timestamp", "event_message"];

export class Patterns {
  constructor() {
    this.isOpen = false;
    this.toggle = h(
      "button",
      { type: "button", class: "button small", "aria-expanded": "false", onclick: () => this.setOpen(!this.isOpen) },
      h("span", { class: "chevron", "aria-hidden": "true" }),
      "Patterns",
    );
    this.told = h("p", { class: "faint", role: "status" });
    this.chips = h("ul", { class: "chips", "aria-label": "Filters by pattern" });
    this.list = h("ol", { class: "pattern-list", "aria-label": "Patterns of messages", hidden: true });
    const bar = h("div", { class: "pattern-bar" }, this.toggle, this.chips, this.told);
    this.element = h("section", { class: "patterns", "aria-label": "Patterns", hidden: true }, bar, this.list);
  }

  /** Show the filters of a view; `ask` requests the patterns once the rows have arrived. */
  show(view) {
    this.view = view;
    this.isOpen = address.current().values.patterns === "1";
    this.toggle.setAttribute("aria-expanded", String(this.isOpen));
    this.list.hidden = !this.isOpen;
    if (!this.isOpen || subjectOf(view) !== this.subject) this.leave();
    if (view.patterns.length) this.element.hidden = false;
    if (view.language === "lql") this.makeRoom(view);
    const chips = view.patterns.map((one) => this.chip(one));
    this.keepFocus(this.chips, chips);
  }

  leave() {
    this.asking?.abort();
    this.subject = "";
    this.told.textContent = "";
  }

  /** Show the panel as soon as the columns are known, so that the rows below do not move later. */
  makeRoom(view, answer) {
    const columns = view.language === "sql" ? (answer?.columns ?? []) : view.columnsKnown.map((one) => one.name);
    this.isOfMessages = NEEDED.every((name) => columns.includes(name));
    this.element.hidden = !view.patterns.length && !this.isOfMessages;
    this.toggle.hidden = !this.isOfMessages;
  }

  /** Request the patterns of a view and its answer, unless the panel is closed. */
  async ask(view, answer, bounds) {
    Object.assign(this, { view, asked: [view, answer, bounds] });
    this.makeRoom(view, answer);
    // Live does not repeat the request: the patterns hardly change, and cost more than the rows.
    const isKnown = view.isLive && subjectOf(view) === this.subject;
    if (!this.isOpen || !this.isOfMessages || isKnown) return;
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    this.subject = subjectOf(view);
    this.told.textContent = "Counting…";
    try {
      this.draw(await found(view, bounds, signal), bounds);
    } catch (problem) {
      if (problem.name !== "AbortError") this.fail(problem);
    }
  }

  setOpen(isOpen) {
    address.note({ patterns: isOpen ? "1" : "" });
    this.show(this.view);
    if (isOpen && this.asked) this.ask(...this.asked);
  }

  fail(problem) {
    // With Live, the request is repeated after a passing error.
    if (problem.isPassing) this.subject = "";
    put(this.list);
    this.told.textContent = `${problem.message} ${problem.hint ?? ""}`.trim();
  }

  draw({ rows, step }, { from, to }) {
    const { told, rest } = summaryOf(rows);
    this.told.textContent = told;
    const times = { first: Math.floor(from / 1_000_000 / step) * step, last: to / 1_000_000, step };
    this.keepFocus(this.list, [
      ...rows.map((row) => this.item(row, times, rows[0].events)),
      rest ? h("li", { class: "faint pattern-rest" }, rest) : null,
    ]);
  }

  item(row, times, most) {
    const { utc } = this.view;
    const pattern = patternOf(row);
    const span = `First ${time(row.first_at, { utc, digits: 0 })}, last ${time(row.last_at, { utc, digits: 0 })}`;
    const only = h(
      "button",
      {
        type: "button",
        class: "pattern-only",
        title: `For example: ${row.example}`,
        onclick: () => this.pick(pattern, false),
      },
      written(pattern),
    );
    const not = h(
      "button",
      {
        type: "button",
        class: "value-not",
        title: "Leave these out",
        "aria-label": `Leave out ${row.template}`,
        onclick: () => this.pick(pattern, true),
      },
      "≠",
    );
    return h(
      "li",
      { "data-template": row.template },
      h("span", { class: "pattern-count", style: { "--share": row.events / most } }, compact(row.events)),
      picture(row.over_time, times),
      h("div", { class: "pattern-text" }, only, h("span", { class: "faint", title: span }, `last ${ago(row.last_at)}`)),
      not,
    );
  }

  chip(pattern) {
    const words = `${pattern.isNot ? "Not the" : "The"} pattern ${pattern.template}`;
    const remove = h(
      "button",
      {
        type: "button",
        class: "remove",
        title: "Remove the filter",
        "aria-label": `Remove the filter: ${words}`,
        onclick: () => this.setFilters(withoutPattern(patternsOf(address.current().values.pat), pattern)),
      },
      "×",
    );
    return h(
      "li",
      { class: "chip", title: words, "data-template": pattern.template },
      pattern.isNot ? h("span", { class: "chip-not" }, "≠") : null,
      h("span", { class: "chip-text" }, written(pattern)),
      remove,
    );
  }

  /** Filter by a pattern. The list may belong to an earlier query, so the query of the current address is changed. */
  pick(pattern, isNot) {
    const { view } = this;
    const { q, pat } = address.current().values;
    if (view.language === "sql") {
      const [, answer] = this.asked;
      const about = { isNot, isClickHouse: isClickHouse(view) };
      address.change({ q: sql.matched(q || view.text, answer.columns, regexOf(pattern), about) });
    } else {
      const filters = withPattern(patternsOf(pat), { ...pattern, isNot });
      if (!filters) return tell("A query has no room for more patterns: remove one.");
      this.setFilters(filters);
    }
    return tell(isNot ? "Left out." : "Filtered.");
  }

  setFilters(patterns) {
    address.change({ pat: textOf(patterns) });
  }

  /** Replace the children; keep the focus at the same pattern, or move it to the button that opens the panel. */
  keepFocus(element, children) {
    const focused = element.contains(document.activeElement)
      ? document.activeElement.closest("[data-template]")?.dataset.template
      : undefined;
    put(element, children);
    if (focused === undefined) return;
    const same = [...element.children].find((one) => one.dataset.template === focused);
    (same?.querySelector("button") ?? this.toggle).focus();
  }
}

/** Return what determines the patterns, except the passing time. */
function subjectOf({ endpoint, subQuery, text, patterns, parameters, range }) {
  return JSON.stringify([endpoint.name, subQuery, text, patterns, parameters, range]);
}

/** Request the patterns of the messages that a view finds: {rows, step}. */
async function found(view, bounds, signal) {
  const isSql = view.language === "sql";
  const events = isSql ? sql.inner(view.text) : await translated(view, messagesLql(view, bounds), signal);
  const step = stepFor(bounds, MOST_BARS);
  const request = histogramRequest(view, bounds, patternsSql(events, step, isClickHouse(view)));
  const { rows } = await ask(view.endpoint, request, { signal });
  return { rows, step };
}

/** Describe the totals and what is not listed; in ClickHouse's dialect, totals are not known. */
function summaryOf(rows) {
  const listed = rows.reduce((sum, row) => sum + row.events, 0);
  const isAll = rows.length < MOST_LISTED;
  const { all_patterns: patterns = isAll ? rows.length : 0, all_events: events = listed } = rows[0] ?? {};
  if (!rows.length) return { told: "No message.", rest: "" };
  if (!patterns) return { told: `The ${MOST_LISTED} most frequent patterns.`, rest: "There may be more." };
  const told = `${count(patterns)} ${patterns === 1 ? "pattern" : "patterns"} of ${count(events)} messages.`;
  const more = `${count(patterns - rows.length)} more patterns with ${count(events - listed)} messages.`;
  return { told, rest: patterns > rows.length ? more : "" };
}

/** Return a template with its placeholders marked. */
function written({ template, isCut }) {
  if (!template) return ["(empty)"];
  const texts = template.split(PLACEHOLDER);
  const pieces = texts.flatMap((text, place) => (place ? [h("span", { class: "hole" }, PLACEHOLDER), text] : [text]));
  return [...pieces, isCut ? "…" : ""];
}

/** Draw the counts over time as small bars; all patterns have the same time axis. */
function picture(overTime, { first, last, step }) {
  const counts = overTime.map((one) => one.split(":").map(Number));
  const most = Math.max(...counts.map(([, events]) => events));
  const width = WIDTH / Math.max(1, Math.ceil((last - first) / step));
  const bars = counts.map(([at, events]) => {
    const height = Math.max(1.5, (events / most) * HEIGHT);
    const x = ((at - first) / step) * width;
    return svg("rect", { x, y: HEIGHT - height, width: Math.max(1, width - 0.5), height });
  });
  return svg("svg", { class: "pattern-times", width: WIDTH, height: HEIGHT, "aria-hidden": "true" }, bars);
}
