/** The key: stored in this tab until it is closed, and never part of an address. */

const PLACE = "cordwood.key";
/** Quotes, blanks and invisible characters that are copied with a key from a chat or a document. */
const AROUND = /^[\s"'`“”‘’\u200b-\u200f\u2060]+|[\s"'`“”‘’\u200b-\u200f\u2060]+$/g;

let inForce = new AbortController();

export function key() {
  return sessionStorage.getItem(PLACE) ?? "";
}

/** Return a signal that is aborted when the key changes, so that no answer for one key reaches the page of another. */
export function untilForgotten() {
  return inForce.signal;
}

export function keep(pasted) {
  forget();
  sessionStorage.setItem(PLACE, pasted.replace(AROUND, ""));
}

/** Whether the key has only characters that an HTTP header may hold. */
export function isSendable() {
  return /^[\x21-\x7e]+$/.test(key());
}

export function forget() {
  sessionStorage.removeItem(PLACE);
  inForce.abort();
  inForce = new AbortController();
}
