/** The entry point: shows the page that the address names, or asks for a key if there is none. */

import * as address from "./address.js";
import { KEY_REFUSED, Problem } from "./api.js";
import { h, put } from "./dom.js";
import { ExplorePage } from "./explore.js";
import { forgetAll } from "./kept.js";
import { forget, key } from "./key.js";
import { keyMenu, keyPage } from "./key-gate.js";

/** Pages other than Explore are loaded when they are first shown, or after Explore is complete. */
const LOADERS = {
  endpoints: async () => (await import("./endpoints.js")).EndpointsPage,
  alerts: async () => (await import("./alerts.js")).AlertsPage,
  streams: async () => (await import("./streams.js")).StreamsPage,
  service: async () => (await import("./service.js")).ServicePage,
  // These have no tab: links lead to them.
  follow: async () => (await import("./follow.js")).FollowPage,
  event: async () => (await import("./event-page.js")).EventPage,
  timeline: async () => (await import("./timeline.js")).TimelinePage,
};
const classes = new Map([["explore", ExplorePage]]);
const content = document.getElementById("content");
const account = document.getElementById("account");
const tabs = document.querySelectorAll(".tabs a");
const made = new Map();
let shown = "";

function show({ page, values }) {
  if (!key()) return gate();
  const name = page in LOADERS ? page : "explore";
  if (!classes.has(name)) return loadAndShow(name);
  enter(name);
  keepPlace(name);
  return made
    .get(name)
    .update(values)
    .catch((problem) => fail(problem));
}

/** Show a page once it is loaded, or why it cannot be, unless the reader has left for another one meanwhile. */
async function loadAndShow(name) {
  const problem = await load(name).catch((one) => one);
  if (address.current().page !== name) return undefined;
  return problem ? fail(problem) : show(address.current());
}

async function load(name) {
  try {
    classes.set(name, await LOADERS[name]());
  } catch {
    const hint = "The service is stopped, or was upgraded since: reload the page in the browser.";
    throw new Problem(0, { message: "This part of the explorer could not be loaded.", hint });
  }
}

/** Load the other pages in advance, so that they open at once, even after the service has stopped. */
async function loadOthers() {
  for (const name of Object.keys(LOADERS)) if (!classes.has(name)) await load(name).catch(() => {});
}

function enter(name) {
  if (shown === name) return;
  made.get(shown)?.leave();
  shown = name;
  if (!made.has(name)) made.set(name, new (classes.get(name))());
  made.get(name).enter?.();
  put(content, made.get(name).element);
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · cordwood`;
  for (const tab of tabs) mark(tab, tab.dataset.page === name);
}

/** Let the tab of a page lead back to its last address. */
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
  made.get(shown)?.leave();
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

/** Ask for a key after a refused call, whichever it was; the page that asks for a key reports refusals itself. */
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

async function begin() {
  keyMenu(account, gate);
  await show(address.current());
  setTimeout(loadOthers);
}

/** Focus the query when the reader presses the slash key. */
function shortcut(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  const area = document.querySelector(".editor-text");
  if (event.key !== "/" || isTyping || !area) return;
  event.preventDefault();
  area.focus();
}

/** Focus the content without following the skip link, because the address holds the page's state. */
function skip(event) {
  event.preventDefault();
  content.focus();
}

address.onChange(show);
document.querySelector(".skip").addEventListener("click", skip);
addEventListener("keydown", shortcut);
addEventListener(KEY_REFUSED, lockOut);
begin();
