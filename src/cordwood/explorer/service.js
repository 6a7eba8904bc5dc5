/** The Service page: memory and its limit, the cache, active queries, the slowest recent ones, and the version. */

import { readIfAllowed } from "./api.js";
import { h, put } from "./dom.js";
import { ago, bytes, count, milliseconds } from "./format.js";
import { privateOnly } from "./private-only.js";

const AGAIN_MS = 2000;
const KEPT = ["hit", "stale"];

export class ServicePage {
  constructor() {
    this.tiles = h("div", { class: "tiles" });
    this.queries = h("div", { class: "stack" });
    this.element = h(
      "div",
      { class: "page service" },
      h("h1", { class: "off-screen" }, "Service"),
      this.tiles,
      this.queries,
    );
  }

  enter() {
    this.isLeft = false;
  }

  async update() {
    clearTimeout(this.timer);
    // A hidden tab keeps its values without reading them again; one that was opened hidden reads them once.
    const status = (document.hidden && this.status) || (await readIfAllowed("/api/status"));
    if (!status) return put(this.element, privateOnly("How the service is doing is shown"));
    this.status = status;
    put(this.tiles, tiles(status));
    put(this.queries, underWay(status.queries), slowest(status.queries));
    this.later();
    return undefined;
  }

  /** Schedule the next update, which is repeated if it fails. */
  later() {
    clearTimeout(this.timer);
    if (!this.isLeft) this.timer = setTimeout(() => this.update().catch(() => this.later()), AGAIN_MS);
  }

  leave() {
    this.isLeft = true;
    clearTimeout(this.timer);
  }
}

function tiles({ version, engine, memory, cache, queries, engine_process: process, streams }) {
  const rate = Object.values(streams).reduce((sum, one) => sum + one.events_per_second, 0);
  const events = Object.values(streams).reduce((sum, one) => sum + one.events, 0);
  const size = Object.values(streams).reduce((sum, one) => sum + (one.bytes ?? 0), 0);
  return [
    tile(
      "Memory",
      bytes(memory.bytes),
      `of ${bytes(memory.ceiling_bytes)}`,
      meter("Memory", memory.bytes, memory.ceiling_bytes),
    ),
    tile(
      "Cache",
      bytes(cache.bytes),
      `of ${bytes(cache.budget_bytes)}; ${hits(cache.requests)}`,
      meter("Cache", cache.bytes, cache.budget_bytes),
    ),
    tile(
      "Queries",
      String(queries.under_way.length),
      `under way, ${queries.waiting} waiting, ${queries.places} places`,
      meter("Places", queries.under_way.length, queries.places),
    ),
    tile("Events", count(events), `${rate.toFixed(1)} a second, ${bytes(size)} stored`),
    tile(
      "Engine process",
      count(sum(process.ends)),
      `times replaced; ${count(process.quarantined_queries)} queries are refused because it was killed with them`,
    ),
    tile("Version", version, `on ${engine}`),
  ];
}

function sum(counts) {
  return Object.values(counts).reduce((all, one) => all + one, 0);
}

function tile(name, figure, note, below = null) {
  return h(
    "section",
    { class: "card tile", "aria-label": name },
    h("h2", {}, name),
    h("p", { class: "figure" }, figure),
    h("p", { class: "faint" }, note),
    below,
  );
}

function meter(name, value, most) {
  const share = Math.min(1, value / (most || 1));
  return h(
    "div",
    {
      class: `meter ${share > 0.9 ? "is-full" : ""}`,
      role: "meter",
      "aria-label": name,
      "aria-valuenow": value,
      "aria-valuemin": "0",
      "aria-valuemax": most,
    },
    h("span", { style: { "--share": share } }),
  );
}

function hits(requests) {
  const all = Object.values(requests).reduce((sum, one) => sum + one, 0);
  const kept = KEPT.reduce((sum, name) => sum + (requests[name] ?? 0), 0);
  return all ? `${Math.round((kept / all) * 100)} % of ${count(all)} answers were kept ones` : "no answers yet";
}

function underWay({ under_way: runs }) {
  return section("Under way", runs, "Nothing is being asked.", (run) => milliseconds(run.seconds * 1000));
}

function slowest({ slowest: runs }) {
  return section("Slowest of the last hour", runs, "Nothing was asked in the last hour.", (run) =>
    milliseconds(run.seconds * 1000),
  );
}

function section(name, runs, nothing, figure) {
  const rows = runs.map((run) =>
    h(
      "tr",
      {},
      h("td", { class: "is-count", "data-label": "Took" }, figure(run)),
      h("td", { "data-label": "Endpoint" }, run.endpoint),
      h("td", { "data-label": "Began" }, ago(run.began)),
      h("td", { "data-label": "Outcome" }, run.outcome ?? "running"),
      h("td", { "data-label": "Key" }, run.key),
      h(
        "td",
        { class: "is-wide", "data-label": "Query" },
        run.text ? h("code", {}, run.text) : h("span", { class: "faint" }, "the endpoint's own"),
      ),
    ),
  );
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      ["Took", "Endpoint", "Began", "Outcome", "Key", "Query"].map((one, place) =>
        h("th", { scope: "col", class: place ? "" : "is-count" }, one),
      ),
    ),
  );
  const table = h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": name },
    h("table", { class: "roomy" }, h("caption", { class: "off-screen" }, name), head, h("tbody", {}, rows)),
  );
  return h(
    "section",
    { class: "card", "aria-label": name },
    h("h2", { class: "pad" }, name),
    runs.length ? table : h("p", { class: "faint pad" }, nothing),
  );
}
