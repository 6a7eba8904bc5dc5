/** A table of rows that can be sorted, wrapped and resized; a row expands to its whole event. */

import { firstWidth, nextSort, sortOf, sortText, sortedPlaces, textOf, withKinds } from "./columns.js";
import { h, option, put } from "./dom.js";
import { RowWindow } from "./row-window.js";
import { toneOf } from "./series.js";
import { eventTree } from "./tree.js";

/** Longer cells are cut; the expanded event has the whole value. */
const LONGEST_CELL = 600;
/** The pixels by which a key press widens a column, and the minimum width of a column. */
const [WIDER, LEAST_WIDTH] = [16, 56];

export class EventTable {
  /**
   * `whole(row)` fetches the event of a row; `onFilter` and `onRemove` change the query, if there is one.
   * `onArrange({sort, wrap})` is called after the rows were sorted or wrapped. `linksOf(path, value)` returns the ids
   * in a value, [{id, place}], `placeOf(row)` the address of the row's event or null, `tones(value)` the colour of a
   * row.
   */
  constructor({ label = "Rows", ...given }) {
    Object.assign(this, { onArrange: () => {}, linksOf: () => [], placeOf: () => null, tones: toneOf, ...given });
    Object.assign(this, { opened: new Map(), widths: new Map() });
    Object.assign(this, { sort: sortOf(), order: [], rows: [], columns: [] });
    this.head = h("thead", {});
    this.body = h("tbody", {});
    this.group = h("colgroup", {});
    const caption = h("caption", { class: "off-screen" }, label);
    this.table = h("table", { class: "events" }, caption, this.group, this.head, this.body);
    this.frame = h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.window = new RowWindow(this.frame, this.body, (position) => this.row(position));
    this.element = h("div", { class: "table-box" }, this.bar(), this.frame);
    this.body.addEventListener("click", (event) => this.click(event));
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  bar() {
    this.told = h("p", { class: "faint", role: "status" });
    this.wrapper = h("button", { type: "button", class: "button small", onclick: () => this.toggleWrap() }, "Wrap");
    this.sorter = h("select", {
      class: "sorter",
      "aria-label": "Sort by",
      onchange: () => this.arrange({ sort: sortOf(this.sorter.value) }),
    });
    return h("div", { class: "table-bar" }, this.told, this.sorter, this.wrapper);
  }

  /**
   * Show rows. `columns`: [{name, label, isTime, isRemovable}]; `tone`: the column that determines the colour of a row;
   * `isCut`: whether there are more rows.
   */
  show({ rows, columns, tone, utc, sort = this.sort, isWrapped = this.isWrapped, isCut = false }) {
    Object.assign(this, { rows, columns: withKinds(rows, columns), tone, utc, sort, isWrapped, isCut });
    const known = new Set(rows.map(idOf));
    for (const id of this.opened.keys()) if (!known.has(id)) this.opened.delete(id);
    this.draw();
  }

  forget() {
    this.opened.clear();
    this.widths.clear();
  }

  draw() {
    this.order = sortedPlaces(this.rows, this.sort);
    this.table.classList.toggle("is-wrapped", Boolean(this.isWrapped));
    this.wrapper.setAttribute("aria-pressed", String(Boolean(this.isWrapped)));
    const headers = this.columns.map((one) => this.header(one));
    put(this.head, h("tr", {}, headers));
    this.drawWidths();
    this.window.show(this.rows.length);
    if (this.window.isLong) this.table.setAttribute("aria-rowcount", this.rows.length + 1);
    else this.table.removeAttribute("aria-rowcount");
    const isSorted = this.columns.some((one) => one.name === this.sort.name);
    this.told.textContent = isSorted && this.isCut ? `The ${this.rows.length} rows that are shown are sorted.` : "";
    const both = ({ name, label }) => [option(name, `${label} ↑`), option(`-${name}`, `${label} ↓`)];
    const choices = this.columns.flatMap(both);
    put(this.sorter, option("", "as it came"), choices);
    this.sorter.value = isSorted ? sortText(this.sort) : "";
  }

  // The columns

  header(column) {
    const isSorted = column.name === this.sort.name;
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
    const sorter = h(
      "button",
      {
        type: "button",
        class: "sort",
        title: "Sort. Shift and the arrow keys change the width.",
        onclick: () => this.arrange({ sort: nextSort(column, this.sort) }, column.name),
        onkeydown: (event) => this.widen(event, column),
      },
      h("span", { class: "th-name" }, column.label),
    );
    const grip = h("span", {
      class: "grip",
      "aria-hidden": "true",
      onpointerdown: (event) => this.drag(event, column),
      ondblclick: () => this.setWidth(column, null),
    });
    return h(
      "th",
      {
        scope: "col",
        class: classOf(column),
        "data-column": column.name,
        "aria-sort": isSorted ? (this.sort.isDown ? "descending" : "ascending") : "none",
      },
      h("div", { class: "th" }, sorter, remove),
      grip,
    );
  }

  /** Sort or wrap the rows; the focus stays on the header that was used. */
  arrange({ sort = this.sort, isWrapped = this.isWrapped }, focused) {
    Object.assign(this, { sort, isWrapped });
    this.draw();
    if (focused) this.head.querySelector(`[data-column="${CSS.escape(focused)}"] .sort`)?.focus();
    this.onArrange({ sort: sortText(sort), wrap: isWrapped ? "1" : "" });
  }

  toggleWrap() {
    this.arrange({ isWrapped: !this.isWrapped });
  }

  drawWidths() {
    const chosen = ({ name }) => this.widths.get(name);
    const widths = this.columns.map((column, place) => chosen(column) ?? firstWidth(this.rows, column, place));
    // The last wide column fills the remaining width, unless the reader has set its width.
    const taker = this.columns.findLast((one) => one.isWide && !this.widths.has(one.name));
    const width = (column, place) => (column === taker ? {} : { style: { width: `${widths[place]}px` } });
    const marks = this.columns.map((column, place) => h("col", width(column, place)));
    put(this.group, marks);
    this.table.style.setProperty("min-width", `${widths.reduce((sum, one) => sum + one, 0)}px`);
    this.table.style.setProperty("width", taker ? "100%" : "0");
  }

  setWidth(column, width) {
    if (width === null) this.widths.delete(column.name);
    else this.widths.set(column.name, Math.max(LEAST_WIDTH, Math.round(width)));
    this.drawWidths();
  }

  widthOf(column) {
    return this.head.querySelector(`[data-column="${CSS.escape(column.name)}"]`).getBoundingClientRect().width;
  }

  widen(event, column) {
    const by = { ArrowLeft: -WIDER, ArrowRight: WIDER }[event.key];
    if (!event.shiftKey || !by) return;
    event.preventDefault();
    this.setWidth(column, this.widthOf(column) + by);
  }

  drag(event, column) {
    event.preventDefault();
    const [grip, from, width] = [event.target, event.clientX, this.widthOf(column)];
    const move = (moved) => this.setWidth(column, width + moved.clientX - from);
    grip.setPointerCapture(event.pointerId);
    grip.addEventListener("pointermove", move);
    grip.addEventListener("lostpointercapture", () => grip.removeEventListener("pointermove", move), { once: true });
  }

  // The rows

  row(position) {
    const place = this.order[position];
    const row = this.rows[place];
    const tone = this.tones(toned(row[this.tone]));
    const opened = this.opened.get(idOf(row, place));
    const cells = this.columns.map((column, index) => this.cell(row, column, index, Boolean(opened)));
    const line = h(
      "tr",
      {
        class: `row ${tone ? `edge-${tone}` : ""} ${opened ? "is-open" : ""}`,
        "data-position": position,
        "aria-rowindex": this.window.isLong ? position + 2 : null,
      },
      cells,
    );
    return opened ? [line, this.detail(opened)] : [line];
  }

  cell(row, column, index, isOpen) {
    const text = textOf(row, column, this.utc);
    const tone = column.name === this.tone ? this.tones(toned(row[column.name])) : "";
    const shown = text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)}… (${text.length} characters)` : text;
    const content = tone ? h("span", { class: `badge badge-${tone}` }, shown) : this.linked(row, column, shown);
    if (index > 0)
      return h("td", { class: classOf(column), "data-label": column.label }, h("div", { class: "cell" }, content));
    const toggle = h(
      "button",
      { type: "button", class: "toggle", "aria-expanded": String(isOpen) },
      h("span", { class: "chevron", "aria-hidden": "true" }),
      h("span", { class: "cell" }, content || "–"),
    );
    return h("td", { class: classOf(column), "data-label": column.label }, toggle);
  }

  /** Link a cell that is an id. The first cell is not linked, because a click on it expands the row. */
  linked(row, column, shown) {
    if (column === this.columns[0]) return shown;
    const value = row[column.name];
    const path = column.path ? column.path.split(".") : [column.name];
    const [link] = this.linksOf(path, value);
    return link?.id === String(value) ? h("a", { href: link.place, title: "Follow this id" }, shown) : shown;
  }

  /** Expand the row of an event and scroll to it. */
  reveal(id) {
    const position = this.order.findIndex((place) => idOf(this.rows[place], place) === id);
    if (position < 0) return;
    this.window.reveal(position).querySelector(".toggle").focus({ preventScroll: true });
    if (!this.opened.has(id)) this.toggle(position);
  }

  click(event) {
    if (event.target.closest("a")) return;
    const line = event.target.closest("tr.row");
    const isText = String(getSelection()).length > 0;
    if (line && !isText) this.toggle(Number(line.dataset.position));
  }

  key(event) {
    const line = event.target.closest("tr.row");
    if (!line || !["ArrowDown", "ArrowUp", "j", "k"].includes(event.key)) return;
    event.preventDefault();
    const by = event.key === "ArrowDown" || event.key === "j" ? 1 : -1;
    const position = Math.max(0, Math.min(this.rows.length - 1, Number(line.dataset.position) + by));
    this.window.reveal(position).querySelector(".toggle").focus({ preventScroll: true });
  }

  async toggle(position) {
    const { rows } = this;
    const place = this.order[position];
    const row = rows[place];
    const id = idOf(row, place);
    if (this.opened.has(id)) {
      this.opened.delete(id);
      return this.redraw(position);
    }
    this.opened.set(id, { row, event: null });
    this.redraw(position);
    const found = await this.whole(row).catch((problem) => ({ problem }));
    if (!this.opened.has(id)) return undefined;
    this.opened.set(id, { row, event: found.problem ? row : found, problem: found.problem });
    const now = this.order.findIndex((one) => idOf(this.rows[one], one) === id);
    return now >= 0 ? this.redraw(now) : undefined;
  }

  redraw(position) {
    const hadFocus = this.body.querySelector(`[data-position="${position}"]`)?.contains(document.activeElement);
    this.window.replace(position);
    if (hadFocus) this.body.querySelector(`[data-position="${position}"] .toggle`).focus();
  }

  detail({ row, event, problem }) {
    const place = this.placeOf(row);
    const words = this.onFilter ? "Click a value to filter by it." : "";
    const content = event
      ? [
          h(
            "div",
            { class: "detail-bar" },
            h("span", { class: "faint" }, words),
            place ? h("a", { class: "button small", href: place }, "Lines around") : null,
            h("button", { type: "button", class: "button small", onclick: () => this.onCopy(event) }, "Copy as JSON"),
          ),
          problem ? h("p", { class: "hint" }, problem.message) : null,
          eventTree(event, { onFilter: this.onFilter, linksOf: this.linksOf, utc: this.utc }),
        ]
      : [h("p", { class: "faint" }, "Reading…")];
    const box = h("div", { class: "detail-box" }, content);
    return h("tr", { class: "detail" }, h("td", { colspan: this.columns.length }, box));
  }
}

function idOf(row, place) {
  return row.id ?? `row ${place}`;
}

function classOf(column) {
  if (column.isTime) return "is-time";
  return column.isNumber ? "is-count" : column.isWide ? "is-wide" : "";
}

/** Return a value as the text that determines the colour. */
function toned(value) {
  return value === null || value === undefined ? "" : String(value);
}
