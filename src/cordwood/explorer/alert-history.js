/** The history of alerts, newest first and in pages: of all alerts or of one. */

import * as address from "./address.js";
import { badge, labelsOf, table, us, valueOf } from "./alert-states.js";
import { read } from "./api.js";
import { h, newId, option, put } from "./dom.js";
import { ago, count, time } from "./format.js";
import { tell } from "./overlays.js";

const PAGE = 50;
const TONES = {
  firing: "error",
  pending: "warning",
  resolved: "fine",
  sent: "quiet",
  failed: "error",
  given_up: "error",
  error: "error",
  recovered: "fine",
};
const WORDS = {
  given_up: "given up",
  error: "cannot be evaluated",
  recovered: "evaluated again",
  failed: "not sent",
};

export class AlertHistory {
  constructor() {
    this.items = [];
    this.alert = null;
    const choose = () => address.go("alerts", { alert: this.filter.value });
    this.filter = h("select", { id: newId("history"), onchange: choose });
    this.rows = h("div", {});
    this.more = h(
      "button",
      { type: "button", class: "button", "data-focus": "more", onclick: () => this.extend() },
      "Show more",
    );
    this.element = h(
      "section",
      { class: "card", "aria-label": "History" },
      h(
        "div",
        { class: "alert-head pad" },
        h("h2", {}, "History"),
        h("label", { class: "inline-field", for: this.filter.id }, "of", this.filter),
      ),
      this.rows,
      h("div", { class: "pad" }, this.more),
    );
  }

  get has() {
    return this.items.length > 0;
  }

  /** Read the newest page again, and keep the older pages that were loaded on request. */
  async update(alerts, alert) {
    const isOther = alert !== this.alert;
    const newest = await this.page(alert);
    const oldest = newest.at(-1)?.number ?? 0;
    const isJoined = !isOther && this.items.length && this.items[0].number >= oldest;
    const older = isJoined ? this.items.filter((one) => one.number < oldest) : [];
    if (!older.length) this.hasMore = newest.length === PAGE;
    this.items = [...newest, ...older];
    this.alert = alert;
    this.offer(alerts.map((one) => one.name));
  }

  page(alert, before) {
    return read("/api/alerts/history", { alert, before, limit: PAGE }).then((told) => told.history);
  }

  /** List the alerts to choose from, and the chosen one even if it has been deleted: its history remains. */
  offer(names) {
    const all = names.includes(this.alert) || !this.alert ? names : [...names, this.alert];
    if (this.offered === JSON.stringify([all, this.alert])) return;
    this.offered = JSON.stringify([all, this.alert]);
    put(this.filter, option("", "all alerts", !this.alert), all.map((name) => option(name, name, name === this.alert)));
  }

  async extend() {
    try {
      const older = await this.page(this.alert, this.items.at(-1).number);
      this.hasMore = older.length === PAGE;
      this.items = [...this.items, ...older];
      this.show();
    } catch (problem) {
      tell(problem.message);
    }
  }

  show() {
    this.more.hidden = !this.hasMore;
    if (!this.has) return put(this.rows, h("p", { class: "faint pad" }, "Nothing has happened yet."));
    return put(this.rows, table("History", ["At", "Alert", "What", "Value", "About"], this.items.map(row), [3]));
  }
}

function row(one) {
  const at = us(one.at);
  return h(
    "tr",
    {},
    h("td", { class: "is-time", "data-label": "At", title: ago(at) }, time(at, { digits: 0 })),
    h("td", { "data-label": "Alert" }, h("bdi", {}, one.alert)),
    h("td", { "data-label": "What" }, badge(WORDS[one.kind] ?? one.kind, TONES[one.kind])),
    h("td", { class: "is-count", "data-label": "Value" }, valueOf(one)),
    h("td", { class: "is-wide", "data-label": "About" }, about(one)),
  );
}

function about({ target, count: changes, reason, text, labels }) {
  const to = target ? `${changes === 1 ? "1 change" : `${count(changes ?? 0)} changes`} to ${target}. ` : "";
  return [to, h("bdi", {}, reason || text || ""), text ? null : labelsOf(labels)];
}
