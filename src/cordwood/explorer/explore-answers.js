/** What Explore gets to know from the API about a view: its rows, its bars, values, whole events, its SQL. */

import { Problem, ask, read } from "./api.js";
import * as lql from "./lql.js";
import * as queries from "./queries.js";
import { stepFor } from "./ranges.js";
import * as sql from "./sql.js";
import { tell } from "./telling.js";
import { unwrapped } from "./tree.js";

/** More rows take much of the browser's memory. */
const MOST_SHOWN = 20_000;
const PARTING = /(^|_)(level|severity|status|status_code)$/;

/** The column of an answer that tells how grave a row is; empty when none does. */
export function partingColumn(columns) {
  return columns.find((name) => PARTING.test(name)) ?? "";
}

/** Whether queries are in ClickHouse's SQL: the endpoints that LQL cannot ask. */
export function isClickHouse(view) {
  return !view.endpoint.languages.includes("lql");
}

export function hasMore({ rows, receipt }) {
  return Boolean(receipt.next) && rows.length < MOST_SHOWN;
}

/** An answer with the rows of its next page, which events that have arrived since do not change. */
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

/** Counts over time: {rows, step, receipt}, `step` being the seconds of a bar. `columns` are those of the rows, for a query in SQL. */
export async function bars(view, bounds, { seriesPath, columns, mostBars, signal }) {
  const { events, hasSeries } =
    view.language === "sql" ? eventsOfSql(view, columns) : await eventsOfLql(view, bounds, seriesPath, signal);
  const step = stepFor(bounds, mostBars);
  const text = queries.histogramSql(events, step, hasSeries, isClickHouse(view));
  const request = queries.histogramRequest(view, bounds, text);
  const { rows, receipt } = await ask(view.endpoint, request, { signal });
  return { rows, step, receipt };
}

/** The rows of the period before, and the milliseconds by which they are drawn later. */
export async function periodBefore(view, { from, to }) {
  if (view.language === "sql" && !queries.timeParameters(view.endpoint))
    throw new Problem(0, { message: "This endpoint has no parameters for the time, so there is no period before." });
  const before = { from: from - (to - from), to: from };
  const { rows } = await ask(view.endpoint, queries.rowsRequest(view, before));
  return { rows, shiftMs: (to - from) / 1000 };
}

/** The values of a field that occur most, with how often. */
export async function topValues(view, bounds, path) {
  const { rows } = await ask(view.endpoint, queries.valuesRequest(view, bounds, path));
  return rows.map((row) => Object.values(row)).map(([value, events]) => ({ value, events }));
}

/** Whether a row is of one event that can be asked for. */
export function isEvent(view, row) {
  return row.id !== undefined && typeof row.timestamp === "number" && view.language === "lql";
}

/** All there is in the event of a row; the row itself where it is no event. */
export async function wholeEvent(view, row) {
  if (!isEvent(view, row)) return unwrapped(row);
  const { rows } = await ask(view.endpoint, queries.eventRequest(view, row));
  return unwrapped(rows[0] ?? row);
}

/** The query in SQL, with the columns that are shown. */
export async function sqlOf(view, bounds) {
  return view.language === "sql" ? view.text : translated(view, queries.limitedLql(view, bounds));
}

/** The fields of a few events, for a key that the service tells none. */
export async function fieldsOfEvents(view, bounds) {
  const { rows } = await ask(view.endpoint, queries.sampleRequest(view, bounds));
  const found = new Map();
  for (const row of rows) collect(unwrapped(row), [], found);
  return [...found.values()];
}

/** A query in LQL is asked for in SQL, which then stands inside another. */
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

/** A query in LQL as the SQL that it stands for. */
export async function translated(view, text, signal) {
  const address = `/api/endpoints/${encodeURIComponent(view.endpoint.name)}/sql`;
  const told = await read(address, { lql: text }, { signal });
  return told.sql;
}

/** Every path that holds a value, with its kind. */
function collect(value, path, found) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, one] of Object.entries(value)) collect(one, [...path, key], found);
    return;
  }
  const text = lql.pathText(path);
  if (!found.has(text)) found.set(text, { path, text, kinds: [typeof (Array.isArray(value) ? value[0] : value)] });
}
