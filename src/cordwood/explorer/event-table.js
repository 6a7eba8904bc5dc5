/** The rows as a table; a row opens to its whole event. */

import { h, put } from "./dom.js";
import { cell, time } from "./format.js";
import { toneOf } from "./series.js";
import { eventTree } from "./tree.js";

/** Cells are cut here: the whole value is in the event. */
const LONGEST_CELL = 600;

export class EventTable {
  /** `whole(row)` fetches the event of a row; `onFilter`, `onColumn` change the query. */
  constructor({ whole, onFilter, onRemove, onCopy }) {
    Object.assign(this, { whole, onFilter, onRemove, onCopy, opened: new Map() });
    this.head = h("thead", {});
    this.body = h("tbody", {});
    this.table = h("table", { class: "events" }, h("caption", { class: "off-screen" }, "Rows"), this.head, this.body);
    this.element = h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Rows" }, this.table);
    this.body.addEventListener("click", (event) => this.click(event));
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  /** `columns`: [{name, label, isTime, isRemovable}]; `tone`: the name of the column that colours a row. */
  show({ rows, columns, tone, utc }) {
    Object.assign(this, { rows, columns, tone, utc });
    const known = new Set(rows.map(idOf));
    for (const id of this.opened.keys()) if (!known.has(id)) this.opened.delete(id);
    put(
      this.head,
      h(
        "tr",
        {},
        columns.map((one) => this.header(one)),
      ),
    );
    put(
      this.body,
      rows.flatMap((row, place) => this.row(row, place)),
    );
  }

  forget() {
    this.opened.clear();
  }

  header(column) {
    const remove = column.isRemovable
      ? h(
          "button",
          {
            type: "button",
            class: "remove",
            title: "Remove the column",
            "aria-label": `Remove the column ${column.label}`,
            onclick: () => this.onRemove(column),
          },
          "×",
        )
      : null;
    return h("th", { scope: "col", class: classOf(column) }, h("span", { class: "th-name" }, column.label), remove);
  }

  row(row, place) {
    const tone = toneOf(toned(row[this.tone]));
    const isOpen = this.opened.has(idOf(row, place));
    const cells = this.columns.map((column, index) => this.cell(row, column, index, isOpen));
    const line = h(
      "tr",
      { class: `row ${tone ? `edge-${tone}` : ""} ${isOpen ? "is-open" : ""}`, "data-place": place },
      cells,
    );
    return isOpen ? [line, this.detail(this.opened.get(idOf(row, place)))] : [line];
  }

  cell(row, column, index, isOpen) {
    const text =
      column.isTime && typeof row[column.name] === "number"
        ? time(row[column.name], { utc: this.utc })
        : cell(row[column.name]);
    const tone = column.name === this.tone ? toneOf(toned(row[column.name])) : "";
    const shown = text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)}…` : text;
    const content = tone ? h("span", { class: `badge badge-${tone}` }, shown) : shown;
    if (index > 0)
      return h("td", { class: classOf(column), "data-label": column.label }, h("div", { class: "cell" }, content));
    const toggle = h(
      "button",
      { type: "button", class: "toggle", "aria-expanded": String(isOpen) },
      h("span", { class: "chevron", "aria-hidden": "true" }),
      content || "–",
    );
    return h("td", { class: classOf(column) }, toggle);
  }

  click(event) {
    const line = event.target.closest("tr.row");
    const isText = String(getSelection()).length > 0;
    if (line && !isText) this.toggle(Number(line.dataset.place), line);
  }

  key(event) {
    const line = event.target.closest("tr.row");
    if (!line || !["ArrowDown", "ArrowUp", "j", "k"].includes(event.key)) return;
    event.preventDefault();
    const lines = [...this.body.querySelectorAll("tr.row .toggle")];
    const by = event.key === "ArrowDown" || event.key === "j" ? 1 : -1;
    lines[lines.indexOf(line.querySelector(".toggle")) + by]?.focus();
  }

  async toggle(place, line) {
    const row = this.rows[place];
    const id = idOf(row, place);
    if (this.opened.has(id)) {
      this.opened.delete(id);
      return this.redraw(place, line);
    }
    this.opened.set(id, { row, event: null });
    const drawn = this.redraw(place, line);
    const found = await this.whole(row).catch((problem) => ({ problem }));
    if (!this.opened.has(id)) return undefined;
    this.opened.set(id, { row, event: found.problem ? row : found, problem: found.problem });
    return drawn.isConnected ? this.redraw(place, drawn) : undefined;
  }

  redraw(place, line) {
    const hadFocus = line.contains(document.activeElement);
    if (line.nextElementSibling?.classList.contains("detail")) line.nextElementSibling.remove();
    const fresh = this.row(this.rows[place], place);
    line.replaceWith(...fresh);
    if (hadFocus) fresh[0].querySelector(".toggle").focus();
    return fresh[0];
  }

  detail({ event, problem }) {
    const content = event
      ? [
          h(
            "div",
            { class: "detail-bar" },
            h("span", { class: "faint" }, "Click a value to filter by it."),
            h("button", { type: "button", class: "button small", onclick: () => this.onCopy(event) }, "Copy as JSON"),
          ),
          problem ? h("p", { class: "hint" }, problem.message) : null,
          eventTree(event, { onFilter: this.onFilter, utc: this.utc }),
        ]
      : [h("p", { class: "faint" }, "Reading…")];
    return h("tr", { class: "detail" }, h("td", { colspan: this.columns.length }, content));
  }
}

function idOf(row, place) {
  return row.id ?? `row ${place}`;
}

function classOf(column) {
  const isWide = /message|path|url|query|sql/.test(column.name);
  return `${column.isTime ? "is-time" : ""} ${isWide ? "is-wide" : ""}`.trim();
}

/** Statuses stand for their class. */
function toned(value) {
  return value === null || value === undefined ? "" : String(value);
}
