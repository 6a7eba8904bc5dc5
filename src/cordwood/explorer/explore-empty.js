/** The messages that Explore shows instead of rows, each with a way to find some. */

import * as address from "./address.js";
import { h } from "./dom.js";

export function notForThisKey(endpoint) {
  const leave = () => address.change({ endpoint: "", sub: "", cols: "", by: "", q: "", pat: "" });
  const other = h("button", { type: "button", class: "button", onclick: leave }, "Look at another endpoint");
  return h("div", { class: "empty" }, h("p", {}, `${endpoint} is not for this key.`), other);
}

export function nothing(whereabouts) {
  const look = () => address.change({ range: "7d" });
  const wider = h("button", { type: "button", class: "button", onclick: look }, "Look at 7 days");
  const words = h("p", {}, "Nothing in this time that matches.");
  return h("div", { class: "empty" }, words, wider, whereabouts);
}
