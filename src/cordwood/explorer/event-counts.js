/** How many events there are, of which project and in which stream, for a private key that sees all of them. */

import { ask, read } from "./api.js";
import * as described from "./described.js";
import { bounds } from "./ranges.js";
import * as sql from "./sql.js";

/** SQL over whole streams, asked like an endpoint. */
export const WHOLE_STREAMS = { address: "/api/query" };
/** Streams that are counted at once, those with the newest events; and pairs of stream and project that are read. */
const [MOST_STREAMS, MOST_ROWS] = [16, 1000];
const QUOTED = /`((?:[^`\\]|\\.)+)`/g;

/** Whether the key of this endpoint's calls may count events of all projects. */
export function mayCount({ key }) {
  return key.private && Object.keys(key.pins).length === 0;
}

/** The streams that have events, the newest first: [{name, project, events, newest}]. */
export async function streamsWithEvents(signal) {
  const streams = await read("/api/sources", {}, { signal });
  return streams.filter((one) => one.events > 0).sort((one, other) => (other.newest ?? 0) - (one.newest ?? 0));
}

/**
 * The events in the time of a view by stream and project: {rows: [{stream, project, events, newest}], isCut}, of the
 * streams that the endpoint reads, or of those of one sub-query.
 */
export async function countsOf(view, { subQuery = "", signal } = {}) {
  const [streams, definition] = await Promise.all([streamsWithEvents(signal), described.definition(view.endpoint)]);
  const named = streamsIn(definition?.query ?? "", subQuery);
  const readBy = streams.filter((one) => named.has(one.name));
  return countsIn(readBy.length ? readBy : streams, bounds(view.range), signal);
}

/** The same of these streams: [{name, project}], `project` being where events have it. */
export async function countsIn(streams, time, signal) {
  const counted = streams.slice(0, MOST_STREAMS);
  if (!counted.length) return { rows: [], isCut: false };
  const { rows } = await ask(WHOLE_STREAMS, { sql: countsSql(counted, time) }, { signal });
  return { rows, isCut: rows.length >= MOST_ROWS || streams.length > counted.length };
}

/** The path of the project in the events of a stream, as the stream tells it. */
export function projectPath(project) {
  return (project ?? "project").split(".");
}

/** A condition on the time of `t`. */
export function whereInTime({ from, to }) {
  return `t.timestamp between timestamp_micros(${Math.floor(from)}) and timestamp_micros(${Math.ceil(to)})`;
}

/** The same by project, most events first: {projects: [{name, events, newest}], without, isCut}; `without` have none. */
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

/** The names in backquotes in a text of SQL, or in one of its sub-queries where that has any. */
function streamsIn(text, subQuery) {
  const within = subQuery ? namesIn(subQueryIn(text, subQuery)) : new Set();
  return within.size ? within : namesIn(text);
}

function namesIn(text) {
  return new Set([...text.matchAll(QUOTED)].map(([, name]) => name.replace(/\\(.)/g, "$1")));
}

/** What stands between the parentheses of a sub-query; empty where it is not found. */
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
