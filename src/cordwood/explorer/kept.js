/** Texts in the browser's storage, separate for each key: recent queries, drafts of definitions and saved views. */

import { key } from "./key.js";

/** Addresses and queries are stored, but never rows. Only saved views outlive the tab. */
const HISTORY = { name: "cordwood.history", storage: () => sessionStorage, most: 50 };
/** Unsaved texts of definitions. */
const DRAFTS = { name: "cordwood.drafts", storage: () => sessionStorage, most: 20 };
const VIEWS = { name: "cordwood.views", storage: () => localStorage, most: 50 };
/** Entries with a longer address are not stored. */
const LONGEST = 8000;

/** Return the recent queries of the key, newest first: [{place, text, about, at}]. */
export function history() {
  return read(HISTORY).filter(isOwn);
}

export function addToHistory({ place, text, about }) {
  add(HISTORY, { place, text, about, at: Date.now() }, (one) => one.place === place);
}

/** Return the views that were saved with the key, by name: [{place, name}]. */
export function views() {
  return read(VIEWS)
    .filter(isOwn)
    .sort((one, other) => one.name.localeCompare(other.name));
}

/** Save a view, replacing one of the same name; return whether the storage had room. */
export function addView(name, place) {
  return add(VIEWS, { name, place }, (one) => one.name === name);
}

export function removeView(name) {
  write(VIEWS, read(VIEWS).filter((one) => !isOwn(one) || one.name !== name));
}

export function clearHistory() {
  write(HISTORY, read(HISTORY).filter((one) => !isOwn(one)));
}

/** Return the draft of the definition at this place, with the tag of the version that it changes: {text, tag}. */
export function draft(place) {
  return read(DRAFTS).find((one) => isOwn(one) && one.place === place);
}

/** Store a draft; return whether the storage had room. */
export function keepDraft(place, { text, tag }) {
  return add(DRAFTS, { place, text, tag }, (one) => one.place === place);
}

export function dropDraft(place) {
  write(DRAFTS, read(DRAFTS).filter((one) => !isOwn(one) || one.place !== place));
}

/** Delete everything that was stored for the key. */
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

/** Read a list, ignoring entries that are not valid: another version or a person may have written them. */
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

/** Return a hash that distinguishes keys. Its 32 bits do not reveal the key, because many keys have the same hash. */
function owner() {
  let hash = 0x811c9dc5;
  for (const character of key()) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193) >>> 0;
  return hash.toString(16);
}
