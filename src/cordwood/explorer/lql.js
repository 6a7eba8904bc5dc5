/** LQL as text: finding its clauses, and writing paths and values in it. */

const SHOWING = /^-?(s|select|c|chart|order|limit):/i;

/** Split a query into clauses with their positions, at blanks outside of quotes and parentheses. */
export function clauses(text) {
  const found = [];
  const cutter = /(?:"(?:\\.|[^"\\])*"?|\((?:"(?:\\.|[^"\\])*"?|[^")])*\)?|[^\s"(])+/g;
  for (const match of text.matchAll(cutter)) found.push({ text: match[0], at: match.index });
  return found;
}

/** Return the query without the clauses that only determine how its events are shown. */
export function filtersOf(text) {
  const shown = clauses(text).filter((clause) => SHOWING.test(clause.text));
  let left = text;
  for (const clause of shown.reverse()) left = left.slice(0, clause.at) + left.slice(clause.at + clause.text.length);
  return left.trim();
}

export function isChart(text) {
  return clauses(text).some((clause) => /^(c|chart):/i.test(clause.text));
}

export function hasColumns(text) {
  return clauses(text).some((clause) => /^(s|select):/i.test(clause.text));
}

export function hasLimit(text) {
  return clauses(text).some((clause) => /^limit:/i.test(clause.text));
}

export function hasOrder(text) {
  return clauses(text).some((clause) => /^order:/i.test(clause.text));
}

/** Return the sub-query that the text names; empty if it names none. */
export function named(text) {
  const found = clauses(text).find((clause) => /^(f|from):\S/i.test(clause.text));
  return found ? found.text.replace(/^\w+:/, "") : "";
}

/** Return a path in LQL: `m` for metadata, and unusual keys in quotes. */
export function pathText(path) {
  const [first, ...rest] = path;
  const head = first === "metadata" && rest.length ? "m" : step(first);
  return [head, ...rest.map(step)].join(".");
}

/** Return a filter by a value; `isWithin` means that the path leads to an array that contains it. */
export function filterText(path, value, { isNot = false, isWithin = false } = {}) {
  return `${isNot ? "-" : ""}${pathText(path)}:${isWithin ? "@>" : ""}${valueText(value)}`;
}

/** Return a clause that matches messages by a regular expression. */
export function matchText(regex, { isNot = false } = {}) {
  return `${isNot ? "-" : ""}~"${escaped(regex)}"`;
}

export function withClause(text, clause) {
  const present = clauses(text).some((one) => one.text === clause);
  return present ? text : `${text.trimEnd()}${text.trim() ? " " : ""}${clause}`;
}

function step(key) {
  return /^[\w$-]+$/.test(key) ? key : `"${escaped(key)}"`;
}

/** Return a value in LQL; a text that could be read as something else is quoted. */
function valueText(value) {
  if (value === null) return "NULL";
  if (typeof value !== "string") return String(value);
  const isPlain = /^[A-Za-z/][\w./-]*$/.test(value) && !/^(null|true|false)$/i.test(value) && !value.includes("..");
  return isPlain ? value : `"${escaped(value)}"`;
}

function escaped(text) {
  return text.replace(/[\\"]/g, "\\$&");
}
