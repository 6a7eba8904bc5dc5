/** The requests of Explore: rows, histogram, top values, whole events, and the translation of LQL to SQL. */

import { ask, Problem, read } from "./api.js";
import * as lql from "./lql.js";
import { tell } from "./overlays.js";
import * as queries from "./queries.js";
import { stepFor } from "./ranges.js";
import * as sql from "./sql.js";
import { unwrapped } from "./tree.js";

/** More rows would use too much of the browser's memory. */
const MOST_SHOWN = 20_000;
const PARTING = /(^|_)(level|severity|status|status_code)$/;

/** Return the column that holds a level or a status, by which rows are coloured; empty if there is none. */
export function partingColumn(columns) {
  return columns.find((name) => PARTING.test(name)) ?? "";
}

/** Whether the view's queries are in ClickHouse's dialect: those endpoints do not accept LQL. */
export function isClickHouse(view) {
  return !view.endpoint.languages.includes("lql");
}

export function hasMore({ rows, receipt }) {
  return Boolean(receipt.next) && rows.length < MOST_SHOWN;
}

/** Return an answer extended by the rows of its next page, which new events do not change. */
export async function withNextPage(view, request, answer, signal) {
  try {
    const next = await ask(view.endpoint, { ...request, cursor: answer.receipt.next }, { signal });
    const rows = [...answer.rows, ...next.rows];
    return { ...answer, rows, receipt: { ...next.receipt, rows: rows.length } };
  } catch (problem) {
    if (problem.name !== "AbortError") tell(problem.message);
    return answer;
  }
}

/**
 * Return the histogram: {rows, step, receipt}, where `step` is the seconds of a bar. `columns` are the columns of the
 * answer, which a query in SQL needs.
 */
export async function bars(view, bounds, { seriesPath, columns, mostBars, signal }) {
  const { events, hasSeries } =
    view.language === "sql" ? eventsOfSql(view, columns) : await eventsOfLql(view, bounds, seriesPath, signal);
  const step = stepFor(bounds, mostBars);
  const text = queries.histogramSql(events, step, hasSeries, isClickHouse(view));
  const request = queries.histogramRequest(view, bounds, text);
  const { rows, receipt } = await ask(view.endpoint, request, { signal });
  return { rows, step, receipt };
}

/** Return the rows of the previous period, and the milliseconds by which they are shifted in the chart. */
export async function periodBefore(view, { from, to }) {
  if (view.language === "sql" && !queries.timeParameters(view.endpoint))
    throw new Problem(0, { message: "This endpoint has no parameters for the time, so there is no period before." });
  const before = { from: from - (to - from), to: from };
  const { rows } = await ask(view.endpoint, queries.rowsRequest(view, before));
  return { rows, shiftMs: (to - from) / 1000 };
}

/** Return the most frequent values of a field with their counts. */
export async function topValues(view, bounds, path) {
  const { rows } = await ask(view.endpoint, queries.valuesRequest(view, bounds, path));
  return rows.map((row) => Object.values(row)).map(([value, events]) => ({ value, events }));
}

/** Whether a row is an event that can be fetched by its id and time. */
export function isEvent(view, row) {
  return row.id !== undefined && typeof row.timestamp === "number" && view.language === "lql";
}

/** Return all fields of a row's event, or the row itself if it is not an event. */
export async function wholeEvent(view, row) {
  if (!isEvent(view, row)) return unwrapped(row);
  const { rows } = await ask(view.endpoint, queries.eventRequest(view, row));
  return unwrapped(rows[0] ?? row);
}

/** Return the query in SQL, with the shown columns. */
export async function sqlOf(view, bounds) {
  return view.language === "sql" ? view.text : translated(view, queries.limitedLql(view, bounds));
}

/** Return the fields of a sample of events, for keys that may not read the stream's schema. */
export async function fieldsOfEvents(view, bounds) {
  const { rows } = await ask(view.endpoint, queries.sampleRequest(view, bounds));
  const found = new Map();
  for (const row of rows) collect(unwrapped(row), [], found);
  return [...found.values()];
}

/** Translate an LQL query to SQL, to be used as a sub-query. */
async function eventsOfLql(view, bounds, seriesPath, signal) {
  const events = await translated(view, queries.eventsLql(view, bounds, seriesPath), signal);
  return { events, hasSeries: Boolean(seriesPath) };
}

function eventsOfSql(view, columns) {
  if (!columns.includes("timestamp")) throw new Problem(0, { message: "These rows have no time." });
  const inner = sql.inner(view.text);
  const parting = partingColumn(columns);
  if (!parting || isClickHouse(view)) return { events: inner, hasSeries: false };
  return { events: `select timestamp, ${sql.name(parting)} as series\nfrom (\n${inner}\n) as q`, hasSeries: true };
}

/** Translate an LQL query to SQL. */
export async function translated(view, text, signal) {
  const address = `/api/endpoints/${encodeURIComponent(view.endpoint.name)}/sql`;
  const told = await read(address, { lql: text }, { signal });
  return told.sql;
}

/** Collect the paths of all values with their types. */
function collect(value, path, found) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, one] of Object.entries(value)) collect(one, [...path, key], found);
    return;
  }
  const text = lql.pathText(path);
  if (!found.has(text)) found.set(text, { path, text, kinds: [typeof (Array.isArray(value) ? value[0] : value)] });
}
