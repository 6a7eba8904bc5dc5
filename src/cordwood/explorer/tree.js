/** A whole event as a tree, in which a click on a value adds a filter. */

import { h } from "./dom.js";
import { cell, time } from "./format.js";

/** Branches below this depth are closed at first. */
const OPEN_DEPTH = 3;

/**
 * Return the tree of an event. `onFilter(path, value, isNot, isWithin)` is called for a clicked value, which is that of
 * the path or, if `isWithin`, an element of its array; without `onFilter`, values are plain text. `linksOf(path,
 * value)` returns the ids in a value with their addresses. `utc` selects the time zone. Objects, which answers wrap in
 * arrays of one element, are shown without the array.
 */
export function eventTree(event, context) {
  const branches = Object.entries(event).map(([key, value]) => branch([key], unwrapped(value), context));
  return h("div", { class: "tree" }, branches);
}

/** Return a value with all arrays of one object replaced by the object. */
export function unwrapped(value) {
  if (Array.isArray(value)) {
    const inner = value.map(unwrapped);
    return inner.length === 1 && isRecord(inner[0]) ? inner[0] : inner;
  }
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, unwrapped(one)]));
}

function branch(path, value, context) {
  const key = h("span", { class: "tree-key" }, path.at(-1));
  if (!isBranch(value)) return h("div", { class: "leaf" }, key, leaf(path, value, context));
  const children = Array.isArray(value)
    ? value.map((one, place) => element(path, one, place, context))
    : Object.entries(value).map(([name, one]) => branch([...path, name], one, context));
  const size = Array.isArray(value) ? `[${value.length}]` : `{${Object.keys(value).length}}`;
  const summary = h("summary", {}, key, h("span", { class: "faint" }, size));
  return h(
    "details",
    { class: "branch", open: path.length <= OPEN_DEPTH },
    summary,
    h("div", { class: "twigs" }, children),
  );
}

/** Return an element of an array, whose path is that of the array. */
function element(path, value, place, context) {
  const number = h("span", { class: "tree-key faint" }, place);
  if (!isBranch(value)) return h("div", { class: "leaf" }, number, leaf(path, value, { ...context, isWithin: true }));
  const twigs = Array.isArray(value)
    ? value.map((one, inner) => element(path, one, inner, { ...context, isTooDeep: true }))
    : Object.entries(value).map(([name, one]) => branch([...path, name], one, context));
  return h(
    "details",
    { class: "branch", open: place < 3 },
    h("summary", {}, number),
    h("div", { class: "twigs" }, twigs),
  );
}

function leaf(path, value, { onFilter, linksOf = () => [], utc, isWithin = false, isTooDeep = false }) {
  const text = cell(value);
  // Queries cannot filter by nested arrays, by null in an array, or by empty objects and arrays.
  const isFound = !isTooDeep && (value === null ? !isWithin : typeof value !== "object");
  if (!isFound) return h("span", { class: "leaf-value faint" }, value === null ? "null" : text);
  const read = isTime(path, value) ? h("span", { class: "faint" }, time(value, { utc })) : null;
  const after = [read, linksOf(path, value).map((one) => idLink(path, one))];
  if (!onFilter) return h("span", { class: "leaf-value" }, h("span", { class: `value ${kindOf(value)}` }, text), after);
  const where = path.join(".");
  const only = h(
    "button",
    {
      type: "button",
      class: `value ${kindOf(value)}`,
      title: `Only where ${where} is this`,
      onclick: () => onFilter(path, value, false, isWithin),
    },
    value === "" ? "(empty)" : value === null ? "null" : text,
  );
  const not = h(
    "button",
    {
      type: "button",
      class: "value-not",
      title: `Only where ${where} is not this`,
      "aria-label": `Leave out ${where} ${text.slice(0, 80)}`,
      onclick: () => onFilter(path, value, true, isWithin),
    },
    "≠",
  );
  return h("span", { class: "leaf-value" }, only, not, after);
}

function idLink(path, { id, place }) {
  const words = `Follow ${path.at(-1)} ${id}`;
  return h("a", { class: "follow-link", href: place, title: words, "aria-label": words }, "follow →");
}

function isTime(path, value) {
  return typeof value === "number" && value > 6e14 && value < 4e15 && /time|_at$/.test(path.at(-1));
}

function kindOf(value) {
  if (value === null) return "is-null";
  return typeof value === "bigint" ? "is-number" : `is-${typeof value}`;
}

function isBranch(value) {
  return (
    typeof value === "object" &&
    value !== null &&
    (Array.isArray(value) ? value.length > 0 : Object.keys(value).length > 0)
  );
}

function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
