/** Ids of requests, traces, sessions and users in events: recognising them, and links to the pages about them. */

import { hashOf } from "./address.js";
import { pathText } from "./lql.js";
import { bounds, fixed } from "./ranges.js";

const OWNERS = "request|req|trace|correlation|transaction|session|user|actor|execution|connection|ray|span";
const NAMED = new RegExp(`(^|_)(${OWNERS})_?(id|uuid)$|(^|_)cf_ray$`);
const UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
const FORMED = new RegExp(`^(?:${UUID}|[0-9a-f]{32})$`, "i");
const WITHIN = new RegExp(`(?<![0-9a-z-])(?:${UUID}|[0-9a-f]{32})(?![0-9a-z-])`, "gi");
const NOTHING = /^[0-]*$/;
const [LONGEST, MOST_WITHIN] = [200, 5];
/** Shorter ids are searched only in their own field, because they would occur in too many events. */
export const LEAST_UNIQUE = 8;

/** Whether a value is an id, by the name of its field or by its format. The event's own id occurs nowhere else. */
function isId(path, value) {
  const text = typeof value === "number" || typeof value === "bigint" ? String(value) : value;
  if (typeof text !== "string" || text.length > LONGEST || NOTHING.test(text) || path.join() === "id") return false;
  return FORMED.test(text) || NAMED.test(plainName(path.at(-1)));
}

/** Return the ids inside a longer text. */
function idsWithin(text) {
  if (typeof text !== "string" || FORMED.test(text)) return [];
  const found = new Set([...text.matchAll(WITHIN)].map(([one]) => one).filter((one) => !NOTHING.test(one)));
  return [...found].slice(0, MOST_WITHIN);
}

/** Return the address of the events with an id, with the time range and the parameters of a view. */
function followPlace(view, id, path) {
  const { from, to } = bounds(view.range);
  const field = String(id).length < LEAST_UNIQUE ? path : "";
  return hashOf("follow", { ...shared(view), range: fixed(from, to), id: String(id), field });
}

/** Return the ids in a value with the addresses that follow them. */
export function linksOf(view, path, value) {
  const ids = isId(path, value) ? [String(value)] : idsWithin(value);
  return ids.map((id) => ({ id, place: followPlace(view, id, pathText(path)) }));
}

/** Return the address of an event's page. */
export function eventPlace(view, row) {
  return hashOf("event", { ...shared(view), sub: view.subQuery, id: String(row.id), at: String(row.timestamp) });
}

function shared({ endpoint, parameters, utc }) {
  const named = Object.entries(parameters).map(([name, value]) => [`p.${name}`, value]);
  return { endpoint: endpoint.name, ...Object.fromEntries(named), utc: utc ? "1" : "" };
}

/** Normalise a name: `requestId`, `X-Request-Id` and `request_id` are the same. */
function plainName(name) {
  return String(name)
    .replace(/([a-z\d])([A-Z])/g, "$1_$2")
    .replace(/[\s.-]+/g, "_")
    .toLowerCase();
}
