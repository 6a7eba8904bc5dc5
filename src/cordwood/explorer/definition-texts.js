/** Definitions as texts: what a new one contains, also one made from a query, where settings end, and what can be added. */

const COMMENTED = /^(?:\s|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$))*\/\*/;
const NAME = /^((?:[ \t]*\/\*)?[ \t]*name[ \t]*=[ \t]*)("(?:\\.|[^"\\\n])*"|'[^'\n]*')/m;
const ID = /^[ \t]*id[ \t]*=[^\n]*(?:\n|$)/m;
const ALERT = /^[ \t]*\[alert\]/m;
const INLINE_TRANSFORMS = /^[ \t]*transform[ \t]*=[ \t]*\[/m;
const DROP = 'drop = "m.level:debug"';
/** The names in the text of settings that have other names in the HTTP API. */
const SETTINGS = {
  max_limit: "max_rows",
  cache_duration_seconds: "cache",
  proactive_requerying_seconds: "warm",
  timeout_seconds: "timeout",
  sandboxable: "sandbox",
  enable_auth: "auth",
  retention_days: "retention in days",
};
const NOT_SET = ["id", "token", "revision", "origin", "events", "oldest", "newest"];
const LONGEST_SHOWN = 30;

/** `found(text)` matches an alert in the text; `added(text, definition)` returns a new one: {at, text, chosen}. */
export const ENDPOINT = {
  noun: "endpoint",
  page: "endpoints",
  path: "/api/endpoints",
  starting: (stream) =>
    `/*\nname = "my.endpoint"\ndescription = "The newest events."\nmax_rows = 100\n*/\nselect t.timestamp, t.event_message\n` +
    `from \`${stream}\` as t\norder by t.timestamp desc\n`,
  addition: "alert",
  found: (text) => ALERT.exec(text.slice(0, endOfSettings(text))),
  added: withAlert,
};

export const STREAM = {
  noun: "stream",
  page: "streams",
  path: "/api/sources",
  starting: () => '[[stream]]\nname = "my.app"\nretention = "30d"\n',
  addition: "transform",
  found: () => null,
  added: withTransform,
};

/** Return the end of the comment with an endpoint's settings, or of the text while the comment is not closed. */
export function endOfSettings(text) {
  const opening = COMMENTED.exec(text);
  if (!opening) return 0;
  const end = text.indexOf("*/", opening[0].length);
  return end < 0 ? text.length : end + 2;
}

/** Return the text of a copy, which has another name and no id. */
export function copyOf(text, name, kind) {
  const end = kind === ENDPOINT ? endOfSettings(text) : text.length;
  const settings = text.slice(0, end).replace(ID, "");
  return settings.replace(NAME, (_, before) => `${before}${quoted(`${name}.copy`)}`) + text.slice(end);
}

/** Return the position of the name without its quotes: [from, to]. */
export function placeOfName(text) {
  const found = NAME.exec(text);
  return found ? [found.index + found[1].length + 1, found.index + found[0].length - 1] : [0, 0];
}

/** Return an alert table that is valid as it is: with values for the parameters that the endpoint requires. */
function withAlert(text, definition) {
  const needed = (definition?.parameters ?? []).filter((one) => one.required && one.default === null);
  const values = needed.map((one) => `${quoted(one.name)} = ${quoted(valueFor(one))}`).join(", ");
  const end = endOfSettings(text);
  const lines = ["[alert]", 'every = "1m"', 'condition = "rows > 10"', 'text = "{value} rows"'];
  if (values) lines.push(`parameters = {${values}}`);
  const at = Math.max(0, end - 2);
  const isNewLine = /\n[ \t]*$/.test(text.slice(0, at));
  return { at, text: `${isNewLine ? "" : "\n"}\n${lines.join("\n")}\n`, chosen: "rows > 10" };
}

function valueFor({ type, one_of: choices, example }) {
  return /^(timestamp|datetime|date)$/i.test(type) ? "now-10m" : (choices[0] ?? (example || "default"));
}

/** Return a transform to add: a table of its own, or an element if the text has the transforms as an inline list. */
function withTransform(text) {
  const inline = INLINE_TRANSFORMS.exec(text);
  if (inline) return { at: inline.index + inline[0].length, text: `{${DROP}}, `, chosen: "m.level:debug" };
  const gap = /\n$/.test(text) ? "" : "\n";
  return { at: text.length, text: `${gap}\n[[stream.transform]]\n${DROP}\n`, chosen: "m.level:debug" };
}

/** Describe the differences between two definitions in words. */
export function changesOf(before, after) {
  const isSame = (name) => JSON.stringify(before[name]) === JSON.stringify(after[name]);
  const changed = Object.keys(after).filter((name) => !NOT_SET.includes(name) && !isSame(name));
  return changed.map((name) => {
    const values = [before[name], after[name]].map((one) => (typeof one === "object" ? "" : String(one)));
    const isShort = values.every((one) => one && one.length <= LONGEST_SHOWN);
    return `${SETTINGS[name] ?? name}${isShort ? ` ${values.join(" → ")}` : ""}`;
  });
}

/** Return the file of a new endpoint. `definition` is the queried endpoint; `sql` is the query over its sub-queries. */
export function endpointFile(definition, sql, name) {
  const settings = [`name = ${quoted(name)}`, `description = ${quoted(madeFrom(definition))}`];
  const isClickHouse = definition.language === "ch_sql";
  if (isClickHouse) settings.push('dialect = "clickhouse"');
  settings.push(
    `max_rows = ${definition.max_limit}`,
    `sandbox = ${definition.sandboxable}`,
    `redact_pii = ${definition.redact_pii}`,
  );
  const parameters = definition.parameters.map(parameterTable);
  return `/*\n${[settings.join("\n"), ...parameters].join("\n\n")}\n*/\n${joined(definition.query, sql, isClickHouse)}\n`;
}

/** Return the new endpoint as fields of the HTTP API. */
export function endpointFields(definition, sql, name) {
  const { language, max_limit, sandboxable, redact_pii, redact_mode, zone, parameters } = definition;
  const kept = { language, max_limit, sandboxable, redact_pii, redact_mode, zone, parameters };
  const query = joined(definition.query, sql, language === "ch_sql");
  return { ...kept, name, description: madeFrom(definition), query };
}

function madeFrom(definition) {
  return `Made from a query of ${definition.name}.`;
}

/** Append a query to an endpoint's WITH clause. The query's own WITH is merged, but not in ClickHouse's dialect. */
export function joined(saved, sql, isClickHouse = false) {
  const end = endOfWith(saved);
  if (end === null) return sql;
  const own = sql.trim().replace(/;\s*$/, "");
  const after = /^with\s/i.test(own) && !isClickHouse ? `,\n${own.replace(/^with\s+/i, "")}` : `\n\n${own}`;
  return saved.slice(0, end).trim() + after;
}

/** Return the end of the last sub-query of a leading WITH clause, or null if there is none. */
function endOfWith(sql) {
  const pieces = tokens(sql);
  if (pieces[0]?.text.toLowerCase() !== "with") return null;
  let depth = 0;
  for (let place = 0; place < pieces.length; place += 1) {
    if (pieces[place].text === "(") depth += 1;
    if (pieces[place].text !== ")") continue;
    depth -= 1;
    const next = pieces[place + 1]?.text.toLowerCase();
    if (depth === 0 && next !== "," && next !== "as") return pieces[place].at + 1;
  }
  return null;
}

/** Split SQL into words and symbols with their positions. Comments are omitted; a quoted text is one token. */
function tokens(sql) {
  const cutter = /--[^\n]*|#[^\n]*|\/\*[\s\S]*?\*\/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|[\w@.]+|\S/g;
  return [...sql.matchAll(cutter)]
    .map((match) => ({ text: match[0], at: match.index }))
    .filter(({ text }) => !/^(--|#|\/\*)/.test(text));
}

function parameterTable(one) {
  const lines = [`[parameters.${/^[\w-]+$/.test(one.name) ? one.name : quoted(one.name)}]`];
  if (one.type && one.type !== "STRING") lines.push(`type = ${quoted(one.type)}`);
  if (one.kind && one.kind !== "plain") lines.push(`kind = ${quoted(one.kind)}`);
  if (one.required) lines.push("required = true");
  if (one.default !== null && one.default !== undefined) lines.push(`default = ${quoted(one.default)}`);
  if (one.one_of.length) lines.push(`one_of = [${one.one_of.map(quoted).join(", ")}]`);
  if (one.description) lines.push(`description = ${quoted(one.description)}`);
  return lines.join("\n");
}

export function quoted(text) {
  // The settings stand in a comment, which the text must not end.
  return JSON.stringify(String(text)).replaceAll("*/", "*\\u002F");
}
