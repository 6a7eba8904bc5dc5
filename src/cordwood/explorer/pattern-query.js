/** Queries about message patterns: the SQL that counts templates of messages, and clauses that filter by one. */

import * as lql from "./lql.js";
import * as sql from "./sql.js";

/** The placeholder for the variable parts of a template. */
export const PLACEHOLDER = "<*>";
/** The characters of a message that are examined, and the maximum length of a template. */
const [MOST_READ, MOST_TEMPLATE] = [2000, 300];
/** The maximum number of templates in the list. */
export const MOST_LISTED = 50;
/** The maximum number of templates in a query's filters: each is a regular expression of up to 12 KB. */
const MOST_FILTERS = 5;

/** A word with at least one digit. Whole words are replaced: a template matches the messages that it was made of. */
const WORD = "[A-Za-z]*[0-9][0-9A-Za-z]*";
/** E-mail addresses, UUIDs, and numbers, hexadecimal numbers, versions, IP addresses, dates and lists of these. */
const VARIABLE = [
  "[0-9A-Za-z][0-9A-Za-z._%+-]*@[0-9A-Za-z-]+(?:[.][0-9A-Za-z-]+)*",
  "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
  `${WORD}(?:[.:,/+_-]${WORD})*`,
].join("|");
/** What a placeholder matches; a message may also contain the placeholder's text itself. */
const HOLE = `(?:${VARIABLE}|<[*]>)`;
const SHOWING = /^(-?(s|select|c|chart|order|limit)|f|from):/i;

/**
 * Return SQL that counts templates over a query that yields `timestamp` and `event_message`: a row for each of the most
 * frequent templates, with its counts over time as `at:events`, and the totals of all. `step` is in seconds.
 */
export function patternsSql(events, step, isClickHouse) {
  const of = isClickHouse ? CLICKHOUSE : BIGQUERY;
  return [
    `with messages as (\nselect timestamp, substring(event_message, 1, ${MOST_READ}) as message,`,
    `${of.length("event_message")} as characters\nfrom (\n${events}\n) as e\nwhere event_message is not null\n),`,
    "templates as (\nselect timestamp, message, characters,",
    `substring(${of.replace("message", sql.value(VARIABLE), sql.value(PLACEHOLDER))}, 1, ${MOST_TEMPLATE}) as template`,
    "from messages\n),",
    `counted as (\nselect template, characters > ${MOST_READ} or ${of.length("template")} >= ${MOST_TEMPLATE} as is_cut,`,
    `${of.bucket(step)} as at, count(*) as n, min(timestamp) as earliest, max(timestamp) as latest,`,
    `min(substring(message, 1, ${MOST_TEMPLATE})) as one\nfrom templates\ngroup by template, is_cut, at\n),`,
    `merged as (\nselect template, is_cut, sum(n) as events, ${of.micros("min(earliest)")} as first_at,`,
    `${of.micros("max(latest)")} as last_at, min(one) as example, ${of.list("at", "n")} as over_time`,
    `from counted\ngroup by template, is_cut\n)\n${of.most("template, is_cut, events, first_at, last_at, example, over_time")}`,
  ].join("\n");
}

const ORDERED = `from merged\norder by events desc, template, is_cut\nlimit ${MOST_LISTED}`;
const BIGQUERY = {
  length: (text) => `char_length(${text})`,
  replace: (text, regex, by) => `regexp_replace(${text}, ${regex}, ${by})`,
  bucket: (step) => `div(unix_seconds(timestamp), ${step}) * ${step}`,
  micros: (time) => time,
  list: (at, n) => `array_agg(concat(cast(${at} as string), ':', cast(${n} as string)))`,
  most: (names) =>
    `select ${names}, sum(events) over () as all_events, count(*) over () as all_patterns\n${ORDERED}`,
};
/** ClickHouse's dialect accepts no window functions, so its rows have no totals. */
const CLICKHOUSE = {
  length: (text) => `lengthUTF8(${text})`,
  replace: (text, regex, by) => `replaceRegexpAll(${text}, ${regex}, ${by})`,
  bucket: (step) => `intDiv(toUnixTimestamp(timestamp), ${step}) * ${step}`,
  micros: (time) => `toUnixTimestamp64Micro(${time})`,
  list: (at, n) => `groupArray(concat(toString(${at}), ':', toString(${n})))`,
  most: (names) => `select ${names}\n${ORDERED}`,
};

/** Return the pattern of a row; `isCut` means that the messages are longer than the examined part. */
export function patternOf({ template, is_cut: isCut }) {
  return { template, isCut: Boolean(isCut) };
}

/** Return the regular expression (RE2) that matches exactly the messages of a pattern. */
export function regexOf({ template, isCut }) {
  const whole = isCut ? template.replace(/<\*?$/, "") : template;
  const literals = whole.split(PLACEHOLDER).map(escaped);
  return `^${literals.join(HOLE)}${isCut ? "" : "$"}`;
}

/** Return the patterns in a value of the address, without those that are not valid. */
export function patternsOf(text = "") {
  try {
    const read = JSON.parse(text || "[]");
    return read.filter(isPattern).slice(0, MOST_FILTERS).map(patternIn);
  } catch {
    return [];
  }
}

/** Return patterns as a value of the address: for each a sign, whether the template is cut, and the template. */
export function textOf(patterns) {
  const written = patterns.map(({ template, isCut, isNot }) => `${isNot ? "-" : "+"}${isCut ? "^" : "="}${template}`);
  return written.length ? JSON.stringify(written) : "";
}

/** Add a pattern, replacing the same one with the opposite sign; return null if there are too many. */
export function withPattern(patterns, added) {
  const others = withoutPattern(patterns, added);
  return others.length < MOST_FILTERS ? [...others, added] : null;
}

export function withoutPattern(patterns, { template, isCut }) {
  return patterns.filter((one) => one.template !== template || one.isCut !== isCut);
}

/** Return the LQL clauses that filter by the patterns. */
export function clausesOf(patterns) {
  return patterns.map((pattern) => lql.matchText(regexOf(pattern), { isNot: pattern.isNot }));
}

/** Return an LQL query with its alternatives (OR) in parentheses, so that added clauses apply to all of them. */
export function grouped(text, patterns) {
  const clauses = lql.clauses(text).map((one) => one.text);
  if (!patterns.length || !clauses.includes("OR")) return text;
  const shows = clauses.filter((one) => SHOWING.test(one));
  const filters = clauses.filter((one) => !SHOWING.test(one));
  return [...shows, `(${filters.join(" ")})`].join(" ");
}

function isPattern(one) {
  return typeof one === "string" && /^[-+][=^]/.test(one) && [...one].length <= MOST_TEMPLATE + 2;
}

function patternIn(text) {
  return { template: text.slice(2), isCut: text[1] === "^", isNot: text[0] === "-" };
}

/** Escape a text for a regular expression; backslashes and control characters are written as numbers. */
function escaped(text) {
  const plain = text.replace(/[\\\p{Cc}]/gu, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, "0")}`);
  return plain.replace(/[\^$.|?*+()[\]{}]/g, "\\$&");
}
