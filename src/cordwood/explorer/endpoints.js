/** The Endpoints page: the description of each endpoint, a form for its parameters, and its answer. */

import * as address from "./address.js";
import { ask, written } from "./api.js";
import { Chart } from "./chart.js";
import { DefinitionEditor } from "./definition-editor.js";
import { ENDPOINT } from "./definition-texts.js";
import * as described from "./described.js";
import { h, newId, option, put } from "./dom.js";
import { EventTable } from "./event-table.js";
import { partingColumn } from "./explore-answers.js";
import { popover, tell } from "./overlays.js";
import { sentences } from "./receipt.js";
import { copy, curlOf, downloadAs } from "./save.js";
import { unwrapped } from "./tree.js";

const PARAMETER = "p.";

export class EndpointsPage {
  constructor() {
    this.list = h("nav", { class: "card list", "aria-label": "Endpoints" });
    this.head = h("div", { class: "part" });
    this.body = h("div", { class: "part" });
    this.editing = new DefinitionEditor(ENDPOINT, () => this.forget());
    this.element = h(
      "div",
      { class: "page split" },
      h("h1", { class: "off-screen" }, "Endpoints"),
      this.list,
      h("section", { class: "card detail-card" }, this.head, this.editing.element, this.body),
    );
  }

  async update(values) {
    const [endpoints, definitions] = await Promise.all([described.endpoints(), described.definitions()]);
    const isNew = definitions !== null && values.edit === "new";
    const endpoint = isNew ? null : (endpoints.find((one) => one.name === values.endpoint) ?? endpoints[0]);
    put(
      this.list,
      h(
        "ul",
        {},
        definitions ? h("li", {}, newLink(isNew)) : null,
        endpoints.map((one) => this.entry(one, one === endpoint)),
      ),
    );
    const editing = definitions ? this.editing.show(values.edit, endpoint?.name ?? "") : null;
    await Promise.all([this.showOne(endpoint, definitions, values), editing]);
  }

  async showOne(endpoint, definitions, values) {
    const isSame = endpoint && this.endpoint === endpoint.name;
    this.endpoint = endpoint?.name ?? null;
    if (!endpoint) {
      put(this.head);
      put(this.body, values.edit ? null : h("p", { class: "empty" }, "There is no endpoint yet."));
      return;
    }
    if (!isSame) this.fill(endpoint, values, definitions?.get(endpoint.name));
    if (values.run && (!isSame || values.run !== this.ran)) await this.run(endpoint, values);
    this.ran = values.run;
  }

  /** Forget the endpoint after its definition changed, so that it is read and queried again. */
  forget() {
    described.askAgain();
    this.endpoint = null;
  }

  leave() {
    this.asking?.abort();
    this.editing.leave();
    this.endpoint = null;
  }

  entry(endpoint, isCurrent) {
    return h(
      "li",
      {},
      h(
        "a",
        { href: address.hashOf("endpoints", { endpoint: endpoint.name }), "aria-current": isCurrent ? "true" : null },
        h("span", { class: "list-name" }, endpoint.name),
        h("span", { class: "faint" }, endpoint.description.split(". ")[0]),
      ),
    );
  }

  fill(endpoint, values, definition) {
    this.inputs = new Map(endpoint.parameters.map((one) => [one.name, control(one, values[PARAMETER + one.name])]));
    const fields = endpoint.parameters.map((one) => field(one, this.inputs.get(one.name)));
    const form = h(
      "form",
      { class: "form", onsubmit: (event) => this.submit(event) },
      fields,
      h(
        "div",
        { class: "joined-apart" },
        h("button", { type: "submit", class: "button primary" }, "Run"),
        this.menu(endpoint),
      ),
    );
    this.answer = h("div", { class: "answer", role: "status" });
    this.rows = h("div", {});
    put(
      this.head,
      h("div", { class: "bar-line" }, h("h2", {}, endpoint.name), definition ? editButton(definition) : null),
      h("p", { class: "about" }, endpoint.description),
    );
    put(
      this.body,
      form,
      this.answer,
      this.rows,
      columnsOf(endpoint),
    );
  }

  menu(endpoint) {
    const panel = h("div", { class: "picker" });
    const button = h("button", { type: "button", class: "button" }, "Save");
    const menu = popover(button, panel, { label: "Save the rows or the call" });
    const act = (work) => () => {
      menu.close();
      work();
    };
    const download = (form) =>
      act(() => downloadAs(endpoint, this.given(), form).catch((problem) => tell(problem.message)));
    const curl = act(() => copy(curlOf(endpoint, this.given())).then(() => tell("The call is in the clipboard.")));
    put(
      panel,
      h("p", { class: "menu-head" }, "Download the rows"),
      h(
        "div",
        { class: "choices" },
        endpoint.formats.map((form) => h("button", { type: "button", class: "choice", onclick: download(form) }, form)),
      ),
      h("button", { type: "button", class: "choice", onclick: curl }, "Copy as curl"),
    );
    return menu.element;
  }

  given() {
    return Object.fromEntries([...this.inputs].map(([name, input]) => [name, input.value]));
  }

