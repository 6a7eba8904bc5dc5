/** Endpoint definitions made from a query: the endpoint's sub-queries, followed by the reader's query. */

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
