/** The parameters of Explore's requests: for rows, the histogram, the top values of a field, and one whole event. */

import { iso } from "./format.js";
import * as lql from "./lql.js";
import { clausesOf, grouped } from "./pattern-query.js";
import { NONE, OTHERS } from "./series.js";
import * as sql from "./sql.js";

const BEGINS = /(^|_)(start|from|since|after|begin)(_|$)/i;
const ENDS = /(^|_)(end|to|until|before)(_|$)/i;
const MOST_SERIES = 7;
const MOST_VALUES = 12;
/** The number of lines that `head` puts before the reader's query, to be subtracted from the lines of errors. */
export const LINES_BEFORE = 1;

/** Return the pair of the endpoint's parameters that limit the time, or null if it has none. */
export function timeParameters(endpoint) {
  const times = endpoint.parameters.filter((one) => one.kind === "date-time");
  const from = times.find((one) => BEGINS.test(one.name));
  const to = times.find((one) => ENDS.test(one.name) && one !== from);
  return from && to ? { from: from.name, to: to.name } : null;
}

/** Return the parameters that the reader fills in. */
export function openParameters(endpoint) {
  const times = timeParameters(endpoint);
  return endpoint.parameters.filter((one) => one.name !== times?.from && one.name !== times?.to);
}

export function hasParameter(endpoint, name) {
  return endpoint.parameters.some((one) => one.name === name);
}

/** Return the request for rows. `view` has endpoint, parameters, subQuery, language, text, columns and limit. */
export function rowsRequest(view, bounds) {
  if (view.language === "sql") return { ...fixed(view, bounds), sql: view.text };
  const page = isPaged(view) ? { page_size: view.limit } : {};
  return { ...fixed(view, bounds), ...page, lql: rowsLql(view, bounds, []) };
}

/** Return the query in LQL with the page size as its limit. */
export function limitedLql(view, bounds) {
  return rowsLql(view, bounds, isPaged(view) ? [`limit:${view.limit}`] : []);
}

function isPaged({ text }) {
  return !lql.hasLimit(text) && !lql.isChart(text);
}

function rowsLql(view, bounds, limit) {
  const shows = lql.isChart(view.text) || lql.hasColumns(view.text) ? [] : view.columns.map(column);
  return `${head(view, bounds, [...shows, ...limit])}\n${grouped(view.text, view.patterns)}`.trimEnd();
}

/** Return the request that follows the query: without a time range, and without a limit. */
export function followRequest(view) {
  return timeless(view, view.text, lql.hasColumns(view.text) ? [] : view.columns.map(column));
}

/** Return a request in LQL with these clauses and without a time range. */
function timeless(view, text, clauses) {
  const source = lql.named(text) ? [] : [`f:${view.subQuery}`];
  const all = [...source, ...clauses, ...clausesOf(view.patterns)];
  return { ...view.parameters, lql: `${all.join(" ")}\n${grouped(text, view.patterns)}`.trimEnd() };
}

/** Whether the query can probably be followed: it yields single events in order of arrival. */
export function canFollow(view) {
  const isPaged = lql.isChart(view.text) || lql.hasLimit(view.text) || lql.hasOrder(view.text);
  return view.language === "lql" && !isPaged;
}

/** Return the request for the time of the newest event that matches these filters, at any time. */
export function newestRequest(view, text) {
  return timeless(view, text, ["s:timestamp", "limit:1"]);
}

/** Return the request for all fields of one event. */
export function eventRequest(view, row) {
  const around = { from: row.timestamp - 1_000_000, to: row.timestamp + 1_000_000 };
  return clauseRequest(view, around, `${lql.filterText(["id"], String(row.id))} s:* limit:1`);
}

/** Return the request for the events of a sub-query in a time range, with these clauses. */
export function clauseRequest(view, bounds, clauses) {
  const plain = { ...view, text: "", patterns: [] };
  return { ...fixed(plain, bounds), lql: `${head(plain, bounds, [])} ${clauses}` };
}

/** Whether a sub-query yields events, which have an id and a time. */
export function isOfEvents({ columns }) {
  const known = columns.map((one) => one.name);
  return known.includes("id") && known.includes("timestamp");
}

/** Return the initial SQL after switching from LQL, if the query cannot be translated. */
export function firstSql(subQuery) {
  return `select timestamp, event_message\nfrom ${sql.name(subQuery)}\norder by timestamp desc\nlimit 100`;
}

/** Return the request for a sample of whole events, which shows their fields. */
export function sampleRequest(view, bounds) {
  return clauseRequest(view, bounds, "s:* limit:50");
}

