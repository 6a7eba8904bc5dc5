/** The key: pasted once, kept for as long as this tab lives, and never put in an address. */

const PLACE = "cordwood.key";
/** What comes along when a key is copied from a chat or a document: quotes, blanks, and characters that nobody sees. */
const AROUND = /^[\s"'`“”‘’\u200b-\u200f\u2060]+|[\s"'`“”‘’\u200b-\u200f\u2060]+$/g;

let inForce = new AbortController();

export function key() {
  return sessionStorage.getItem(PLACE) ?? "";
}

/** Aborted when the key is forgotten or replaced: no request with it is answered to the page of another key. */
export function untilForgotten() {
  return inForce.signal;
}

export function keep(pasted) {
  forget();
  sessionStorage.setItem(PLACE, pasted.replace(AROUND, ""));
}

/** Whether it can be sent at all: a header holds no other characters. */
export function isSendable() {
  return /^[\x21-\x7e]+$/.test(key());
}

export function forget() {
  sessionStorage.removeItem(PLACE);
  inForce.abort();
  inForce = new AbortController();
}
