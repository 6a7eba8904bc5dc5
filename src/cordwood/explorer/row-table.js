/** Rows of any answer as a plain table, most of them at first. */

import { h } from "./dom.js";
import { cell, time } from "./format.js";
import { toneOf } from "./series.js";

const SHOWN = 500;
/** Cells are cut here: one value must not push all others off the page. */
const LONGEST_CELL = 2000;
const TONED = /(^|_)(level|severity|status|status_code)$/;

export function rowTable(rows, columns, { utc = false, caption = "Rows" } = {}) {
  const numbers = new Set(
    columns.filter((name) => rows.every((row) => row[name] === null || typeof row[name] === "number")),
  );
  const kind = (name) => (isTime(rows, name) ? "is-time" : numbers.has(name) ? "is-count" : "");
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      columns.map((name) => h("th", { scope: "col", class: kind(name) }, name)),
    ),
  );
  const body = h(
    "tbody",
    {},
    rows.slice(0, SHOWN).map((row) =>
      h(
        "tr",
        {},
        columns.map((name) =>
          h("td", { class: kind(name), "data-label": name }, shown(row[name], name, kind(name), utc)),
        ),
      ),
    ),
  );
  const rest =
    rows.length > SHOWN
      ? h("p", { class: "faint pad" }, `The first ${SHOWN} of ${rows.length} rows; a download has all.`)
      : null;
  return h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "off-screen" }, caption), head, body),
    rest,
  );
}

function isTime(rows, name) {
  return (
    rows.length > 0 &&
    rows.every((row) => row[name] === null || (typeof row[name] === "number" && row[name] > 6e14 && row[name] < 4e15))
  );
}

function shown(value, name, kind, utc) {
  if (kind === "is-time" && value !== null) return time(value, { utc, digits: 0 });
  const tone = TONED.test(name) && value !== null ? toneOf(String(value)) : "";
  const text = cell(value);
  const short = text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)}… (${text.length} characters)` : text;
  return tone ? h("span", { class: `badge badge-${tone}` }, short) : short;
}
