/** What a page says to a key that may not see it. */

import { h } from "./dom.js";

export function privateOnly(what) {
  return h(
    "div",
    { class: "empty" },
    h("p", {}, `${what} for a private key.`),
    h("p", { class: "faint" }, "The key that was pasted is none. One that may query is enough for Explore and Endpoints."),
  );
}