/** Return LQL for the events of the query: their time and, if there is one, the series field. */
export function eventsLql(view, bounds, seriesPath) {
  const shows = ["s:timestamp", ...(seriesPath ? [`s:${seriesPath}@series`] : [])];
  return `${head(view, bounds, shows)}\n${filters(view)}`.trimEnd();
}

/** Return LQL for the events of the query with their messages. */
export function messagesLql(view, bounds) {
  return `${head(view, bounds, ["s:timestamp", "s:event_message"])}\n${filters(view)}`.trimEnd();
}

function filters(view) {
  return grouped(lql.filtersOf(view.text), view.patterns);
}

/**
 * Return SQL that counts events by time and series, over a query that yields `timestamp` and perhaps `series`. Values
 * are grouped first and named after, because computing a name takes longer than counting.
 */
export function histogramSql(events, step, hasSeries, isClickHouse) {
  if (isClickHouse) {
    const micros = `intDiv(toUnixTimestamp(timestamp), ${step}) * ${step * 1_000_000} as at`;
    return `select ${micros}, count() as events\nfrom (\n${events}\n) as e\ngroup by at\norder by at`;
  }
  const at = `timestamp_seconds(div(unix_seconds(timestamp), ${step}) * ${step}) as at`;
  if (!hasSeries) return `select ${at}, count(*) as events\nfrom (\n${events}\n) as e\ngroup by 1\norder by 1`;
  return [
    `with counted as (\nselect ${at}, series, count(*) as events\nfrom (\n${events}\n) as e\ngroup by 1, 2\n),`,
    `named as (select at, ${seriesName("series")} as series, events from counted),`,
    `most as (select series from named group by 1 order by sum(events) desc limit ${MOST_SERIES})`,
    `select at, if(series in (select series from most), series, '${OTHERS}') as series, sum(events) as events`,
    "from named\ngroup by 1, 2\norder by 1",
  ].join("\n");
}

export function histogramRequest(view, bounds, text) {
  return { ...fixed(view, bounds), sql: text };
}

/** Return the request for the most frequent values of a field, with their counts. */
export function valuesRequest(view, bounds, path) {
  if (view.language === "sql") return { ...fixed(view, bounds), sql: valuesSql(view.text, path) };
  const chart = ["c:count(*)", `c:group_by(${path})`, `limit:${MOST_VALUES}`];
  return { ...fixed(view, bounds), lql: `${head(view, bounds, chart)}\n${filters(view)}`.trimEnd() };
}

/** Return a clause for one series: statuses are grouped by class, and "other" cannot be expressed. */
export function seriesClause(path, name) {
  const status = /^([1-5])xx$/.exec(name);
  if (status) return `${path}:${status[1]}00..${status[1]}99`;
  if (name === OTHERS) return "";
  return name === NONE ? `${path}:NULL` : `${path}:${JSON.stringify(name)}`;
}

/** Return the name of a path's column in the answer. */
export function nameOf(path) {
  return /^\w+$/.test(path) ? path : aliasOf(path);
}

function aliasOf(path) {
  return (
    path
      .replace(/^m\./, "")
      .replace(/\W+/g, "_")
      .replace(/^_+|_+$/g, "") || "value"
  );
}

function fixed(view, bounds) {
  const times = timeParameters(view.endpoint);
  return { ...view.parameters, ...(times ? { [times.from]: iso(bounds.from), [times.to]: iso(bounds.to) } : {}) };
}

/** Return the clauses that the page adds, on a line before the reader's query. */
function head(view, bounds, clauses) {
  const source = lql.named(view.text) ? [] : [`f:${view.subQuery}`];
  const isBounded = timeParameters(view.endpoint) || !hasTime(view);
  const times = isBounded ? [] : [`t:${iso(bounds.from)}..${iso(bounds.to)}`];
  return [...source, ...times, ...clauses, ...clausesOf(view.patterns)].join(" ");
}

/** Whether the sub-query has a time column; if its columns are unknown, it is assumed to have one. */
function hasTime({ columnsKnown }) {
  return columnsKnown.length === 0 || columnsKnown.some((one) => one.name === "timestamp");
}

function column(path) {
  return /^\w+$/.test(path) || path === "*" ? `s:${path}` : `s:${path}@${aliasOf(path)}`;
}

/** Return SQL for the name of a series: the class of a status, and other values as text. */
function seriesName(name) {
  const text = `cast(${name} as string)`;
  const number = `safe_cast(${text} as int64)`;
  const status = `when ${number} between 100 and 599 then concat(substr(${text}, 1, 1), 'xx')`;
  return `coalesce(case ${status} else ${text} end, '${NONE}')`;
}

function valuesSql(text, path) {
  return `select ${sql.name(path)} as value, count(*) as events\nfrom (\n${sql.inner(text)}\n) as e\ngroup by 1\norder by 2 desc\nlimit ${MOST_VALUES}`;
}
