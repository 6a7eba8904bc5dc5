/** What the API is asked for events of whole streams: the newest of each, their number over time, one whole event. */

import { Problem, ask, read } from "./api.js";
import { WHOLE_STREAMS, projectPath, whereInTime } from "./event-counts.js";
import * as lql from "./lql.js";
import { histogramSql } from "./queries.js";
import * as sql from "./sql.js";
import { unwrapped } from "./tree.js";

/** Streams that are asked at a time: others want to ask as well. */
const AT_ONCE = 3;

/** Call `work(stream)` for each; what it throws goes to `onFailed(stream, problem)`. */
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
 * The queries of a text in LQL: {rows(events), counts(events, step)}, `events` being a query of a stream's events. LQL is
 * translated in the scope of an endpoint, `lender`: {endpoint, subQuery}, whose events have the same columns. Without a
 * filter nothing is named, for a name might be a stream's.
 */
export async function queriesOf(text, limit, lender, signal) {
  const filters = lql.filtersOf(text);
  if (!filters) {
    const newest = (from) => `select id, timestamp, event_message from (\n${from}\n) as e\norder by timestamp desc`;
    return { rows: (from) => `${newest(from)} limit ${limit}`, counts: (from, step) => countsOver(from, step) };
  }
  if (!lender) throw new Problem(0, { message: "No endpoint here takes LQL, so events cannot be filtered." });
  if (lql.named(text)) throw new Problem(0, { message: "The streams are chosen above: leave f: out." });
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
    counts: (from, step) => `${lent(from)}\n${countsOver(times, step)}`,
  };
}

/** The newest events of a stream: rows with its name. */
export async function rowsOf(stream, queries, view, signal) {
  const answer = await ask(WHOLE_STREAMS, { sql: queries.rows(eventsSql(stream, view)) }, { signal });
  return answer.rows.map((row) => ({ ...row, stream: stream.name }));
}

/** The number of events of a stream over time: buckets in milliseconds. */
export async function bucketsOf(stream, queries, view, step, signal) {
  const { rows } = await ask(WHOLE_STREAMS, { sql: queries.counts(eventsSql(stream, view), step) }, { signal });
  return rows.map(({ at, events }) => ({ at: at / 1000, events, series: stream.name }));
}

/** All there is in the event of a row; the row itself when it is not there any more. */
export async function wholeEvent({ stream, id, timestamp }) {
  const time = whereInTime({ from: timestamp, to: timestamp });
  const text = `select t.* from ${sql.name(stream)} as t where t.id = ${sql.value(String(id))} and ${time} limit 1`;
  const { rows } = await ask(WHOLE_STREAMS, { sql: text });
  const event = unwrapped(rows[0] ?? { id, timestamp });
  return Object.fromEntries(Object.entries(event).filter(([, value]) => value !== null));
}

function countsOver(events, step) {
  return histogramSql(events, step, false, false);
}

/** The events of a stream in a time, and of one project where that is wanted. */
function eventsSql({ name, project: at }, { bounds, project }) {
  const path = projectPath(at);
  const columns = "t.id, t.timestamp, t.event_message, t.metadata";
  const ofProject = project ? ` and safe_cast(${sql.operand(path)} as string) = ${sql.value(project)}` : "";
  const from = `${sql.name(name)} as t${project ? sql.joins(path) : ""}`;
  return `select ${columns} from ${from}\nwhere ${whereInTime(bounds)}${ofProject}`;
}
