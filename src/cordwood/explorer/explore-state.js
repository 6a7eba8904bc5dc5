/** The state of Explore, read from the address, with defaults from what the service offers. */

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
/** Patterns of the fields by which bars are split into series; the first that matches a field is used. */
const SERIES = [
  /(^|\.)error_severity$/,
  /(^|\.)level$/,
  /(^|\.)severity(_text)?$/,
  /(^|\.)status_code$/,
  /(^|\.)status$/,
];
/** The initial query of an endpoint without LQL. */
const FIRST_SQL =
  "select id, timestamp, source, severity_text, event_message\nfrom logs\norder by timestamp desc\nlimit 100";
const FIRST_COLUMNS = ["timestamp", "event_message"];

/** Return the endpoint that the address names, or all that accept the reader's own queries, the usual one first. */
export function candidates(endpoints, values) {
  const open = endpoints.filter((one) => one.languages.length);
  const named = open.filter((one) => one.name === values.endpoint);
  return named.length ? named : open.sort((one, other) => isUsual(other) - isUsual(one));
}

function isUsual(endpoint) {
  return endpoint.name === "logs.all";
}

/** Return the view, that is, all values that determine what the page shows. */
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
    // In SQL, filters by a pattern are part of the query itself.
    patterns: language === "lql" ? patternsOf(values.pat) : [],
  };
}

/** Return from the address how rows are sorted, wrapped and drawn, which changes without a new request. */
export function arrangement() {
  const { sort, wrap, ...values } = address.current().values;
  return { sort: sortOf(sort), isWrapped: wrap === "1", chart: chartOf(values) };
}

function chartOf({ cx, cy, cg, stack, log, before, chart }) {
  const flags = { isStacked: stack === "1", isLog: log === "1", isGhost: before === "1" };
  return { x: cx, y: cy, group: cg, ...flags, isShown: chart && chart === "1" };
}

/** Return the address of a view, from which the same view can be shown later; a relative time range stays relative. */
export function placeOf(view, values = {}) {
  return address.hashOf("explore", { ...valuesOf(view, address.current().values), ...values });
}

/** Return a link that shows others the same rows: the time range is fixed. */
export function linkOf(view, { from, to } = bounds(view.range)) {
  return new URL(placeOf(view, { range: fixed(from, to) }), location.href).href;
}

/** Return the values of an address that determine the whole view, including those that are defaults here. */
function valuesOf({ endpoint, subQuery, parameters }, values) {
  const named = Object.entries(parameters).map(([name, value]) => [PARAMETER + name, value]);
  return { ...values, endpoint: endpoint.name, sub: subQuery, ...Object.fromEntries(named), live: "" };
}

/** Return the change of the address for a new value of a parameter. */
export function parameterValue(name, value) {
  return { [PARAMETER + name]: value };
}

/** Return the fields of the sub-query with their paths as text, as lists and menus show them. */
export function fieldsWithTexts(subQuery) {
  return fieldsOf(subQuery).map((field) => ({ ...field, text: lql.pathText(field.path) }));
}

/** Return the path of the field by which the bars are split into series; empty if there is none. */
export function seriesOf(view, fields) {
  if (view.series === "none") return "";
  if (view.series) return view.series;
  for (const pattern of SERIES) {
    const found = fields.find(({ path }) => pattern.test(path.join(".")));
    if (found) return found.text;
  }
  return "";
}

/** Return the columns to query: the chosen ones, or for events the time, the series field and the message. */
export function columnsOf(view, series) {
  if (view.chosen.length) return view.chosen;
  if (!hasEvents(view)) return [];
  const known = view.columnsKnown.map((one) => one.name);
  const first = FIRST_COLUMNS.filter((name) => known.includes(name));
  return series ? [first[0], series, ...first.slice(1)] : first;
}

/** Whether the sub-query yields events, which have an id and a time. */
export function hasEvents(view) {
  return isOfEvents({ columns: view.columnsKnown });
}

/** Return how an answer is shown: events with the chosen columns, other rows with all their columns. */
export function tableOf(view, answer, paths, series) {
  const isPlain = view.language === "sql" || !paths.length || lql.isChart(view.text) || lql.hasColumns(view.text);
  if (isPlain) {
    const columns = answer.columns.map((name) => ({ name, label: name }));
    return { columns, tone: partingColumn(answer.columns), plotted: answer.columns };
  }
  return { columns: eventColumns(paths), tone: series && nameOf(series), plotted: [] };
}

/** Return an answer with new rows in front, newest first, without those that it has already. */
export function withNewRows(answer, rows, limit) {
  // Events of several projects may have the same id.
  const keyOf = (row) => JSON.stringify([row.id, row.project]);
  const known = new Set(answer.rows.map(keyOf));
  const fresh = rows.filter((row) => row.id === undefined || !known.has(keyOf(row))).reverse();
  const columns = answer.columns.length ? answer.columns : Object.keys(rows[0]);
  return { ...answer, columns, rows: [...fresh, ...answer.rows].slice(0, limit) };
}

function eventColumns(paths) {
  const isRemovable = paths.length > 1;
  return paths.map((path) => ({ path, name: nameOf(path), label: path, isTime: path === "timestamp", isRemovable }));
}

/** Return the parameters. A pin of the key takes precedence over the address, because other values would be refused. */
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

/** Return the project that was last used in this tab: most queries need one, and it rarely changes. */
function remembered() {
  return sessionStorage.getItem("cordwood.project") ?? "default";
}

export function remember(project) {
  sessionStorage.setItem("cordwood.project", project);
}

/** Return the fields to list beside an answer; for SQL, these are its columns. */
export function fieldsOfAnswer(view, answer, fields) {
  if (view.language === "lql") return fields;
  return answer.columns.map((name) => ({ path: [name], text: name, kinds: [typeof answer.rows[0]?.[name]] }));
}
