/** Queries over whole streams, for private keys that see all events: counts by project, newest events, one event. */

import { Problem, ask, read } from "./api.js";
import * as described from "./described.js";
import * as lql from "./lql.js";
import { histogramSql } from "./queries.js";
import { bounds } from "./ranges.js";
import * as sql from "./sql.js";
import { unwrapped } from "./tree.js";

/** The route for SQL over whole streams, in the form of an endpoint. */
const WHOLE_STREAMS = { address: "/api/query" };
/** The maximum number of streams to count, newest first, and of rows, each for a stream and a project. */
const [MOST_STREAMS, MOST_ROWS] = [16, 1000];
/** The number of concurrent requests, so that other callers get slots of the service too. */
const AT_ONCE = 3;
const QUOTED = /`((?:[^`\\]|\\.)+)`/g;

/** Whether the key may count the events of all projects. */
export function mayCount({ key }) {
  return key.private && Object.keys(key.pins).length === 0;
}

/** Return all streams, those with the newest events first: [{name, project, events, newest}]. */
export async function streamsByTime(signal) {
  const streams = await read("/api/sources", {}, { signal });
  return streams.sort((one, other) => (other.newest ?? 0) - (one.newest ?? 0));
}

/**
 * Count the events in a view's time range by stream and project, for the streams that the endpoint or one of its
 * sub-queries reads: {rows: [{stream, project, events, newest}], isCut}.
 */
export async function countsOf(view, { subQuery = "", signal } = {}) {
  const [streams, definition] = await Promise.all([streamsByTime(signal), described.definition(view.endpoint)]);
  const named = streamsIn(definition?.query ?? "", subQuery);
  const readBy = streams.filter((one) => named.has(one.name));
  return countsIn(readBy.length ? readBy : streams, bounds(view.range), signal);
}

/** Count the events of streams, [{name, project}], where `project` is the path of the project in their events. */
export async function countsIn(streams, time, signal) {
  const counted = streams.filter((one) => one.events > 0).slice(0, MOST_STREAMS);
  if (!counted.length) return { rows: [], isCut: false };
  const { rows } = await ask(WHOLE_STREAMS, { sql: countsSql(counted, time) }, { signal });
  return { rows, isCut: rows.length >= MOST_ROWS || counted.length >= MOST_STREAMS };
}

/** Return the path of the project in the events of a stream. */
function projectPath(project) {
  return (project ?? "project").split(".");
}

/** Return a condition on the time of `t`. */
function whereInTime({ from, to }) {
  return `t.timestamp between timestamp_micros(${Math.floor(from)}) and timestamp_micros(${Math.ceil(to)})`;
}

/**
 * Sum counts by project, most events first: {projects: [{name, events, newest}], without, isCut}; `without` is the
 * number of events without a project.
 */
export function projectsOf({ rows, isCut }) {
  const found = new Map();
  for (const { project, events, newest } of rows) {
    const one = found.get(project) ?? { name: project, events: 0, newest: 0 };
    found.set(project, { ...one, events: one.events + events, newest: Math.max(one.newest, newest) });
  }
  const without = found.get(null)?.events ?? 0;
  found.delete(null);
  const projects = [...found.values()].sort((one, other) => other.events - one.events || other.newest - one.newest);
  return { projects, without, isCut };
}

function countsSql(streams, time) {
  const counted = streams.map(({ name, project }) => {
    const path = projectPath(project);
    const columns = `${sql.value(name)} as stream, safe_cast(${sql.operand(path)} as string) as project`;
    const counts = "count(*) as events, max(t.timestamp) as newest";
    return `select ${columns}, ${counts} from ${sql.name(name)} as t${sql.joins(path)}\nwhere ${whereInTime(time)} group by 1, 2`;
  });
  const all = counted.join("\nunion all\n");
  return `select stream, project, events, newest from (\n${all}\n) as c\norder by events desc limit ${MOST_ROWS}`;
}

/** Return the names in backquotes in SQL, or those in one of its sub-queries if it has any. */
function streamsIn(text, subQuery) {
  const within = subQuery ? namesIn(subQueryIn(text, subQuery)) : new Set();
  return within.size ? within : namesIn(text);
}

function namesIn(text) {
  return new Set([...text.matchAll(QUOTED)].map(([, name]) => name.replace(/\\(.)/g, "$1")));
}

/** Return the SQL between the parentheses of a sub-query; empty if there is none. */
function subQueryIn(text, subQuery) {
  const begins = new RegExp(`\\b${subQuery.replace(/\W/g, "\\$&")}\\s+as\\s*\\(`, "i");
  const found = begins.exec(text);
  if (!found) return "";
  const rest = text.slice(found.index + found[0].length);
  let depth = 1;
  for (const { 0: mark, index } of rest.matchAll(/`[^`]*`|'[^']*'|"[^"]*"|[()]/g)) {
    if (mark === "(") depth += 1;
    if (mark === ")") depth -= 1;
    if (depth === 0) return rest.slice(0, index);
  }
  return "";
}

