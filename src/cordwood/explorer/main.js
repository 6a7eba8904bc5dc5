/** Where the page begins: which page the address names, and whether there is a key to show it with. */

import * as address from "./address.js";
import { AlertsPage } from "./alerts.js";
import { KEY_REFUSED } from "./api.js";
import { h, put } from "./dom.js";
import { EndpointsPage } from "./endpoints.js";
import { EventPage } from "./event-page.js";
import { ExplorePage } from "./explore.js";
import { FollowPage } from "./follow.js";
import { forgetAll } from "./kept.js";
import { forget, key } from "./key.js";
import { keyMenu, keyPage } from "./key-gate.js";
import { ServicePage } from "./service.js";
import { StreamsPage } from "./streams.js";
import { TimelinePage } from "./timeline.js";

const PAGES = {
  explore: ExplorePage,
  endpoints: EndpointsPage,
  alerts: AlertsPage,
  streams: StreamsPage,
  service: ServicePage,
  // Reached by links alone.
  follow: FollowPage,
  event: EventPage,
  timeline: TimelinePage,
};
const content = document.getElementById("content");
const account = document.getElementById("account");
const tabs = document.querySelectorAll(".tabs a");
const made = new Map();
let shown = "";

function show({ page, values }) {
  if (!key()) return gate();
  const name = page in PAGES ? page : "explore";
  enter(name);
  keepPlace(name);
  return made
    .get(name)
    .update(values)
    .catch((problem) => fail(problem));
}

function enter(name) {
  if (shown === name) return;
  made.get(shown)?.leave();
  shown = name;
  if (!made.has(name)) made.set(name, new PAGES[name]());
  made.get(name).enter?.();
  put(content, made.get(name).element);
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · cordwood`;
  for (const tab of tabs) mark(tab, tab.dataset.page === name);
}

/** A tab leads back to where its page was left. */
function keepPlace(name) {
  for (const tab of tabs) if (tab.dataset.page === name && location.hash) tab.setAttribute("href", location.hash);
}

function mark(tab, isCurrent) {
  if (isCurrent) tab.setAttribute("aria-current", "page");
  else tab.removeAttribute("aria-current");
}

function gate(problem = "") {
  for (const page of made.values()) page.leave();
  made.clear();
  shown = "";
  document.title = "cordwood";
  keyMenu(account, gate);
  put(content, keyPage(begin, problem));
}

function fail(problem) {
  if (problem.name === "AbortError" || !key()) return;
  put(
    content,
    h(
      "div",
      { class: "page" },
      h(
        "div",
        { class: "card empty" },
        h("p", {}, h("strong", {}, problem.message)),
        h("p", { class: "faint" }, problem.hint ?? ""),
        h("button", { type: "button", class: "button", onclick: () => restart() }, "Try again"),
      ),
    ),
  );
  shown = "";
}

/** Whichever call was the first to be told; the page that asks for a key tells of its own refusals. */
function lockOut() {
  if (!shown) return;
  forgetAll();
  forget();
  gate("The key is no longer in force.");
}

function restart() {
  made.clear();
  show(address.current());
}

function begin() {
  keyMenu(account, gate);
  show(address.current());
}

/** A slash goes to the query, as in most places where one searches. */
function shortcut(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  const area = document.querySelector(".editor-text");
  if (event.key !== "/" || isTyping || !area) return;
  event.preventDefault();
  area.focus();
}

/** Not by the address: what stands there is the page's state. */
function skip(event) {
  event.preventDefault();
  content.focus();
}

address.onChange(show);
document.querySelector(".skip").addEventListener("click", skip);
addEventListener("keydown", shortcut);
addEventListener(KEY_REFUSED, lockOut);
begin();
