/** The page that asks for a key, and the menu that shows and forgets it. */

import { Problem, readIfAllowed } from "./api.js";
import { askAgain } from "./described.js";
import { h, put } from "./dom.js";
import { forgetAll } from "./kept.js";
import { forget, isSendable, keep, key } from "./key.js";
import { popover } from "./overlays.js";

const TAIL = 4;

/** Return the page that is shown instead of all others while there is no key. */
export function keyPage(onKept, problem = "") {
  const input = h("input", {
    type: "password",
    id: "key",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    placeholder: "cw_…",
  });
  const told = h("p", { class: "problem", role: "alert" }, problem);
  const submit = async (event) => {
    event.preventDefault();
    keep(input.value);
    const refused = await refusal();
    if (!refused) return onKept();
    forget();
    told.textContent = refused;
    return input.select();
  };
  queueMicrotask(() => input.focus());
  return h(
    "div",
    { class: "page gate" },
    h(
      "form",
      { class: "card stack", onsubmit: submit },
      h("h1", {}, "Paste a key"),
      h(
        "p",
        { class: "about" },
        "A key that may query is enough for Explore and Endpoints; a private one shows the rest too.",
      ),
      h("label", { class: "field", for: "key" }, "Key"),
      input,
      told,
      h("button", { type: "submit", class: "button primary" }, "Open"),
      h(
        "p",
        { class: "faint" },
        "It is kept for as long as this tab is open, and sent to this service alone. A demo prints its key at the start; cordwood keys create makes one.",
      ),
    ),
  );
}

/** Show the button that tells which key is used, with a panel to forget it. */
export function keyMenu(place, onForgotten) {
  if (!key()) return put(place);
  const panel = h("div", { class: "picker stack" });
  const button = h(
    "button",
    { type: "button", class: "button quiet" },
    "Key",
    h("span", { class: "faint" }, ` …${key().slice(-TAIL)}`),
  );
  const leave = () => {
    forgetAll();
    forget();
    askAgain();
    onForgotten();
  };
  put(
    panel,
    h("p", {}, "This tab keeps the key until it is closed. Views that were saved with the key are forgotten with it."),
    h("button", { type: "button", class: "button", onclick: leave }, "Forget the key"),
  );
  return put(place, popover(button, panel, { label: "Key" }).element);
}

/** Return why the pasted key cannot be used, or an empty text if it can. */
async function refusal() {
  if (!isSendable()) return "This is not a key: it has characters that keys do not have.";
  try {
    await readIfAllowed("/api/endpoints");
    askAgain();
    return "";
  } catch (problem) {
    return problem instanceof Problem && problem.status === 401
      ? "This key is not in force. It may be mistyped, revoked or expired."
      : problem.message;
  }
}
