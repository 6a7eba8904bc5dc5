/** Alerts: firing and pending ones, silences, targets and history. The page reads them again while it is visible. */

import { AlertHistory } from "./alert-history.js";
import { SilenceForm, silenceList } from "./alert-silences.js";
import { alertCard, editLink, noAlerts, targetTable } from "./alert-states.js";
import { read, readIfAllowed } from "./api.js";
import { definitions } from "./described.js";
import { h, put } from "./dom.js";
import { count } from "./format.js";
import { tell } from "./overlays.js";
import { privateOnly } from "./private-only.js";

const AGAIN_MS = 4000;
const STATES = ["firing", "pending", "inactive"];
const SEVERITIES = ["critical", "error", "warning", "info"];

export class AlertsPage {
  constructor() {
    this.list = h("div", { class: "stack" });
    this.form = new SilenceForm({ onDone: () => this.again() });
    this.silences = h("section", { class: "card", "aria-label": "Silences" });
    this.targets = h("section", { class: "card", "aria-label": "Targets" });
    this.history = new AlertHistory();
    this.element = h(
      "div",
      { class: "page alerts" },
      h("h1", { class: "off-screen", tabindex: "-1" }, "Alerts"),
      this.list,
      this.form.element,
      this.silences,
      this.targets,
      this.history.element,
    );
  }

  enter() {
    this.isLeft = false;
    this.endpoints = null;
  }

  leave() {
    this.isLeft = true;
    clearTimeout(this.timer);
  }

  async update(values = this.values) {
    clearTimeout(this.timer);
    this.values = values;
    const [told, silences] = await Promise.all([
      readIfAllowed("/api/alerts"),
      readIfAllowed("/api/alerts/silences"),
    ]);
    if (!told || !silences) return put(this.element, privateOnly("Alerts are shown"));
    if (told.alerts.some((one) => !this.endpoints?.has(one.endpoint))) this.endpoints = await definitions();
    await this.history.update(told.alerts, values.alert ?? "");
    keepingFocus(this.element, () => this.show(told, silences.silences));
    this.later();
    return undefined;
  }

  /** Schedule the next update. It is skipped while the tab is hidden, and repeated if it fails. */
  later() {
    clearTimeout(this.timer);
    const again = () => (document.hidden ? this.later() : this.update().catch(() => this.later()));
    if (!this.isLeft) this.timer = setTimeout(again, AGAIN_MS);
  }

  again() {
    return this.update().catch((problem) => tell(problem.message));
  }

  show({ alerts, targets }, silences) {
    const silence = (alert, labels) => this.form.open(alert, labels);
    const cards = [...alerts].sort(byUrgency).map((alert) => alertCard(alert, silence, this.editLink(alert)));
    put(this.list, alerts.length ? [totals(alerts, silence), cards] : noAlerts());
    put(this.silences, silenceList(silences, (id) => this.end(id)));
    put(this.targets, targetTable(targets, (name) => this.test(name)));
    this.history.show();
    for (const section of [this.silences, this.history.element]) section.hidden = !alerts.length && !this.history.has;
    this.targets.hidden = !targets.length;
  }

  editLink(alert) {
    return editLink(alert, this.endpoints?.get(alert.endpoint));
  }

  async end(id) {
    await this.act(`/api/alerts/silences/${encodeURIComponent(id)}`, "DELETE", () => "The silence has ended.");
  }

  async test(name) {
    const said = ({ sent, reason }) =>
      sent ? `A test was sent to ${name}.` : `Nothing was sent to ${name}: ${reason}`;
    await this.act(`/api/alerts/targets/${encodeURIComponent(name)}/test`, "POST", said);
  }

  async act(path, method, said) {
    try {
      tell(said(await read(path, {}, { method })));
    } catch (problem) {
      tell(problem.message);
    }
    await this.again();
  }
}

function byUrgency(one, other) {
  return (
    STATES.indexOf(one.state) - STATES.indexOf(other.state) ||
    Number(!one.error) - Number(!other.error) ||
    SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity) ||
    one.name.localeCompare(other.name)
  );
}

function totals(alerts, silence) {
  const firing = alerts.reduce((sum, alert) => sum + alert.firing, 0);
  const pending = alerts.reduce((sum, alert) => sum + alert.pending, 0);
  const failing = alerts.filter((alert) => alert.error).length;
  return h(
    "div",
    { class: "alert-totals" },
    h("strong", { class: firing ? "is-wrong" : "" }, firing ? `${count(firing)} firing` : "Nothing fires"),
    h("span", { class: "faint" }, `${count(pending)} pending`),
    failing ? h("span", { class: "problem" }, `${failing} cannot be evaluated`) : null,
    h("span", { class: "spring" }),
    h(
      "button",
      { type: "button", class: "button small", "data-focus": "silence-all", onclick: () => silence("", {}) },
      "Silence all",
    ),
  );
}

/** Redraw an element; then focus the new element with the same `data-focus` as the focused one, or else the heading. */
function keepingFocus(element, draw) {
  const { focus } = document.activeElement?.dataset ?? {};
  const isInside = focus && element.contains(document.activeElement);
  draw();
  if (!isInside) return;
  const same = [...element.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focus);
  (same ?? element.querySelector("h1")).focus({ preventScroll: true });
}
