/** The History menu of Explore: earlier queries, and views that were saved under a name. */

import { h, put } from "./dom.js";
import { ago } from "./format.js";
import * as kept from "./kept.js";
import { popover, tell } from "./overlays.js";

const LONGEST_TEXT = 160;

/** `placeNow()` returns the address of the shown view, under which it is saved. */
export function historyMenu({ placeNow }) {
  const button = h("button", { type: "button", class: "button" }, "History");
  const panel = h("div", { class: "picker history" });
  const menu = popover(button, panel, { label: "Queries before and saved views", onOpen: () => fill() });
  const link = (place, ...words) => h("a", { class: "choice", href: place, onclick: () => menu.close() }, words);
  /** Redraw the menu and keep the focus in it, because Escape closes it only from there. */
  const again = () => {
    fill();
    panel.querySelector("input").focus();
  };
  const remove = (name) => {
    kept.removeView(name);
    again();
  };
  const view = ({ name, place }) =>
    h(
      "li",
      { class: "joined-apart" },
      link(place, name),
      h(
        "button",
        { type: "button", class: "button icon", "aria-label": `Remove ${name}`, onclick: () => remove(name) },
        "×",
      ),
    );
  const before = ({ place, text, about, at }) => {
    const query = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
    const words = h("span", { class: "faint" }, `${about}, ${ago(at * 1000)}`);
    return h("li", {}, link(place, h("code", {}, query || "everything"), words));
  };
  const save = (event) => {
    event.preventDefault();
    const name = event.target.elements[0].value.trim();
    const isSaved = name && kept.addView(name, placeNow());
    tell(isSaved ? `The view ${name} is saved in this browser.` : "This view cannot be saved here.");
    again();
  };
  const fill = () => {
    const [views, history] = [kept.views(), kept.history()];
    const name = h("input", { type: "text", required: true, maxlength: 60, "aria-label": "Name of the view" });
    name.placeholder = "Name of the view";
    const clear = () => {
      kept.clearHistory();
      again();
    };
    put(
      panel,
      h("p", { class: "menu-head" }, "Saved views"),
      views.length ? h("ul", { class: "plain-list" }, views.map(view)) : null,
      h("form", { class: "joined", onsubmit: save }, name, h("button", { type: "submit", class: "button" }, "Save")),
      h("p", { class: "menu-head" }, "Queries of this tab"),
      history.length
        ? h("ol", { class: "plain-list" }, history.map(before))
        : h("p", { class: "faint" }, "None was run yet."),
      history.length ? h("button", { type: "button", class: "button", onclick: clear }, "Clear") : null,
    );
  };
  return menu.element;
}
