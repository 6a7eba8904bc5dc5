/** The Save menu of Explore: rows in any format, the call for a shell or Python, a link, or an endpoint. */

import { h, put } from "./dom.js";
import { popover } from "./popover.js";

/** Return the menu; `copies()` returns the forms of the query that can be copied, as [label, action]. */
export function saveMenu({ formats, download, copies, saveFile, saveEndpoint }) {
  const button = h("button", { type: "button", class: "button" }, "Save");
  const panel = h("div", { class: "picker" });
  const menu = popover(button, panel, { label: "Save this query or its rows", onOpen: () => fill() });
  const act = (work) => () => {
    menu.close();
    work();
  };
  const item = (words, work) => h("button", { type: "button", class: "choice", onclick: act(work) }, words);
  const fill = () => {
    const name = h("input", {
      type: "text",
      value: "my.query",
      pattern: "[\\w.\\-]+",
      required: true,
      "aria-label": "Name of the endpoint",
      spellcheck: "false",
    });
    const submit = (event) => {
      event.preventDefault();
      const save = event.submitter?.value === "file" ? saveFile : saveEndpoint;
      act(() => save(name.value))();
    };
    put(
      panel,
      h("p", { class: "menu-head" }, "Download the rows"),
      h(
        "div",
        { class: "choices" },
        formats().map((form) => item(form, () => download(form))),
      ),
      h("p", { class: "menu-head" }, "Take the query along"),
      copies().map(([words, work]) => item(words, work)),
      h("p", { class: "menu-head" }, "Save as endpoint"),
      h(
        "form",
        { class: "joined", onsubmit: submit },
        name,
        h("button", { type: "submit", class: "button primary", value: "service" }, "Save here"),
        h("button", { type: "submit", class: "button", value: "file" }, "Save .sql"),
      ),
    );
  };
  return menu.element;
}
