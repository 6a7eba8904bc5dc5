/** The scripts of the page at /docs: code in three languages, forms that send requests, a search, and the key. */

import { askForFile, read } from "./api.js";
import { Call } from "./docs-call.js";
import { operationsOf } from "./docs-request.js";
import { h, put } from "./dom.js";
import { forget, isSendable, keep, key } from "./key.js";
import { keyMenu } from "./key-gate.js";
import { popover, tell } from "./overlays.js";
import { downloadText } from "./save.js";

const account = document.getElementById("account");
const list = document.querySelector(".operations");

/** Show a menu for the key of this browser tab, or a form to enter a key. */
function showKey() {
  if (key()) return keyMenu(account, showKey);
  const button = h("button", { type: "button", class: "button" }, "Use a key");
  const panel = h("div", { class: "picker" });
  const menu = popover(button, panel, { label: "Give a key to this tab" });
  const input = h("input", { type: "password", id: "key", autocomplete: "off", required: true, placeholder: "cw_…" });
  const told = h("p", { class: "problem", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    keep(input.value);
    told.textContent = await refusal();
    if (told.textContent) return forget();
    menu.close();
    return showKey();
  };
  put(
    panel,
    h(
      "form",
      { class: "stack key-form", onsubmit: submit },
      h("label", { class: "field", for: "key" }, "Key"),
      input,
      told,
      h("button", { type: "submit", class: "button primary" }, "Use it"),
      h("p", { class: "faint" }, "It is kept for as long as this tab is open, and sent to this service alone."),
    ),
  );
  return put(account, menu.element);
}

async function refusal() {
  if (!isSendable()) return "This is not a key: it has characters that keys do not have.";
  return read("/api/key").then(
    () => "",
    (problem) => problem.message,
  );
}

/** Add a search field that limits the list to operations with all typed words. */
function addSearch() {
  const input = h("input", { type: "search", "aria-label": "Find an operation", placeholder: "Find an operation" });
  const wasOpen = new Map([...list.querySelectorAll("details")].map((group) => [group, group.open]));
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [group, isOpen] of wasOpen) {
      const entries = [...group.querySelectorAll("li")];
      for (const entry of entries) entry.hidden = !words.every((word) => textOf(entry).includes(word));
      group.hidden = entries.every((entry) => entry.hidden);
      group.open = words.length ? !group.hidden : isOpen;
    }
  });
  list.prepend(input);
}

/** Return the searchable text of an entry: its words and the address of its operation. */
function textOf(entry) {
  const article = document.getElementById(entry.firstChild.hash.slice(1));
  return `${entry.textContent} ${article?.querySelector("h3")?.textContent}`.toLowerCase();
}

/** Download the client with the key, so that it has the endpoints that the key may query. */
function downloadsClient(link) {
  link.addEventListener("click", async (event) => {
    if (!key()) return;
    event.preventDefault();
    const file = await askForFile({ address: "/api/client.py" }, {}).catch((problem) => tell(problem.message));
    if (file) downloadText(await file.text(), "cordwood_client.py");
  });
}

async function begin() {
  showKey();
  addSearch();
  for (const link of document.querySelectorAll("a[download]")) downloadsClient(link);
  const operations = operationsOf(await read("/api/openapi.json"));
  for (const article of document.querySelectorAll(".operation")) {
    const operation = operations.get(article.id);
    if (operation) new Call(article.querySelector(".call"), operation);
  }
  document.body.dataset.ready = "yes";
}

begin().catch((problem) => tell(problem.message));
