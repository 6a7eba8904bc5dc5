/** What the browser keeps for a key: its last queries for as long as the tab lives, and views that were saved by name. */

import { key } from "./key.js";

/** Only addresses are kept, never rows; and only views that were saved outlive the tab. */
const HISTORY = { name: "cordwood.history", storage: () => sessionStorage, most: 50 };
/** What was typed into definitions and is not saved. */
const DRAFTS = { name: "cordwood.drafts", storage: () => sessionStorage, most: 20 };
const VIEWS = { name: "cordwood.views", storage: () => localStorage, most: 50 };
/** A longer address is not worth its place. */
const LONGEST = 8000;

/** The last queries of the key, the newest first: [{place, text, about, at}]. */
export function history() {
  return read(HISTORY).filter(isOwn);
}

export function addToHistory({ place, text, about }) {
  add(HISTORY, { place, text, about, at: Date.now() }, (one) => one.place === place);
}

/** The views that were saved with the key, by name: [{place, name}]. */
export function views() {
  return read(VIEWS)
    .filter(isOwn)
    .sort((one, other) => one.name.localeCompare(other.name));
}

/** Save a view; one of the same name is replaced. Whether there was room for it. */
export function addView(name, place) {
  return add(VIEWS, { name, place }, (one) => one.name === name);
}

export function removeView(name) {
  write(VIEWS, read(VIEWS).filter((one) => !isOwn(one) || one.name !== name));
}

export function clearHistory() {
  write(HISTORY, read(HISTORY).filter((one) => !isOwn(one)));
}

/** What was typed into the definition at this place, and the tag of the version that it changes: {text, tag}. */
export function draft(place) {
  return read(DRAFTS).find((one) => isOwn(one) && one.place === place);
}

/** Whether there was room for it. */
export function keepDraft(place, { text, tag }) {
  return add(DRAFTS, { place, text, tag }, (one) => one.place === place);
}

export function dropDraft(place) {
  write(DRAFTS, read(DRAFTS).filter((one) => !isOwn(one) || one.place !== place));
}

/** Leave nothing of the key behind. */
export function forgetAll() {
  clearHistory();
  write(DRAFTS, read(DRAFTS).filter((one) => !isOwn(one)));
  write(VIEWS, read(VIEWS).filter((one) => !isOwn(one)));
}

function add(list, entry, isSame) {
  if (entry.place.length > LONGEST) return false;
  const others = read(list).filter((one) => !isOwn(one) || !isSame(one));
  return write(list, [{ ...entry, owner: owner() }, ...others].slice(0, list.most));
}

function isOwn(one) {
  return one.owner === owner();
}

/** What stands there may be of another version, or of somebody's own hand. */
function read(list) {
  try {
    const found = JSON.parse(list.storage().getItem(list.name) ?? "[]");
    const isPlace = (one) => /^#(explore|endpoints|streams)\?/.test(one?.place);
    return Array.isArray(found) ? found.filter((one) => isPlace(one) && isText(one)) : [];
  } catch {
    return [];
  }
}

function isText({ owner: whose, name = "", text = "", about = "", tag = "" }) {
  return [whose, name, text, about, tag].every((one) => typeof one === "string");
}

function write(list, entries) {
  try {
    if (entries.length) list.storage().setItem(list.name, JSON.stringify(entries));
    else list.storage().removeItem(list.name);
    return true;
  } catch {
    return false;
  }
}

/** Tells keys apart and tells nothing of them: 32 bits that many keys have in common. */
function owner() {
  let hash = 0x811c9dc5;
  for (const character of key()) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193) >>> 0;
  return hash.toString(16);
}
