/** The Save menu of Explore: rows as a file, the call for a shell or Python, a link, or the query as an endpoint. */

import { create } from "./api.js";
import { endpointFields, endpointFile } from "./definition-texts.js";
import * as described from "./described.js";
import { h, put } from "./dom.js";
import { linkOf } from "./explore-state.js";
import { popover, tell } from "./overlays.js";
import { copy, curlOf, downloadAs, downloadText, pythonOf } from "./save.js";

/** Return the Save menu of the Explore page. */
export function menuOf(page) {
  const asSql = () => page.asSql();
  return saveMenu({
    formats: () => page.view?.endpoint.formats ?? [],
    download: (form) => takeRows(page.view, page.requestNow(), form),
    copies: () => copies(page.view, page.requestNow(), asSql, page.bounds),
    saveFile: (name) => takeFile(page.view, asSql, name),
    saveEndpoint: (name) => saveEndpoint(page.view, asSql, name),
  });
}

async function takeRows(view, request, form) {
  await downloadAs(view.endpoint, request, form).catch((problem) => tell(problem.message));
}

/** Return the forms of a query to copy, as [label, action]; `sqlOf()` returns it in SQL, `bounds` is its time range. */
function copies(view, request, sqlOf, bounds) {
  const take = (text, what) => () => takeText(text, what);
  const sql = () =>
    sqlOf().then(
      (text) => takeText(text, "The SQL"),
      (problem) => tell(problem.message),
    );
  return [
    ["Copy as curl", take(curlOf(view.endpoint, request), "The call")],
    ["Copy as Python", take(pythonOf(view.endpoint, request), "The program")],
    ...(request.lql ? [["Copy as LQL", take(request.lql.replace("\n", " "), "The LQL")]] : []),
    ["Copy as SQL", sql],
    ["Copy a link to this view", take(linkOf(view, bounds), "The link")],
  ];
}

/** Copy a text to the clipboard, and tell the reader that `what` was copied. */
export async function takeText(text, what) {
  await copy(text).then(
    () => tell(`${what} is in the clipboard.`),
    () => tell("The clipboard cannot be written here."),
  );
}

/** Download the query as an endpoint file; `sqlOf()` returns it in SQL. */
function takeFile(view, sqlOf, name) {
  return withDefinition(view, async (definition) => {
    downloadText(endpointFile(definition, await sqlOf(), name), `${name}.sql`);
  });
}

/** Save the query as an endpoint of the service. */
function saveEndpoint(view, sqlOf, name) {
  return withDefinition(view, async (definition) => {
    const made = await create("/api/endpoints", endpointFields(definition, await sqlOf(), name));
    described.askAgain();
    tell(`The endpoint ${made.name} is served.`);
  });
}

async function withDefinition(view, work) {
  try {
    const definition = await described.definition(view.endpoint);
    if (!definition) return tell("Only a private key may read the endpoint's own query, which is part of it.");
    return await work(definition);
  } catch (problem) {
    return tell(`${problem.message} ${problem.hint ?? ""}`.trim());
  }
}

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
