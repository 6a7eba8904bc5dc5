/** Silences of alerts: a form that creates one, and the list of the active ones. */

import { labelsOf, table, us, wordsOf } from "./alert-states.js";
import { create } from "./api.js";
import { h, newId, option, put } from "./dom.js";
import { ago, time } from "./format.js";
import { tell } from "./overlays.js";

const DURATIONS = {
  "30m": "30 minutes",
  "1h": "1 hour",
  "2h": "2 hours",
  "8h": "8 hours",
  "1d": "1 day",
  "7d": "7 days",
};
const MAX_COMMENT = 500;

export class SilenceForm {
  /** `onDone` is called after a silence was created. */
  constructor({ onDone }) {
    this.onDone = onDone;
    this.duration = h(
      "select",
      { id: newId("silence") },
      Object.entries(DURATIONS).map(([value, label]) => option(value, label, value === "2h")),
    );
    this.comment = h("input", { id: newId("silence"), type: "text", maxlength: MAX_COMMENT, autocomplete: "off" });
    this.about = h("p", { class: "about" });
    this.problem = h("p", { class: "problem", role: "alert" });
    this.element = h(
      "form",
      { class: "card silence-form", "aria-label": "Silence", onsubmit: (event) => this.submit(event) },
      h("h2", {}, "Silence"),
      this.about,
      h("div", { class: "field" }, h("label", { for: this.duration.id }, "For"), this.duration),
      h("div", { class: "field" }, h("label", { for: this.comment.id }, "Comment"), this.comment),
      this.problem,
      h(
        "div",
        { class: "joined-apart" },
        h("button", { type: "submit", class: "button primary" }, "Begin the silence"),
        h("button", { type: "button", class: "button", onclick: () => this.close() }, "Cancel"),
      ),
    );
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    this.element.hidden = true;
  }

  /** Open the form for a silence of an alert, of some of its groups, or of all alerts if the name is empty. */
  open(alert, labels) {
    this.wanted = { alert, labels };
    this.opener = document.activeElement?.dataset.focus;
    put(
      this.about,
      "Nothing is sent of ",
      h("strong", {}, h("bdi", {}, wordsFor(alert, labels))),
      ". What still fires at the end is sent then.",
    );
    put(this.problem);
    this.comment.value = "";
    this.element.hidden = false;
    this.element.scrollIntoView({ block: "nearest" });
    this.duration.focus();
  }

  close() {
    this.element.hidden = true;
    const all = document.querySelectorAll("[data-focus]");
    [...all].find((one) => one.dataset.focus === this.opener)?.focus();
  }

  async submit(event) {
    event.preventDefault();
    const fields = { ...this.wanted, for: this.duration.value, comment: this.comment.value };
    try {
      const made = await create("/api/alerts/silences", fields);
      tell(`Silenced until ${time(us(made.ends_at), { digits: 0 })}.`);
    } catch (problem) {
      return put(this.problem, `${problem.message} ${problem.hint}`);
    }
    this.close();
    return this.onDone();
  }
}

export function silenceList(silences, end) {
  const head = h("h2", { class: "pad" }, "Silences");
  if (!silences.length) return [head, h("p", { class: "faint pad" }, "Nothing is silenced.")];
  const rows = silences.map((one) =>
    h(
      "tr",
      {},
      h("td", { "data-label": "Alert" }, h("bdi", {}, one.alert ?? "all alerts")),
      h("td", { "data-label": "Labels" }, labelsOf(one.labels)),
      h("td", { class: "is-time", "data-label": "Ends" }, time(us(one.ends_at), { digits: 0 })),
      h("td", { class: "is-wide", "data-label": "Comment" }, h("bdi", {}, one.comment)),
      h("td", { class: "is-time", "data-label": "Began" }, ago(us(one.starts_at))),
      h("td", { class: "is-action" }, endButton(one, end)),
    ),
  );
  return [head, table("Silences", ["Alert", "Labels", "Ends", "Comment", "Began", ""], rows)];
}

function endButton({ id, alert, labels }, end) {
  return h(
    "button",
    {
      type: "button",
      class: "button small",
      "aria-label": `End the silence of ${wordsFor(alert, labels)}`,
      "data-focus": `end ${id}`,
      onclick: () => end(id),
    },
    "End",
  );
}

function wordsFor(alert, labels) {
  const name = alert || "all alerts";
  const words = wordsOf(labels);
  return words ? `${name} with ${words}` : name;
}
