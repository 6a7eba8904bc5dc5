/** Completion at the caret: sub-queries, columns, fields that were seen in events, their values, and keywords. */

import { topValues } from "./explore-answers.js";
import { filterText, pathText } from "./lql.js";
import { bounds } from "./ranges.js";

const MOST = 60;
const LQL_CLAUSES = [
  ["t:last@1h", "time"],
  ["t:today", "time"],
  ["c:count(*)", "chart"],
  ["c:group_by(t::minute)", "chart"],
  ["s:", "columns"],
  ["order:", "order"],
  ["limit:", "rows"],
  ["f:", "sub-query"],
  ["OR", ""],
];
const LQL_TIMES = ["last@15m", "last@1h", "last@1d", "this@day", "today", "yesterday", "now"];
const LQL_CHARTS = ["count(*)", "countd(", "avg(", "sum(", "min(", "max(", "p50(", "p95(", "p99(", "group_by("];
const LQL_BUCKETS = ["t::second", "t::minute", "t::hour", "t::day", "t::week"];
const SQL_WORDS = [
  "select",
  "from",
  "where",
  "group by",
  "order by",
  "having",
  "limit",
  "with",
  "as",
  "and",
  "or",
  "not",
  "in",
  "is null",
  "between",
  "like",
  "case",
  "when",
  "then",
  "else",
  "end",
  "distinct",
  "desc",
  "cross join unnest(metadata) as m",
  "left join unnest(metadata) as m on true",
  "count(*)",
  "countif(",
  "sum(",
  "avg(",
  "min(",
  "max(",
  "approx_quantiles(",
  "timestamp_trunc(timestamp, hour)",
  "timestamp_sub(current_timestamp(), interval 1 hour)",
  "current_timestamp()",
  "regexp_contains(",
  "regexp_extract(",
  "cast(",
  "safe_cast(",
  "coalesce(",
  "lower(",
  "concat(",
  "starts_with(",
  "date(",
];

/**
 * Return suggestions for the text before the caret: {from, options: [{text, hint}]}; an option replaces the text from
 * `from` to the caret. `shape` is the sub-query: {name, columns, subQueries}; `valuesOf(path)` returns known values.
 */
export function suggestions(language, before, shape, valuesOf) {
  return language === "sql" ? forSql(before, shape) : forLql(before, shape, valuesOf);
}

/** Return all fields of a sub-query as paths of keys, with the types of their values. */
export function fieldsOf(subQuery) {
  if (!subQuery) return [];
  return subQuery.columns.flatMap((column) => {
    const plain = [{ path: [column.name], kinds: [kindOf(column)] }];
    const below = column.fields.map((field) => ({ path: [column.name, ...field.path], kinds: field.kinds }));
    return below.length ? below.filter(isLeaf) : plain;
  });
}

/** Whether a field has values of its own, and not only nested fields. */
function isLeaf(field) {
  return field.kinds.some((kind) => kind !== "object" && kind !== "array");
}

function kindOf(column) {
  return (column.type ?? "any").toLowerCase();
}

