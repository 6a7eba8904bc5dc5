/** Cards and tables of the states of alerts and targets. Texts of events are inserted as text, never as markup. */

import * as address from "./address.js";
import { h } from "./dom.js";
import { ago, count, time } from "./format.js";

const TONES = { critical: "fatal", error: "error", warning: "warning", info: "notice" };
const STATE_TONES = { firing: "error", pending: "warning", inactive: "fine" };
const EXAMPLE = `[alert]
every = "1m"
condition = "rows > 10"
text = "{value} rows, for example: {event_message}"`;

/** Return the card of an alert; `edit` is the link to its definition. */
export function alertCard(alert, silence, edit) {
  const { name, instances, firing, pending } = alert;
  const more = firing + pending - instances.length;
  return h(
    "section",
    { class: "card alert-card", "aria-label": `Alert ${name}` },
    h(
      "div",
      { class: "alert-head" },
      h("h2", {}, h("bdi", {}, name)),
      stateBadge(alert),
      badge(alert.severity, TONES[alert.severity]),
      h("span", { class: "faint" }, rule(alert)),
      h("span", { class: "spring" }),
      edit,
      link(`History of ${name}`, "History", address.hashOf("alerts", { alert: name })),
      silenceButton(`Silence ${name}`, `silence ${name}`, () => silence(name, {})),
    ),
    alert.error ? failure(alert) : null,
    alert.notice ? h("p", { class: "is-warning" }, alert.notice) : null,
    instances.length ? groupTable(alert, silence) : null,
    more > 0 ? h("p", { class: "faint" }, `${count(more)} more.`) : null,
  );
}

/** Link to the editor of an alert's definition, or say why it cannot be edited. `endpoint` is the queried one. */
export function editLink({ name }, endpoint) {
  if (!endpoint) return null;
  const place = (edit) => address.hashOf("endpoints", { endpoint: endpoint.name, edit });
  const isOwn = endpoint.alert && (endpoint.alert.name ?? endpoint.name) === name;
  if (isOwn && endpoint.origin === "managed") return link(`Edit ${name}`, "Edit", place("alert"));
  const why = isOwn && endpoint.origin === "shipped" ? "It ships with cordwood. " : "It is in a file of the operator. ";
  return h("span", { class: "faint" }, why, link(`Copy ${endpoint.name} as new`, "Copy as new", place("copy")));
}

/** Return the badge of a state. If evaluation fails, an active state is kept; an inactive alert becomes unknown. */
function stateBadge({ state, error }) {
  const isUnknown = error && state === "inactive";
  return isUnknown ? badge("unknown", "error") : badge(state, STATE_TONES[state]);
}

function failure({ error, hint }) {
  return h(
    "p",
    { class: "problem" },
    "It cannot be evaluated: ",
    h("bdi", {}, error),
    hint ? h("span", { class: "faint" }, " ", h("bdi", {}, hint)) : null,
  );
}

/** Describe the condition of an alert, how often it is evaluated, and which targets are notified. */
function rule({ condition, endpoint, every, for: lasting, send_to: targets, evaluated_at: at }) {
  const endpointLink = link(null, endpoint, address.hashOf("endpoints", { endpoint }));
  const waits = lasting && lasting !== "0s" ? ` for ${lasting}` : "";
  return [
    h("code", {}, condition),
    waits,
    ` in `,
    endpointLink,
    `, every ${every}; `,
    targets.length ? `sent to ${targets.join(", ")}` : "sent to no target",
    at ? `; evaluated ${ago(us(at))}` : "; not evaluated yet",
  ];
}

