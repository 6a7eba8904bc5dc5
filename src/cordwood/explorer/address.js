/** The page's state, kept in the fragment of the address (after #), which browsers do not send to the server. */

const listeners = new Set();

/** Return the page that is shown, and the values of its state as texts by name. */
export function current() {
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: page || "explore", values: Object.fromEntries(new URLSearchParams(query)) };
}

/** Change values of the state. Unless the change `refines` the last one, the browser's history has a new entry. */
export function change(values, { refines = false } = {}) {
  const before = current();
  go(before.page, { ...before.values, ...values }, { refines });
}

/** Write values into the address without notifying the listeners, because the page shows them already. */
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

/** Add a listener for every change of the state, by the page or by the browser's Back and Forward buttons. */
export function onChange(listener) {
  listeners.add(listener);
}

function tell() {
  for (const listener of listeners) listener(current());
}

addEventListener("popstate", tell);
