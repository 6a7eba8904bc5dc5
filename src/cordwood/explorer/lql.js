/** LQL as text: where its clauses are, and how paths and values are written in it. */

const SHOWING = /^-?(s|select|c|chart|order|limit):/i;

/** The clauses of a query with their places, as blanks outside of quotes and parentheses part them. */
export function clauses(text) {
  const found = [];
  const cutter = /(?:"(?:\\.|[^"\\])*"?|\((?:"(?:\\.|[^"\\])*"?|[^")])*\)?|[^\s"(])+/g;
  for (const match of text.matchAll(cutter)) found.push({ text: match[0], at: match.index });
  return found;
}

/** The query without what only says how to show its events. */
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

/** The sub-query that the text itself names. */
export function named(text) {
  const found = clauses(text).find((clause) => /^(f|from):\S/i.test(clause.text));
  return found ? found.text.replace(/^\w+:/, "") : "";
}

/** A path as LQL writes it: `m.` for metadata, odd keys in quotes. */
export function pathText(path) {
  const [first, ...rest] = path;
  const head = first === "metadata" && rest.length ? "m" : step(first);
  return [head, ...rest.map(step)].join(".");
}

/** `isWithin`: the path leads to an array that has the value as one of its own. */
export function filterText(path, value, { isNot = false, isWithin = false } = {}) {
  return `${isNot ? "-" : ""}${pathText(path)}:${isWithin ? "@>" : ""}${valueText(value)}`;
}

/** A clause for messages that match a regular expression. */
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

/** Text that could be read as something else is quoted. */
function valueText(value) {
  if (value === null) return "NULL";
  if (typeof value !== "string") return String(value);
  const isPlain = /^[A-Za-z/][\w./-]*$/.test(value) && !/^(null|true|false)$/i.test(value) && !value.includes("..");
  return isPlain ? value : `"${escaped(value)}"`;
}

function escaped(text) {
  return text.replace(/[\\"]/g, "\\$&");
}
