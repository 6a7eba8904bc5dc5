/** Columns of tables: their kinds of values, their initial widths, and sorting by them. */

import { cell, time } from "./format.js";

/** The number of rows from which the kind and the width of a column are derived. */
const SAMPLE = 300;
/** The width of a character in the tables' monospaced font, and the padding of a cell, in pixels. */
const [CHARACTER, AROUND] = [7.4, 22];
const [NARROWEST, WIDEST, LEAST_WIDE] = [6, 46, 34];
/** Characters reserved for the sort mark of a header, and for the button that opens a row. */
const [MARK, OPENER] = [3, 2];
/** Integers in this range are taken for times in microseconds since 1970: from 1990 until 2096. */
const [FIRST_US, LAST_US] = [6e14, 4e15];

/** Created on first use, because that takes a browser milliseconds. */
let collator = null;

/** Add the kinds of the columns: `isTime`, `isNumber`, and `isWide` for texts that fill the remaining width. */
export function withKinds(rows, columns) {
  const sample = rows.slice(0, SAMPLE);
  const known = columns.map((column) => {
    const values = sample.map((row) => row[column.name]).filter((value) => value !== null && value !== undefined);
    const isTime = values.length > 0 ? values.every(isMicroseconds) : Boolean(column.isTime);
    const isNumber = !isTime && values.length > 0 && values.every(isNumeric);
    const isWide = !isTime && !isNumber && /message|path|url|query|sql/.test(column.name);
    return { ...column, isTime, isNumber, isWide };
  });
  if (!known.some((one) => one.isWide)) markLastText(known);
  return known;
}

/** Return the initial width of a column in pixels: enough for its longest values, within bounds. */
export function firstWidth(rows, column, place) {
  const longest = rows.slice(0, SAMPLE).reduce((most, row) => Math.max(most, textOf(row, column, true).length), 0);
  const wanted = Math.max(column.label.length + MARK, longest + (place ? 1 : OPENER), NARROWEST);
  const characters = Math.min(WIDEST, column.isWide ? Math.max(LEAST_WIDE, Math.min(wanted, WIDEST)) : wanted);
  return Math.round(characters * CHARACTER + AROUND);
}

/** Return a cell's value as text. */
export function textOf(row, column, utc) {
  const value = row[column.name];
  if (column.format && isNumeric(value)) return column.format(value);
  return column.isTime && typeof value === "number" ? time(value, { utc, digits: digitsOf(column) }) : cell(value);
}

/** Return the indices of the rows, sorted by a column if there is one; missing values are last in both directions. */
export function sortedPlaces(rows, { name, isDown }) {
  const places = rows.map((_, place) => place);
  if (!name || !rows.some((row) => name in row)) return places;
  const values = rows.map((row) => row[name] ?? null);
  return places.sort((one, other) => ordered(values[one], values[other], isDown) || one - other);
}

/** Return the sorting after a click: for numbers and times descending, ascending, none; for texts ascending first. */
export function nextSort(column, { name, isDown }) {
  const isFirstDown = column.isNumber || column.isTime;
  if (name !== column.name) return { name: column.name, isDown: isFirstDown };
  return isDown === isFirstDown ? { name, isDown: !isDown } : { name: "", isDown: false };
}

/** Return a sorting as a value of the address: the column's name, after a minus if it is descending. */
export function sortText({ name, isDown }) {
  return name && `${isDown ? "-" : ""}${name}`;
}

export function sortOf(text = "") {
  return text.startsWith("-") ? { name: text.slice(1), isDown: true } : { name: text, isDown: false };
}

function ordered(one, other, isDown) {
  if (one === null || other === null) return (one === null) - (other === null);
  const compared = compare(one, other);
  return isDown ? -compared : compared;
}

function compare(one, other) {
  if (isNumeric(one) && isNumeric(other)) return one < other ? -1 : one > other ? 1 : 0;
  if (isNumeric(one) !== isNumeric(other)) return isNumeric(one) ? -1 : 1;
  collator ??= new Intl.Collator("en", { numeric: true });
  return collator.compare(cell(one), cell(other));
}

function isNumeric(value) {
  return typeof value === "number" || typeof value === "bigint";
}

function isMicroseconds(value) {
  return typeof value === "number" && value > FIRST_US && value < LAST_US;
}

/** Omit fractions of seconds, which only `timestamp` needs: other times, such as those of groups, are whole seconds. */
function digitsOf(column) {
  return column.name === "timestamp" ? 3 : 0;
}

function markLastText(columns) {
  const last = columns.findLast((one) => !one.isTime && !one.isNumber);
  if (last) last.isWide = true;
}
