/** Completion in definitions: settings, streams, their fields, and SQL keywords. */

import { read } from "./api.js";
import { ranked, suggestions } from "./completion.js";
import { endOfSettings } from "./definition-texts.js";

/** Names of settings by the beginning of their table's name; the first match applies. */
const NAMES = {
  alert:
    "every condition for before repeat group_by severity text send_to parameters name sql lql redact",
  parameters: "type kind required default one_of example description",
  "stream.transform": "drop sample remove hash copy rename message where",
  stream: "name description retention rate derive project late future [[stream.transform]]",
  "": "name description max_rows cache warm timeout sandbox redact_pii redact_mode zone dialect auth [parameters. [alert]",
};
const COLUMNS = ["id", "timestamp", "event_message"];

export class Words {
  constructor() {
    Object.assign(this, { streams: [], fields: new Map() });
  }

  /** Read the names of the streams, the one with the newest event first. */
  async learn(signal) {
    const sources = await read("/api/sources", {}, { signal });
    this.streams = sources.sort((one, other) => (other.newest ?? 0) - (one.newest ?? 0)).map((one) => one.name);
  }

  /** Suggest completions; `again` is called when more fields are known. */
  suggest(language, text, before, again) {
    const isSettings = language === "toml" || (endOfSettings(before) === before.length && !before.endsWith("*/"));
    if (isSettings) return inSettings(before);
    const columns = this.columnsOf(text, again);
    return suggestions("sql", before, { columns, subQueries: this.streams.map((name) => `\`${name}\``) });
  }

  /** Return the columns and fields of the streams that the text names. */
  columnsOf(text, again) {
    const named = this.streams.filter((name) => text.includes(name));
    const paths = named.flatMap((name) => this.fieldsOf(name, again));
    const fields = paths.map(([path, kind]) => ({ path: path.split(".").slice(1), kinds: kind.split("|") }));
    const plain = COLUMNS.map((name) => ({ name, fields: [] }));
    return fields.length ? [...plain, { name: "metadata", fields }] : plain;
  }

  /** Return the paths below metadata with their types: none until they have been read. */
  fieldsOf(stream, again) {
    if (!this.fields.has(stream)) {
      this.fields.set(stream, []);
      read(`/api/sources/${encodeURIComponent(stream)}/schema`, { variant: "dot" }).then(
        (paths) => {
          this.fields.set(stream, Object.entries(paths).filter(([path]) => path.startsWith("metadata.")));
          again();
        },
        () => this.fields.delete(stream),
      );
    }
    return this.fields.get(stream);
  }
}

/** Suggest the names of settings at the beginning of a line, and nothing for their values. */
function inSettings(before) {
  const line = before.slice(before.lastIndexOf("\n") + 1);
  const typed = /^\s*(?:\/\*\s*)?([\w[.]*)$/.exec(line)?.[1];
  if (typed === undefined) return { from: before.length, options: [] };
  const table = [...before.matchAll(/^[ \t]*\[+([\w.]+)/gm)].at(-1)?.[1] ?? "";
  const names = NAMES[Object.keys(NAMES).find((name) => table.startsWith(name))].split(" ");
  const options = names.map((name) => ({ text: name.startsWith("[") ? name : `${name} = `, hint: "" }));
  return ranked(before.length - typed.length, typed, options);
}
