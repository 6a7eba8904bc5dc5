/** The key: pasted once, kept for as long as this tab lives, and never put in an address. */

const PLACE = "cordwood.key";

export function key() {
  return sessionStorage.getItem(PLACE) ?? "";
}

export function keep(pasted) {
  sessionStorage.setItem(PLACE, pasted.trim());
}

export function forget() {
  sessionStorage.removeItem(PLACE);
}
