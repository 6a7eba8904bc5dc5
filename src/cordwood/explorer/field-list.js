/** The list of the events' fields: each expands to its top values, and can be added as a column. */

import { h, put } from "./dom.js";
import { cell, compact } from "./format.js";

const MOST_SHOWN = 300;

export class FieldList {
  /** `valuesOf(field)` fetches [{value, events}]; clicks call `onFilter(path, value, isNot)` or `onColumn(field)`. */
  constructor({ valuesOf, onFilter, onColumn }) {
    Object.assign(this, { valuesOf, onFilter, onColumn, fields: [], columns: [], opened: new Map() });
    this.search = h("input", {
      type: "search",
      placeholder: "Find a field",
      "aria-label": "Find a field",
      oninput: () => this.draw(),
    });
    this.list = h("ul", { class: "fields" });
    this.count = h("span", { class: "faint" });
    this.element = h(
      "details",
      { class: "field-list", open: matchMedia("(min-width: 900px)").matches },
      h("summary", {}, h("h2", {}, "Fields"), this.count),
      this.search,
      this.list,
    );
  }

  /** Show the fields: [{path, text, kinds}]. `columns` are the texts of the columns; `isStale`: reload shown values. */
  show(fields, columns, { isStale }) {
    Object.assign(this, { fields, columns });
    this.count.textContent = String(fields.length || "");
    if (isStale) for (const [text, one] of this.opened) this.load(text, one.field);
    this.draw();
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const found = this.fields.filter(({ text }) => text.toLowerCase().includes(wanted));
    const focused = document.activeElement?.closest?.(".field")?.dataset.field;
    put(
      this.list,
      found.slice(0, MOST_SHOWN).map((field) => this.item(field)),
    );
    if (focused) this.list.querySelector(`[data-field="${CSS.escape(focused)}"] .field-name`)?.focus();
    if (!found.length)
      put(
        this.list,
        h("li", { class: "faint pad" }, this.fields.length ? "No field is called so." : "No field was seen yet."),
      );
  }

  item(field) {
    const isOpen = this.opened.has(field.text);
    const isColumn = this.columns.includes(field.text);
    const name = h(
      "button",
      {
        type: "button",
        class: "field-name",
        "aria-expanded": String(isOpen),
        title: field.kinds.join(" or "),
        onclick: () => this.toggle(field),
      },
      h("span", { class: "chevron", "aria-hidden": "true" }),
      h("span", { class: "field-path" }, split(field.text)),
    );
    const column = h(
      "button",
      {
        type: "button",
        class: "field-column",
        "aria-pressed": String(isColumn),
        title: isColumn ? "Remove the column" : "Show as a column",
        "aria-label": `Column ${field.text}`,
        onclick: () => this.onColumn(field),
      },
      isColumn ? "✓" : "+",
    );
    return h(
      "li",
      { class: "field", "data-field": field.text },
      h("div", { class: "field-line" }, name, column),
      isOpen ? this.values(field) : null,
    );
  }

  toggle(field) {
    if (this.opened.has(field.text)) this.opened.delete(field.text);
    else this.load(field.text, field);
    this.draw();
  }

  async load(text, field) {
    this.opened.set(text, { field, values: this.opened.get(text)?.values });
    const values = await this.valuesOf(field).catch((problem) => ({ problem }));
    if (!this.opened.has(text)) return;
    this.opened.set(text, { field, values });
    this.draw();
  }

  values(field) {
    const { values } = this.opened.get(field.text);
    if (!values) return h("p", { class: "faint pad" }, "Counting…");
    if (values.problem) return h("p", { class: "hint pad" }, values.problem.message);
    if (!values.length) return h("p", { class: "faint pad" }, "No value in these events.");
    const most = Math.max(...values.map((one) => one.events));
    return h(
      "ol",
      { class: "top-values", "aria-label": `Top values of ${field.text}` },
      values.map((one) => this.value(field, one, most)),
    );
  }

  value(field, { value, events }, most) {
    const text = value === null ? "null" : value === "" ? "(empty)" : cell(value);
    const bar = h("span", { class: "bar", style: { "--share": events / most } });
    const number = h("span", { class: "faint" }, compact(events));
    // Queries cannot filter by a whole array or object.
    if (typeof value === "object" && value !== null)
      return h("li", {}, bar, h("span", { class: "top-value", title: text }, text), number);
    const only = h(
      "button",
      { type: "button", class: "top-value", title: text, onclick: () => this.onFilter(field.path, value, false) },
      text,
    );
    const not = h(
      "button",
      {
        type: "button",
        class: "value-not",
        title: "Leave these out",
        "aria-label": `Leave out ${text}`,
        onclick: () => this.onFilter(field.path, value, true),
      },
      "≠",
    );
    return h("li", {}, bar, only, number, not);
  }
}

/** Return a path with all keys but the last in a faint colour, so that names are found at a glance. */
function split(text) {
  const at = text.lastIndexOf(".") + 1;
  return [h("span", { class: "faint" }, breakable(text.slice(0, at))), breakable(text.slice(at))];
}

/** Allow line breaks in a long name after its dots and underscores. */
function breakable(text) {
  return text.split(/(?<=[._])/).flatMap((piece) => [piece, h("wbr", {})]);
}
