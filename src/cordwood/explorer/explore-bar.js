/** The toolbar of Explore: endpoint, sub-query, parameters, language, time range, Live, Run, and the progress of a query. */

import { hashOf } from "./address.js";
import { nameRequests, read } from "./api.js";
import { projectChoice } from "./choices.js";
import { h, option, put } from "./dom.js";
import { compact } from "./format.js";
import { openParameters } from "./queries.js";
import { TimePicker } from "./ranges.js";
import { countsOf, mayCount, projectsOf } from "./whole-streams.js";

/** The clock appears only for queries that take longer than the first time; the second is its period. */
const [CLOCK_AFTER_MS, CLOCK_MS] = [400, 100];

export class ExploreBar {
  /**
   * `change(values)` writes values into the address; `run()` runs the query again, `stop()` cancels it; `onSlow()` is
   * called once a query takes longer than a moment.
   */
  constructor({ change, run, stop, onSlow, setParameter, setLanguage }) {
    Object.assign(this, { change, run, onSlow, setParameter, setLanguage });
    this.endpoint = h("select", {
      "aria-label": "Endpoint",
      onchange: () => change({ endpoint: this.endpoint.value, sub: "", cols: "", by: "", ...this.withoutText() }),
    });
    this.subQuery = h("select", {
      "aria-label": "Sub-query",
      class: "strong",
      onchange: () => change({ sub: this.subQuery.value, cols: "", by: "", limit: "" }),
    });
    this.parameters = h("div", { class: "parameters" });
    this.several = h("a", { class: "button", title: "Any streams, in one timeline" }, "Several streams");
    this.picker = new TimePicker({
      onRange: (range) => change({ range }),
      onZone: (utc) => change({ utc: utc ? "1" : "" }),
    });
    this.live = h(
      "button",
      {
        type: "button",
        class: "button",
        "aria-label": "Live",
        title: "Show rows as they are stored",
        onclick: () => change({ live: this.isLive ? "" : "1" }),
      },
      h("span", { class: "pulse", "aria-hidden": "true" }),
      h("span", { class: "live-word" }, "Live"),
    );
    this.runner = h(
      "button",
      { type: "button", class: "button primary", onclick: run, title: "Run (Control Enter)" },
      "Run",
    );
    this.clock = h("span", { class: "clock", role: "timer" });
    this.progress = new Progress();
    this.stopper = h("button", { type: "button", class: "button", onclick: stop }, "Stop");
    // It is hidden without giving up its space, so that nothing moves when a query takes longer.
    this.running = h("span", { class: "running is-hidden" }, this.clock, this.stopper);
    this.element = h(
      "div",
      { class: "bar-line", role: "toolbar", "aria-label": "What to show" },
      this.endpoint,
      this.subQuery,
      this.parameters,
      this.several,
      h("span", { class: "spring" }),
      this.picker.element,
      this.live,
      this.running,
      this.runner,
    );
    this.languages = h("div", { class: "segments", role: "group", "aria-label": "Language" });
  }

