/** The page's state in the part of the address that is never sent: what is shown, and how. */

const listeners = new Set();

/** The page that is shown, and its state as texts by name. */
export function current() {
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: page || "explore", values: Object.fromEntries(new URLSearchParams(query)) };
}

/** Change some of the state; a new entry of the browser's history unless it only refines the last. */
export function change(values, { refines = false } = {}) {
  const before = current();
  go(before.page, { ...before.values, ...values }, { refines });
}

/** Keep some of the state without showing anything anew: what is shown has it already. */
export function note(values) {
  const { page, values: before } = current();
  history.replaceState(null, "", hashOf(page, { ...before, ...values }));
}

export function go(page, values, { refines = false } = {}) {
  const hash = hashOf(page, values);
  if (hash === location.hash) return tell();
  history[refines ? "replaceState" : "pushState"](null, "", hash);
  return tell();
}

export function hashOf(page, values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(kept).toString();
  return `#${page}${query && `?${query}`}`;
}

/** Call on every change, by us or by the browser's own buttons. */
export function onChange(listener) {
  listeners.add(listener);
}

function tell() {
  for (const listener of listeners) listener(current());
}

addEventListener("popstate", tell);
