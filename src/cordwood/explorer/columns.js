/** Columns of a table: what they hold, how wide they are at first, and how rows are sorted by them. */

import { cell, time } from "./format.js";

/** Rows that are looked at for a column's kind and width. */
const SAMPLE = 300;
/** A character of the tables' monospaced font, and what surrounds a cell, in pixels. */
const [CHARACTER, AROUND] = [7.4, 22];
const [NARROWEST, WIDEST, LEAST_WIDE] = [6, 46, 34];
/** Room for the sort mark of a header, and for what opens a row. */
const [MARK, OPENER] = [3, 2];
/** Microseconds of any plausible log: from 1990 until 2096. */
const [FIRST_US, LAST_US] = [6e14, 4e15];

/** Made when first used: it takes a browser milliseconds. */
let collator = null;

/** Columns with what their values are: `isTime`, `isNumber`, `isWide` for texts that take what width is left. */
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

/** The pixels that a column has at first: as many as its longest values need, within bounds. */
export function firstWidth(rows, column, place) {
  const longest = rows.slice(0, SAMPLE).reduce((most, row) => Math.max(most, textOf(row, column, true).length), 0);
  const wanted = Math.max(column.label.length + MARK, longest + (place ? 1 : OPENER), NARROWEST);
  const characters = Math.min(WIDEST, column.isWide ? Math.max(LEAST_WIDE, Math.min(wanted, WIDEST)) : wanted);
  return Math.round(characters * CHARACTER + AROUND);
}

/** A cell's value as text. */
export function textOf(row, column, utc) {
  const value = row[column.name];
  if (column.format && isNumeric(value)) return column.format(value);
  return column.isTime && typeof value === "number" ? time(value, { utc, digits: digitsOf(column) }) : cell(value);
}

/** The places of rows in the order of a column; as they came without one. Missing values are last either way. */
export function sortedPlaces(rows, { name, isDown }) {
  const places = rows.map((_, place) => place);
  if (!name || !rows.some((row) => name in row)) return places;
  const values = rows.map((row) => row[name] ?? null);
  return places.sort((one, other) => ordered(values[one], values[other], isDown) || one - other);
}

/** How a column is sorted after another click: numbers and times by the largest first, then the other way, then as it came. */
export function nextSort(column, { name, isDown }) {
  const isFirstDown = column.isNumber || column.isTime;
  if (name !== column.name) return { name: column.name, isDown: isFirstDown };
  return isDown === isFirstDown ? { name, isDown: !isDown } : { name: "", isDown: false };
}

/** An order as the address has it: a name, with a minus before it for the largest first. */
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

/** Times of whole seconds, such as those of groups, need no fraction. */
function digitsOf(column) {
  return column.name === "timestamp" ? 3 : 0;
}

function markLastText(columns) {
  const last = columns.findLast((one) => !one.isTime && !one.isNumber);
  if (last) last.isWide = true;
}
