/** Taking a view elsewhere: its rows as a file, its call for a shell, its query as an endpoint. */

import * as described from "./described.js";
import { endpointFile } from "./endpoint-file.js";
import { copy, curlOf, downloadAs, downloadText } from "./save.js";
import { tell } from "./telling.js";

export async function takeRows(view, request, form) {
  await downloadAs(view.endpoint, request, form).catch((problem) => tell(problem.message));
}

export function takeCall(view, request) {
  return takeText(curlOf(view.endpoint, request), "The call");
}

/** To the clipboard; `what` it was is told. */
export async function takeText(text, what) {
  await copy(text).then(
    () => tell(`${what} is in the clipboard.`),
    () => tell("The clipboard cannot be written here."),
  );
}

/** `sqlOf` gives the query in SQL. */
export async function takeFile(view, sqlOf, name) {
  try {
    const definition = await described.definition(view.endpoint);
    if (!definition) return tell("Only a private key may read the endpoint's own query, which the file holds.");
    return downloadText(endpointFile(definition, await sqlOf(), name), `${name}.sql`);
  } catch (problem) {
    return tell(problem.message);
  }
}