  show(view, endpoints, subQueries) {
    const open = endpoints.filter((one) => one.languages.length);
    Object.assign(this, { open, asked: view.endpoint.name, view });
    this.endpoint.hidden = open.length < 2;
    put(
      this.endpoint,
      open.map((one) => option(one.name, one.name, one.name === view.endpoint.name)),
    );
    put(
      this.subQuery,
      subQueries.map((one) => option(one.name, one.name, one.name === view.subQuery)),
    );
    this.showParameters(view);
    this.several.hidden = !mayCount(view.endpoint);
    this.several.setAttribute("href", hashOf("timeline", { range: view.range, utc: view.utc ? "1" : "" }));
    this.picker.show(view.range, view.utc);
    this.isLive = view.isLive;
    this.live.setAttribute("aria-pressed", String(view.isLive));
    put(
      this.languages,
      view.endpoint.languages.map((name) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(view.language === name),
            onclick: () => view.language !== name && this.setLanguage(name),
          },
          name.toUpperCase(),
        ),
      ),
    );
  }

  /** Return the changes of the address that drop the query if the chosen endpoint has other languages. */
  withoutText() {
    const languages = (name) => String(this.open.find((one) => one.name === name)?.languages);
    return languages(this.endpoint.value) === languages(this.asked) ? {} : { q: "", lang: "", pat: "" };
  }

  /** Show the parameters. While these are the same, their inputs are reused, so that typed text is not lost. */
  showParameters(view) {
    const wanted = openParameters(view.endpoint);
    const { key } = view.endpoint;
    const parameters = JSON.stringify([wanted, key]);
    if (this.shownParameters !== parameters) {
      this.shownParameters = parameters;
      const isPinned = (one) => Object.hasOwn(key.pins, one.name);
      this.inputs = new Map(wanted.filter((one) => !isPinned(one)).map((one) => [one.name, this.input(one)]));
      const shown = wanted.map((one) => (isPinned(one) ? pinned(one.name, key.pins[one.name]) : this.parameter(one)));
      put(this.parameters, shown);
    }
    for (const [name, input] of this.inputs) if (document.activeElement !== input) input.value = view.parameters[name];
  }

  parameter(one) {
    const input = this.inputs.get(one.name);
    const label = h("label", { class: "inline-field", title: one.description }, h("span", {}, one.name), input);
    if (one.name !== "project" || one.choices.length || !mayCount(this.view.endpoint)) return label;
    const choice = projectChoice({
      counts: async () => projectsOf(await countsOf(this.view)),
      chosen: () => this.view.parameters.project,
      onPick: (project) => this.setParameter("project", project),
    });
    return h("div", { class: "joined-apart tight" }, label, choice);
  }

  input(one) {
    const set = (event) => this.setParameter(one.name, event.target.value);
    if (one.choices.length)
      return h(
        "select",
        { onchange: set },
        one.choices.map((value) => option(value)),
      );
    return h("input", { type: "text", size: "10", autocomplete: "off", spellcheck: "false", onchange: set });
  }

  /** Show whether requests with this signal are running. */
  busy(isBusy, signal) {
    this.element.classList.toggle("is-busy", isBusy);
    this.runner.setAttribute("aria-busy", String(isBusy));
    clearInterval(this.ticking);
    if (isBusy) {
      this.progress.watch(signal);
      this.beganMs = performance.now();
      this.ticking = setInterval(() => this.tick(), CLOCK_MS);
      return;
    }
    this.progress.stop();
    if (this.isSlow) {
      if (this.stopper === document.activeElement) this.runner.focus();
      this.isSlow = false;
      this.clock.textContent = "";
    }
  }

  tick() {
    if (this.elapsedMs < CLOCK_AFTER_MS) return;
    if (!this.isSlow) this.onSlow();
    this.isSlow = true;
    this.clock.textContent = `${(this.elapsedMs / 1000).toFixed(1)} s`;
  }

  /** Whether the query has taken so long that its time and Stop are shown. */
  get isSlow() {
    return !this.running.classList.contains("is-hidden");
  }

  set isSlow(isSlow) {
    this.running.classList.toggle("is-hidden", !isSlow);
  }

  get elapsedMs() {
    return performance.now() - this.beganMs;
  }
}

function pinned(name, value) {
  const about = `This key is pinned to one ${name}.`;
  return h("span", { class: "inline-field", title: about }, h("span", {}, name), h("strong", { class: "pin" }, value));
}

/** The delay of the first request for the progress, which short queries end before, and the period of later ones. */
const [FIRST_MS, EVERY_MS] = [1000, 500];

export class Progress {
  constructor() {
    this.element = h("span", { class: "progress", title: "How much of the query is done" });
  }

  /** Show the progress of the requests with this signal, until it is aborted or `stop` is called. */
  watch(signal) {
    this.stop();
    const id = newId();
    this.id = id;
    nameRequests(signal, id);
    signal.addEventListener("abort", () => id === this.id && this.stop());
    this.timer = setTimeout(() => this.look(id), FIRST_MS);
  }

  stop() {
    this.id = null;
    clearTimeout(this.timer);
    this.element.textContent = "";
  }

  /** Request and show the progress. Errors are ignored: the query itself may still succeed. */
  async look(id) {
    const told = await read("/api/queries").catch(() => null);
    if (!told || id !== this.id) return;
    this.element.textContent = words(told.queries.filter((one) => one.id?.startsWith(id)));
    this.timer = setTimeout(() => this.look(id), EVERY_MS);
  }
}

/** Describe the progress of the query that has the largest remaining part. */
function words(queries) {
  const [first] = queries.filter(isTold).sort((one, other) => (one.part ?? 0) - (other.part ?? 0));
  if (!first) return "";
  const { rows_read: read, rows_total: total, part } = first;
  if (read === null) return `${Math.floor(part * 100)} % done`;
  return total === null ? `${compact(read)} rows read` : `${compact(read)} of ${compact(total)} rows read`;
}

function isTold({ rows_read: read, part }) {
  return read !== null || part !== null;
}

/** Return a random id; `crypto.randomUUID` is not available to pages without TLS. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
