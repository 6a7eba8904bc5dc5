/** Explore's state: read from the address, with what the service offers filling the gaps. */

import * as address from "./address.js";
import { sortOf } from "./columns.js";
import { fieldsOf } from "./completion.js";
import { partingColumn } from "./explore-answers.js";
import * as lql from "./lql.js";
import { patternsOf } from "./pattern-query.js";
import { isOfEvents, nameOf, openParameters } from "./queries.js";
import { USUAL, bounds, fixed, isRange } from "./ranges.js";

const PARAMETER = "p.";
const USUAL_LIMIT = 100;
const MOST_ROWS = 1000;
/** Fields that part events best, the first that is there. */
const SERIES = [
  /(^|\.)error_severity$/,
  /(^|\.)level$/,
  /(^|\.)severity(_text)?$/,
  /(^|\.)status_code$/,
  /(^|\.)status$/,
];
/** What an endpoint without LQL is asked first. */
const FIRST_SQL =
  "select id, timestamp, source, severity_text, event_message\nfrom logs\norder by timestamp desc\nlimit 100";
const FIRST_COLUMNS = ["timestamp", "event_message"];

/** The endpoint that the address names, or all that take queries of a reader's own, the likeliest first. */
export function candidates(endpoints, values) {
  const open = endpoints.filter((one) => one.languages.length);
  const named = open.filter((one) => one.name === values.endpoint);
  return named.length ? named : open.sort((one, other) => isUsual(other) - isUsual(one));
}

function isUsual(endpoint) {
  return endpoint.name === "logs.all";
}

/** Everything that the page shows, from the address and the endpoint's sub-queries. */
export function viewOf(values, endpoint, subQueries) {
  const language = values.lang === "sql" || !endpoint.languages.includes("lql") ? "sql" : "lql";
  const text = values.q || (endpoint.languages.includes("lql") ? "" : FIRST_SQL);
  const named = language === "lql" ? lql.named(text) : "";
  const wanted = named || values.sub;
  const subQuery = subQueries.find((one) => one.name === wanted) ??
    subQueries[0] ?? { name: wanted ?? "", columns: [] };
  return {
    endpoint,
    language,
    text,
    subQuery: subQuery.name,
    columnsKnown: subQuery.columns,
    parameters: parametersOf(values, endpoint),
    range: isRange(values.range ?? "") ? values.range : USUAL,
    utc: values.utc === "1",
    isLive: values.live === "1",
    series: values.by ?? "",
    chosen: (values.cols ?? "").split("|").filter(Boolean),
    limit: Math.min(MOST_ROWS, Number(values.limit) || USUAL_LIMIT),
    // A query in SQL has its patterns in its text.
    patterns: language === "lql" ? patternsOf(values.pat) : [],
  };
}

/** How the address says that rows are arranged and drawn: that changes without anything being asked anew. */
export function arrangement() {
  const { sort, wrap, ...values } = address.current().values;
  return { sort: sortOf(sort), isWrapped: wrap === "1", chart: chartOf(values) };
}

function chartOf({ cx, cy, cg, stack, log, before, chart }) {
  const flags = { isStacked: stack === "1", isLog: log === "1", isGhost: before === "1" };
  return { x: cx, y: cy, group: cg, ...flags, isShown: chart && chart === "1" };
}

/** The address of a view with all that it depends on but the time, which moves on where it is relative. */
export function placeOf(view, values = {}) {
  return address.hashOf("explore", { ...valuesOf(view, address.current().values), ...values });
}

/** A link that shows others the same: the time is that of the rows. */
export function linkOf(view, { from, to } = bounds(view.range)) {
  return new URL(placeOf(view, { range: fixed(from, to) }), location.href).href;
}

/** A view as values of an address that say all of it: the endpoint, the sub-query and the parameters as well. */
function valuesOf({ endpoint, subQuery, parameters }, values) {
  const named = Object.entries(parameters).map(([name, value]) => [PARAMETER + name, value]);
  return { ...values, endpoint: endpoint.name, sub: subQuery, ...Object.fromEntries(named), live: "" };
}

/** What changes in the address when a parameter is filled in. */
export function parameterValue(name, value) {
  return { [PARAMETER + name]: value };
}

/** The fields of the sub-query with their texts, as the list and the menus show them. */
export function fieldsWithTexts(subQuery) {
  return fieldsOf(subQuery).map((field) => ({ ...field, text: lql.pathText(field.path) }));
}

/** The path of the field by which the bars are parted; empty for none. */
export function seriesOf(view, fields) {
  if (view.series === "none") return "";
  if (view.series) return view.series;
  for (const pattern of SERIES) {
    const found = fields.find(({ path }) => pattern.test(path.join(".")));
    if (found) return found.text;
  }
  return "";
}

/** The columns that are asked for: those that were chosen, or of events a time, what parts them, and the message. */
export function columnsOf(view, series) {
  if (view.chosen.length) return view.chosen;
  if (!hasEvents(view)) return [];
  const known = view.columnsKnown.map((one) => one.name);
  const first = FIRST_COLUMNS.filter((name) => known.includes(name));
  return series ? [first[0], series, ...first.slice(1)] : first;
}

/** Events have an id and a time; other rows are shown as they come. */
export function hasEvents(view) {
  return isOfEvents({ columns: view.columnsKnown });
}

/** How an answer is shown: as events with the columns that were chosen, or as whatever rows they are. */
export function tableOf(view, answer, paths, series) {
  const isPlain = view.language === "sql" || !paths.length || lql.isChart(view.text) || lql.hasColumns(view.text);
  if (isPlain) {
    const columns = answer.columns.map((name) => ({ name, label: name }));
    return { columns, tone: partingColumn(answer.columns), plotted: answer.columns };
  }
  return { columns: eventColumns(paths), tone: series && nameOf(series), plotted: [] };
}

/** An answer with rows that came since, the newest first; those that it has already are left out. */
export function withNewRows(answer, rows, limit) {
  const known = new Set(answer.rows.map((row) => row.id));
  const fresh = rows.filter((row) => row.id === undefined || !known.has(row.id)).reverse();
  const columns = answer.columns.length ? answer.columns : Object.keys(rows[0]);
  return { ...answer, columns, rows: [...fresh, ...answer.rows].slice(0, limit) };
}

function eventColumns(paths) {
  const isRemovable = paths.length > 1;
  return paths.map((path) => ({ path, name: nameOf(path), label: path, isTime: path === "timestamp", isRemovable }));
}

/** A pin of the key is the only value that it may ask for, whatever the address says. */
function parametersOf(values, endpoint) {
  const { pins } = endpoint.key;
  const open = openParameters(endpoint).map(({ name, fallback, choices }) => [
    name,
    Object.hasOwn(pins, name) ? pins[name] : (values[PARAMETER + name] ?? fallback ?? choices[0] ?? ""),
  ]);
  return Object.fromEntries(
    open.map(([name, value]) => [name, value === "" && name === "project" ? remembered() : String(value)]),
  );
}

/** The project that was asked for last in this tab, perhaps none: most calls need one, and it rarely changes. */
function remembered() {
  return sessionStorage.getItem("cordwood.project") ?? "default";
}

export function remember(project) {
  sessionStorage.setItem("cordwood.project", project);
}

/** The fields to list beside an answer; in SQL they are its columns. */
export function fieldsOfAnswer(view, answer, fields) {
  if (view.language === "lql") return fields;
  return answer.columns.map((name) => ({ path: [name], text: name, kinds: [typeof answer.rows[0]?.[name]] }));
}