// The events

/** Call `work(stream)` for each stream, a few at a time; errors are passed to `onFailed(stream, problem)`. */
export async function each(streams, signal, work, onFailed) {
  const waiting = [...streams];
  const go = async () => {
    for (let stream = waiting.shift(); stream && !signal.aborted; stream = waiting.shift()) {
      try {
        await work(stream);
      } catch (problem) {
        if (problem.name === "AbortError") return;
        onFailed(stream, problem);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, go));
}

/**
 * Return functions that wrap an LQL query around a query of a stream's events: {rows(events), counts(events, step)}.
 * LQL is translated in the scope of `lender`, {endpoint, subQuery}, whose events have the same columns: its sub-query
 * is redefined as the stream's events. Without a filter this is not needed, and could hide a stream of the same name.
 */
export async function queriesOf(text, limit, lender, signal) {
  const filters = lql.filtersOf(text);
  if (!filters) {
    const newest = (from) => `select id, timestamp, event_message from (\n${from}\n) as e\norder by timestamp desc`;
    return { rows: (from) => `${newest(from)} limit ${limit}`, counts: (from, step) => histogramSql(from, step, false, false) };
  }
  if (!lender) throw new Problem(0, { message: "No endpoint here takes LQL, so events cannot be filtered." });
  if (lql.named(text)) throw new Problem(0, { message: "Choose streams above, and remove f: from the query." });
  const translated = async (clauses) => {
    const place = `/api/endpoints/${encodeURIComponent(lender.endpoint.name)}/sql`;
    const told = await read(place, { lql: `f:${lender.subQuery} ${clauses}\n${filters}` }, { signal });
    return told.sql;
  };
  const wanted = ["s:id s:timestamp s:event_message", "s:timestamp"];
  const [rows, times] = await Promise.all(wanted.map(translated));
  const lent = (from) => `with ${sql.name(lender.subQuery)} as (\n${from}\n)`;
  return {
    rows: (from) => `${lent(from)}\n${rows}\nlimit ${limit}`,
    counts: (from, step) => `${lent(from)}\n${histogramSql(times, step, false, false)}`,
  };
}

/** Return the newest events of a stream, each with the stream's name. */
export async function rowsOf(stream, queries, view, signal) {
  const answer = await ask(WHOLE_STREAMS, { sql: queries.rows(eventsSql(stream, view)) }, { signal });
  return answer.rows.map((row) => ({ ...row, stream: stream.name }));
}

/** Return the counts of a stream's events over time, in buckets of milliseconds. */
export async function bucketsOf(stream, queries, view, step, signal) {
  const { rows } = await ask(WHOLE_STREAMS, { sql: queries.counts(eventsSql(stream, view), step) }, { signal });
  return rows.map(({ at, events }) => ({ at: at / 1000, events, series: stream.name }));
}

/** Return all fields of a row's event, or the row itself if the event no longer exists. */
export async function wholeEvent({ stream, id, timestamp }) {
  const time = whereInTime({ from: timestamp, to: timestamp });
  const text = `select t.* from ${sql.name(stream)} as t where t.id = ${sql.value(String(id))} and ${time} limit 1`;
  const { rows } = await ask(WHOLE_STREAMS, { sql: text });
  const event = unwrapped(rows[0] ?? { id, timestamp });
  return Object.fromEntries(Object.entries(event).filter(([, value]) => value !== null));
}

/** Return SQL for the events of a stream in a time range, and of one project if the view has one. */
function eventsSql({ name, project: at }, { bounds, project }) {
  const path = projectPath(at);
  const columns = "t.id, t.timestamp, t.event_message, t.metadata";
  const ofProject = project ? ` and safe_cast(${sql.operand(path)} as string) = ${sql.value(project)}` : "";
  const from = `${sql.name(name)} as t${project ? sql.joins(path) : ""}`;
  return `select ${columns} from ${from}\nwhere ${whereInTime(bounds)}${ofProject}`;
}
