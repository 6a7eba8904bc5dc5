/** The projects that have events, with how many: a list to choose from, beside the field that takes any other. */

import { h, put } from "./dom.js";
import { ago, count } from "./format.js";
import { popover } from "./popover.js";

const MOST_LISTED = 50;

/** `counts()` fetches {projects, without, isCut}; `chosen()` is the project that is shown; `onPick(name)` takes another. */
export function projectChoice({ counts, chosen, onPick }) {
  const title = "Those that have events in this time";
  const button = h("button", { type: "button", class: "button icon", title, "aria-label": "Known values" }, "▾");
  const panel = h("div", { class: "picker values" });
  const menu = popover(button, panel, { label: "Values that have events", onOpen: () => open() });
  const list = h("ul", { class: "plain-list" });
  const about = h("p", { class: "faint", role: "status" });
  const search = h("input", { type: "search", placeholder: "Find", "aria-label": "Find a value", spellcheck: "false" });
  let found = { projects: [] };
  const pick = (name) => {
    menu.close();
    button.focus();
    onPick(name);
  };
  const item = ({ name, events, newest }) =>
    h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: "choice value-choice",
          title: `${name}: the newest ${ago(newest)}`,
          "aria-pressed": String(name === chosen()),
          onclick: () => pick(name),
        },
        h("span", { class: "value-name" }, name || "(empty)"),
        h("span", { class: "faint" }, count(events)),
      ),
    );
  const draw = () => {
    const wanted = search.value.trim().toLowerCase();
    const fitting = found.projects.filter(({ name }) => name.toLowerCase().includes(wanted));
    put(list, fitting.slice(0, MOST_LISTED).map(item));
    put(about, wordsOf(found, fitting.length, wanted));
  };
  search.addEventListener("input", draw);
  const open = async () => {
    search.value = "";
    put(panel, search, list, about);
    put(list);
    put(about, "Counting…");
    found = { projects: [] };
    try {
      found = await counts();
      draw();
    } catch (problem) {
      put(about, problem.message);
    }
  };
  return menu.element;
}

function wordsOf({ projects, without, isCut }, fitting, wanted) {
  if (!projects.length) return without ? `${count(without)} events, none with a project.` : "No events in this time.";
  if (!fitting) return `None of them has “${wanted}” in its name.`;
  const most = isCut ? "Only those with the most events are known here." : "";
  const cut = fitting > MOST_LISTED ? `The ${MOST_LISTED} with the most events of ${count(fitting)}.` : "";
  return [cut, most].filter(Boolean).join(" ");
}
