/** A whole event as a tree; every value is a button that adds a filter. */

import { h } from "./dom.js";
import { cell, time } from "./format.js";

/** Deeper than this a branch begins closed. */
const OPEN_DEPTH = 3;

/**
 * `onFilter(path, value, isNot, isWithin)` is called for a value that is clicked, which is the path's own or one of
 * those of the array there; without it values are texts. `linksOf(path, value)` has the ids in a value with their
 * places. `utc` says how times are shown.
 * In answers every object stands in an array of one: the tree shows it as itself.
 */
export function eventTree(event, context) {
  const branches = Object.entries(event).map(([key, value]) => branch([key], unwrapped(value), context));
  return h("div", { class: "tree" }, branches);
}

/** An object instead of the array of one that it is answered as, all the way down. */
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

/** Elements of an array lie at the array's own path. */
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
  // No query finds an array in an array, a null among other elements, or what is empty.
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
