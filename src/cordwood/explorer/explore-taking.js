/** Exports of a view: rows as a file, the query as a call for the clipboard, and the query as an endpoint. */

import { create } from "./api.js";
import * as described from "./described.js";
import { endpointFields, endpointFile } from "./endpoint-file.js";
import { saveMenu } from "./explore-menu.js";
import { linkOf } from "./explore-state.js";
import { copy, curlOf, downloadAs, downloadText, pythonOf } from "./save.js";
import { tell } from "./telling.js";

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