function groupTable({ name, instances }, silence) {
  const rows = instances.map((one) =>
    h(
      "tr",
      {},
      h("td", { "data-label": "State" }, badge(one.state, STATE_TONES[one.state]), one.silenced ? " silenced" : ""),
      h("td", { class: "is-wide", "data-label": "Text" }, h("bdi", {}, one.text)),
      h("td", { class: "is-count", "data-label": "Value" }, valueOf(one)),
      h("td", { "data-label": "Labels" }, labelsOf(one.labels)),
      h("td", { class: "is-time", "data-label": "Since", title: time(us(one.since)) }, ago(us(one.since))),
      h(
        "td",
        { class: "is-action" },
        silenceButton(`Silence ${wordsOf(one.labels) || name}`, `silence ${one.fingerprint}`, () =>
          silence(name, one.labels),
        ),
      ),
    ),
  );
  return table(`Groups of ${name}`, ["State", "Text", "Value", "Labels", "Since", ""], rows, [2]);
}

export function targetTable(targets, test) {
  const rows = targets.map((one) =>
    h(
      "tr",
      {},
      h("td", { "data-label": "Target" }, one.name),
      h("td", { "data-label": "Form" }, one.kind),
      h("td", { "data-label": "Host" }, one.host),
      h("td", { class: "is-count", "data-label": "Waiting" }, count(one.queued)),
      h("td", { class: `is-wide ${one.failures ? "is-warning" : ""}`, "data-label": "State" }, stateOf(one)),
      h(
        "td",
        { class: "is-action" },
        h(
          "button",
          {
            type: "button",
            class: "button small",
            "aria-label": `Test ${one.name}`,
            "data-focus": `test ${one.name}`,
            onclick: () => test(one.name),
          },
          "Test",
        ),
      ),
    ),
  );
  return [
    h("h2", { class: "pad" }, "Targets"),
    table("Targets", ["Target", "Form", "Host", "Waiting", "State", ""], rows, [3]),
  ];
}

function stateOf({ failures, error, next_attempt_at: next }) {
  if (!failures) return "–";
  const times = failures === 1 ? "1 failure" : `${count(failures)} failures in a row`;
  return `${times}: ${error ?? ""}${next ? ` Tried again at ${time(us(next), { digits: 0 })}.` : ""}`;
}

export function noAlerts() {
  return h(
    "div",
    { class: "card empty" },
    h("p", {}, h("strong", {}, "There are no alerts yet.")),
    h(
      "p",
      { class: "about" },
      "An alert watches a saved query. Add it to ",
      link(null, "a new endpoint", address.hashOf("endpoints", { edit: "new" })),
      " or to one of yours, write it into the settings of the endpoint's file, or into a file beside it that ends in ",
      ".alert.toml. The guide has a page on it: docs/guide/alerts.md.",
    ),
    h("pre", { class: "alert-example" }, EXAMPLE),
  );
}

/** Return a table with headings; `counts` are the positions of numeric columns. */
export function table(name, columns, rows, counts = []) {
  const heads = columns.map((one, place) =>
    one
      ? h("th", { scope: "col", class: counts.includes(place) ? "is-count" : "" }, one)
      : h("th", { scope: "col" }, h("span", { class: "off-screen" }, "Action")),
  );
  return h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": name },
    h(
      "table",
      { class: "roomy" },
      h("caption", { class: "off-screen" }, name),
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, rows),
    ),
  );
}

export function labelsOf(labels) {
  return Object.entries(labels ?? {}).map(([name, value]) => h("div", {}, h("bdi", {}, `${name}=${value}`)));
}

export function wordsOf(labels) {
  return Object.entries(labels ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");
}

export function valueOf({ value }) {
  if (typeof value !== "number") return "";
  return count(Number.isInteger(value) ? value : Number(value.toPrecision(6)));
}

export function badge(text, tone) {
  return h("span", { class: `badge badge-${tone ?? "rest"}` }, text);
}

/** Return the microseconds since 1970 of a time of the API. */
export function us(text) {
  return Date.parse(text) * 1000;
}

function link(label, text, href) {
  return h("a", { href, "aria-label": label, "data-focus": label }, text);
}

function silenceButton(label, focus, onclick) {
  return h(
    "button",
    { type: "button", class: "button small", "aria-label": label, "data-focus": focus, onclick },
    "Silence",
  );
}