  submit(event) {
    event.preventDefault();
    const values = Object.fromEntries(Object.entries(this.given()).map(([name, value]) => [PARAMETER + name, value]));
    address.go("endpoints", { endpoint: this.endpoint, ...values, run: String(Number(this.ran ?? 0) + 1) });
  }

  async run(endpoint, values) {
    for (const [name, input] of this.inputs) input.value = values[PARAMETER + name] ?? input.value;
    this.asking?.abort();
    this.asking = new AbortController();
    put(this.answer, h("p", { class: "faint" }, "Asking…"));
    try {
      this.show(await ask(endpoint, this.given(), { signal: this.asking.signal }));
    } catch (problem) {
      if (problem.name !== "AbortError") this.fail(problem);
    }
  }

  show({ rows, columns, receipt }) {
    put(
      this.answer,
      h(
        "p",
        { class: "receipt" },
        sentences(receipt).map((one) => h("span", {}, `${one} `)),
      ),
    );
    const chart = new Chart({ hasToggle: false });
    chart.show({ rows, columns, utc: true });
    const drawn = () => chart.element;
    const table = () => rowTable(rows, columns, `Rows of ${this.endpoint}`);
    if (!rows.length) return put(this.rows, h("p", { class: "empty" }, "No rows."));
    if (chart.element.hidden || !chart.isShown) return put(this.rows, table());
    return put(this.rows, views(chart.choice.isTime ? { Chart: drawn, Table: table } : { Table: table, Chart: drawn }));
  }

  fail(problem) {
    put(this.rows);
    put(
      this.answer,
      h(
        "p",
        { class: "problem" },
        h("strong", {}, problem.message),
        " ",
        problem.hint,
        " ",
        h("code", {}, problem.code),
      ),
    );
  }
}

function newLink(isCurrent) {
  const attributes = { href: address.hashOf("endpoints", { edit: "new" }), "aria-current": isCurrent ? "true" : null };
  return h("a", attributes, h("span", { class: "linkish" }, "New endpoint"));
}

/** Return a button that edits the endpoint, or one that copies it if it cannot be edited here. */
function editButton({ origin }) {
  const open = (edit) => () => address.change({ edit });
  const button = (words, edit) =>
    h("button", { type: "button", class: "button small", "data-focus": "edit", onclick: open(edit) }, words);
  if (origin === "managed") return button("Edit", "1");
  const words = origin === "shipped" ? "It ships with cordwood." : "It is in a file of the operator.";
  return [button("Copy as new", "copy"), h("span", { class: "faint" }, words)];
}

/** Return the rows in the table of Explore, but without filters, because there is no query to change. */
function rowTable(rows, names, label) {
  const table = new EventTable({
    label,
    whole: async (row) => unwrapped(row),
    onCopy: (event) => copy(written(event)).then(() => tell("The row is in the clipboard.")),
  });
  table.show({ rows, columns: names.map((name) => ({ name, label: name })), tone: partingColumn(names), utc: false });
  return table.element;
}

/** Return a switch between several views, which shows the first at the beginning. */
function views(made) {
  const place = h("div", {});
  const buttons = Object.keys(made).map((name) => h("button", { type: "button", onclick: () => show(name) }, name));
  const show = (name) => {
    put(place, made[name]());
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
  };
  show(Object.keys(made)[0]);
  return h(
    "div",
    { class: "views" },
    h("div", { class: "segments", role: "group", "aria-label": "Show as" }, buttons),
    place,
  );
}

/**
 * Return the input of a parameter. Required ones may be empty, because the key may be pinned to their value; the
 * service reports those that are missing.
 */
function control(one, value) {
  const given =
    value ?? one.fallback ?? (one.name === "project" ? (sessionStorage.getItem("cordwood.project") ?? "default") : "");
  const id = newId("parameter");
  if (one.choices.length) {
    const choices = one.isRequired ? one.choices : ["", ...one.choices];
    return h(
      "select",
      { id, required: one.isRequired },
      choices.map((choice) => option(choice, choice, String(choice) === String(given))),
    );
  }
  const type = one.kind === "integer" || one.kind === "number" ? "number" : "text";
  return h("input", {
    id,
    type,
    step: one.kind === "number" ? "any" : null,
    value: given,
    placeholder: one.example,
    spellcheck: "false",
    autocomplete: "off",
  });
}

function field(one, input) {
  const note = newId("note");
  input.setAttribute("aria-describedby", note);
  return h(
    "div",
    { class: "field" },
    h(
      "label",
      { for: input.id },
      one.name,
      one.isRequired ? h("span", { class: "needed", title: "needed" }, " *") : null,
    ),
    input,
    h("p", { class: "faint", id: note }, one.description || (one.isRequired ? "Needed." : "May be left out.")),
  );
}

function columnsOf(endpoint) {
  if (!endpoint.columns.length) return null;
  return h(
    "details",
    { class: "about-columns" },
    h("summary", {}, "Columns"),
    h(
      "ul",
      { class: "plain-list" },
      endpoint.columns.map((one) => h("li", {}, h("code", {}, one.name), " ", h("span", { class: "faint" }, one.type))),
    ),
  );
}
