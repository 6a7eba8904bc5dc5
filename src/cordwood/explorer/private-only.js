/** The message of a page that needs a private key. */

import { h } from "./dom.js";

export function privateOnly(what) {
  return h(
    "div",
    { class: "empty" },
    h("p", {}, `${what} for a private key.`),
    h("p", { class: "faint" }, "The key that was pasted is none. One that may query is enough for Explore and Endpoints."),
  );
}
