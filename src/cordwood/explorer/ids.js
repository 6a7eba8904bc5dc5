/** Ids of requests, traces, sessions and users in events: what is one, and the addresses of pages about it. */

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
/** Shorter texts are found in too many events to be looked for anywhere but in their own field. */
export const LEAST_UNIQUE = 8;

/** Whether a value is an id, by the name of its field or by its form. An event's own id leads nowhere else. */
function isId(path, value) {
  const text = typeof value === "number" || typeof value === "bigint" ? String(value) : value;
  if (typeof text !== "string" || text.length > LONGEST || NOTHING.test(text) || path.join() === "id") return false;
  return FORMED.test(text) || NAMED.test(plainName(path.at(-1)));
}

/** The ids that a longer text has in it. */
function idsWithin(text) {
  if (typeof text !== "string" || FORMED.test(text)) return [];
  const found = new Set([...text.matchAll(WITHIN)].map(([one]) => one).filter((one) => !NOTHING.test(one)));
  return [...found].slice(0, MOST_WITHIN);
}

/** Where everything of an id is shown: of the time and with the parameters of a view. */
function followPlace(view, id, path) {
  const { from, to } = bounds(view.range);
  const field = String(id).length < LEAST_UNIQUE ? path : "";
  return hashOf("follow", { ...shared(view), range: fixed(from, to), id: String(id), field });
}

/** The ids of a value with the places where each is followed. */
export function linksOf(view, path, value) {
  const ids = isId(path, value) ? [String(value)] : idsWithin(value);
  return ids.map((id) => ({ id, place: followPlace(view, id, pathText(path)) }));
}

/** Where one event is shown, with the lines before and after it. */
export function eventPlace(view, row) {
  return hashOf("event", { ...shared(view), sub: view.subQuery, id: String(row.id), at: String(row.timestamp) });
}

function shared({ endpoint, parameters, utc }) {
  const named = Object.entries(parameters).map(([name, value]) => [`p.${name}`, value]);
  return { endpoint: endpoint.name, ...Object.fromEntries(named), utc: utc ? "1" : "" };
}

/** `requestId`, `X-Request-Id` and `request_id` are the same name. */
function plainName(name) {
  return String(name)
    .replace(/([a-z\d])([A-Z])/g, "$1_$2")
    .replace(/[\s.-]+/g, "_")
    .toLowerCase();
}