function forLql(before, shape, valuesOf) {
  const word = /(?:[^\s"(]|"[^"]*"|\((?=[^\s)]*$))*$/.exec(before)[0];
  const from = before.length - word.length;
  const clause = /^(-?)(\w+):(.*)$/s.exec(word);
  if (clause) {
    const inside = lqlAfterColon(clause[2].toLowerCase(), clause[3], shape);
    if (inside) return ranked(from + word.length - inside.typed.length, inside.typed, inside.options);
  }
  const split = lastColon(word);
  if (split > 0) return valueOptions(word, split, from, valuesOf);
  const minus = word.startsWith("-") ? "-" : "";
  const fields = fieldsOf(shape).map(({ path, kinds }) => ({
    text: `${minus}${pathText(path)}:`,
    hint: kinds.join(" or "),
  }));
  return ranked(from, word, [...fields, ...LQL_CLAUSES.map(([text, hint]) => ({ text, hint }))]);
}

function lqlAfterColon(name, typed, shape) {
  const plain = (texts, hint = "") => texts.map((text) => ({ text, hint }));
  const paths = fieldsOf(shape).map(({ path, kinds }) => ({ text: pathText(path), hint: kinds.join(" or ") }));
  const grouped = /^(?:group_by|\w+)\((.*)$/.exec(typed);
  if (name === "f" || name === "from") return { typed, options: plain(shape?.subQueries ?? [], "sub-query") };
  if (name === "t" || name === "timestamp") return { typed, options: plain(LQL_TIMES, "time") };
  if (name === "s" || name === "select" || name === "order") return { typed, options: paths };
  if (name !== "c" && name !== "chart") return null;
  if (!grouped) return { typed, options: plain(LQL_CHARTS, "chart") };
  return {
    typed: grouped[1],
    options: typed.startsWith("group_by") ? [...plain(LQL_BUCKETS, "time"), ...paths] : paths,
  };
}

function valueOptions(word, split, from, valuesOf) {
  const path = word.slice(0, split).replace(/^-/, "");
  const typed = word.slice(split + 1);
  const options = valuesOf(path).map(({ text, hint }) => ({ text, hint }));
  return ranked(from + split + 1, typed, options);
}

/** Return the position of the colon that ends a path, ignoring colons in quotes. */
function lastColon(word) {
  const quoted = word.replace(/"[^"]*"/g, (text) => "x".repeat(text.length));
  return quoted.indexOf(":");
}

function forSql(before, shape) {
  const typed = /(?<![\w.`])[\w.`]*$/.exec(before)[0];
  const from = before.length - typed.length;
  const fields = fieldsOf(shape).map(({ path, kinds }) => ({ text: sqlPath(path), hint: kinds.join(" or ") }));
  const tables = (shape?.subQueries ?? []).map((text) => ({ text, hint: "sub-query" }));
  const words = SQL_WORDS.map((text) => ({ text, hint: "" }));
  const isTable = /\b(from|join)\s+[\w`]*$/i.test(before);
  return ranked(from, typed, isTable ? tables : [...fields, ...tables, ...words]);
}

/** Return a path as SQL: below metadata it begins with `m`, the alias of the record that the query unnests. */
function sqlPath([first, ...rest]) {
  const keys = rest.map((key) => (/^\w+$/.test(key) ? key : `\`${key}\``));
  return [first === "metadata" && rest.length ? "m" : first, ...keys].join(".");
}

/** Return the options that contain the typed text: first those that begin with it. */
export function ranked(from, typed, options) {
  const wanted = typed.toLowerCase().replace(/^"/, "");
  const score = ({ text }) => {
    const lower = text.toLowerCase().replace(/^"/, "");
    if (lower.startsWith(wanted)) return 0;
    if (lower.split(/[._:]/).some((part) => part.startsWith(wanted))) return 1;
    return lower.includes(wanted) ? 2 : 3;
  };
  const found = options.map((one, place) => ({ one, place, score: score(one) })).filter(({ score: at }) => at < 3);
  found.sort((one, two) => one.score - two.score || one.place - two.place);
  const exact = found.length === 1 && found[0].one.text === typed;
  return { from, options: exact ? [] : found.slice(0, MOST).map(({ one }) => one) };
}

export class KnownValues {
  constructor() {
    this.byPath = new Map();
  }

  forget() {
    this.byPath.clear();
  }

  /** Return the values known so far; `again` is called when there are more. */
  of(view, path, again) {
    if (!this.byPath.has(path)) this.look(view, path, again);
    return this.byPath.get(path);
  }

  look(view, path, again) {
    this.byPath.set(path, []);
    const everything = { ...view, text: "", patterns: [] };
    const keep = (values) => this.keep(path, values) && again();
    // Errors are ignored: a field that no event has offers no values.
    topValues(everything, bounds(view.range), path).then(keep, () => {});
  }

  keep(path, values) {
    const plain = values.filter(({ value }) => typeof value !== "object");
    const offered = plain.map(({ value, events }) => ({ text: written(value), hint: String(events) }));
    this.byPath.set(path, offered);
    return offered.length > 0;
  }
}

/** Return a value as a filter writes it after the colon. */
function written(value) {
  return filterText(["x"], value).slice("x:".length);
}
