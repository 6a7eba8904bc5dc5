/** Requests for related events: all events with one id, and the events before and after one. */

import { ask } from "./api.js";
import { filterText } from "./lql.js";
import * as queries from "./queries.js";
import * as sql from "./sql.js";
import { unwrapped } from "./tree.js";

/** The maximum number of events of an id that are read from each sub-query. */
export const MOST_EVENTS = 200;
/** The number of concurrent requests, so that other callers get slots of the service too. */
const AT_ONCE = 3;
const HOW_FAR_US = 30 * 86_400 * 1_000_000;

/** Search all sub-queries for an id; `onFound(name, rows)` or `onFailed(name, problem)` is called for each of them. */
export async function eventsOfId(view, subQueries, bounds, { id, field }, { signal, onFound, onFailed }) {
  const waiting = subQueries.filter(queries.isOfEvents).map((one) => one.name);
  const work = async () => {
    for (let name = waiting.shift(); name && !signal.aborted; name = waiting.shift()) {
      try {
        onFound(name, await eventsIn(view, name, bounds, { id, field }, signal));
      } catch (problem) {
        if (problem.name === "AbortError") return;
        onFailed(name, problem);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function eventsIn(view, name, bounds, { id, field }, signal) {
  const request = field
    ? queries.clauseRequest({ ...view, subQuery: name }, bounds, `${field}:${quoted(id)} s:* limit:${MOST_EVENTS}`)
    : queries.histogramRequest(view, bounds, eventsSql(view, name, bounds, id));
  const { rows } = await ask(view.endpoint, request, { signal });
  return rows.map(unwrapped).filter((row) => typeof row.timestamp === "number");
}

/** Search the whole event for the id, because streams call the same id by different names. */
function eventsSql(view, name, { from, to }, id) {
  const time = queries.timeParameters(view.endpoint)
    ? ""
    : ` and t.timestamp between timestamp_micros(${Math.floor(from)}) and timestamp_micros(${Math.ceil(to)})`;
  const where = `contains_substr(t, ${sql.value(id)})${time}`;
  return `select t.* from ${sql.name(name)} as t\nwhere ${where}\norder by t.timestamp\nlimit ${MOST_EVENTS}`;
}

/** Return the whole event, or null if it no longer exists. */
export async function oneEvent(view, row, signal) {
  const { rows } = await ask(view.endpoint, queries.eventRequest(view, row), { signal });
  return rows.length ? unwrapped(rows[0]) : null;
}

/** Return up to `most` events before and after one in the same sub-query, oldest first. */
export async function neighbours(view, row, most, signal) {
  const shown = "s:id s:timestamp s:event_message";
  const before = { from: row.timestamp - HOW_FAR_US, to: row.timestamp + 1 };
  const after = { from: row.timestamp, to: row.timestamp + HOW_FAR_US };
  const read = async (bounds, order) => {
    const text = `${shown} order:timestamp@${order} limit:${most + 2}`;
    const { rows } = await ask(view.endpoint, queries.clauseRequest(view, bounds, text), { signal });
    return rows;
  };
  const [older, newer] = await Promise.all([read(before, "desc"), read(after, "asc")]);
  const isOther = (one) => one.id !== row.id;
  const known = new Set(newer.map((one) => one.id));
  const earlier = older.filter((one) => isOther(one) && !known.has(one.id));
  const later = newer.filter(isOther);
  const own = newer.find((one) => !isOther(one)) ?? older.find((one) => !isOther(one)) ?? row;
  return {
    earlier: earlier.slice(0, most).reverse(),
    own,
    later: later.slice(0, most),
    hasEarlier: earlier.length > most,
    hasLater: later.length > most,
  };
}

function quoted(id) {
  return /^-?\d+$/.test(id) ? id : filterText(["x"], id).slice("x:".length);
}
