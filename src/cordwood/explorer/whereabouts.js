/** What Explore shows instead of rows: messages, and hints at events at other times, of other projects and in other streams. */

import * as address from "./address.js";
import { ask } from "./api.js";
import { named, placeOfStream } from "./choices.js";
import { h } from "./dom.js";
import { parameterValue, placeOf } from "./explore-state.js";
import { ago, compact, count, time } from "./format.js";
import { filtersOf } from "./lql.js";
import { hasParameter, isOfEvents, newestRequest } from "./queries.js";
import { around } from "./ranges.js";
import { countsOf, mayCount, projectsOf, streamsByTime } from "./whole-streams.js";

const MOST_LISTED = 8;
/** Hints are not read again within this time, although Live repeats its request: they change less often. */
const FRESH_MS = 30_000;

export class Whereabouts {
  constructor() {
    Object.assign(this, { about: "", element: null, atMs: 0 });
  }

  /** Return an element that is filled as answers arrive; requests for an earlier view are cancelled. */
  of(view, bounds) {
    const { endpoint, subQuery, language, text, patterns, parameters, range, utc } = view;
    const about = JSON.stringify([endpoint.name, subQuery, language, text, patterns, parameters, range, utc]);
    if (about === this.about && Date.now() - this.atMs < FRESH_MS) return this.element;
    this.asking?.abort();
    this.asking = new AbortController();
    Object.assign(this, { about, atMs: Date.now(), element: h("div", { class: "whereabouts" }) });
    this.fill(this.element, view, bounds, this.asking.signal);
    return this.element;
  }

  /** Request the hints and show each as its answer arrives, or its error. */
  fill(element, view, bounds, signal) {
    const { endpoint } = view;
    const isAsked = view.language === "lql" && isOfEvents({ columns: view.columnsKnown });
    const parts = [
      isAsked ? newest : null,
      mayCount(endpoint) && hasParameter(endpoint, "project") ? projects : null,
      mayCount(endpoint) ? streams : null,
    ];
    for (const part of parts.filter(Boolean)) {
      const place = h("div", {});
      element.append(place);
      part(view, bounds, signal).then(
        (found) => place.replaceChildren(...found.flat()),
        (problem) => problem.name !== "AbortError" && place.replaceChildren(faint(problem.message)),
      );
    }
  }
}

/** Find the newest event that matches at any time, or the newest event at all if none matches. */
async function newest(view, bounds, signal) {
  const filters = filtersOf(view.text);
  const found = await newestOf(view, filters, signal);
  if (found) return newestWords("The newest event that matches is of", view, bounds, found);
  const isFiltered = filters || view.patterns.length;
  const any = isFiltered ? await newestOf({ ...view, patterns: [] }, "", signal) : 0;
  const of = Object.values(view.parameters).filter(Boolean).join(", ");
  const where = `${view.subQuery}${of && ` of ${of}`}`;
  if (!any) return [faint(`No event is in ${where} at any time.`)];
  const words = newestWords(`The newest event in ${where} is of`, view, bounds, any);
  return [faint("Nothing matches at any other time."), words];
}

async function newestOf(view, filters, signal) {
  const { rows } = await ask(view.endpoint, newestRequest(view, filters), { signal });
  return typeof rows[0]?.timestamp === "number" ? rows[0].timestamp : 0;
}

function newestWords(words, view, bounds, at) {
  if (at >= bounds.from && at <= bounds.to) return [];
  const there = h("a", { class: "button", href: placeOf(view, { range: around(at, bounds) }) }, "Look there");
  return [h("p", {}, `${words} ${time(at, { utc: view.utc, digits: 0 })}, ${ago(at)}. `, there)];
}

async function projects(view, bounds, signal) {
  const here = projectsOf(await countsOf(view, { subQuery: view.subQuery, signal }));
  const others = here.projects.filter(({ name }) => name !== view.parameters.project);
  const place = ({ name }) => placeOf(view, parameterValue("project", name));
  const without = here.without ? [faint(`${count(here.without)} events in this time have no project.`)] : [];
  if (!others.length) return [faint(`No other project has events of ${view.subQuery} in this time.`), without];
  return [listed(`Other projects with events of ${view.subQuery} in this time`, others, place), without];
}

async function streams(view, bounds, signal) {
  const found = (await streamsByTime(signal)).filter((one) => one.events > 0);
  if (!found.length) return [faint("No stream has events yet.")];
  const place = (one) => placeOfStream(one, { range: view.range, ...bounds });
  return [listed("Streams with events, and when the newest came", found, place)];
}

/** Return links to the first entries with events: [{name, events, newest}]. */
export function listed(words, found, place, most = MOST_LISTED) {
  const more = found.length > most ? ` (${most} of ${count(found.length)})` : "";
  const links = found.slice(0, most).map((one) => {
    const about = h("span", { class: "faint" }, `${compact(one.events)}, ${ago(one.newest)}`);
    const link = { class: "choice value-choice", href: place(one), title: one.name };
    return h("li", {}, h("a", link, named(one.name), about));
  });
  return h("section", {}, h("p", { class: "menu-head" }, words, more), h("ul", { class: "choices" }, links));
}

function faint(words) {
  return h("p", { class: "faint" }, words);
}

export function notForThisKey(endpoint) {
  const leave = () => address.change({ endpoint: "", sub: "", cols: "", by: "", q: "", pat: "" });
  const other = h("button", { type: "button", class: "button", onclick: leave }, "Look at another endpoint");
  return h("div", { class: "empty" }, h("p", {}, `${endpoint} is not for this key.`), other);
}

export function nothing(whereabouts) {
  const look = () => address.change({ range: "7d" });
  const wider = h("button", { type: "button", class: "button", onclick: look }, "Look at 7 days");
  const words = h("p", {}, "Nothing in this time that matches.");
  return h("div", { class: "empty" }, words, wider, whereabouts);
}
