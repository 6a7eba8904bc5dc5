/** SQL as text: writing names and values in it, and wrapping a query in another. */

const LAST_LIMIT = /\blimit\s+\d+(\s+offset\s+\d+)?\s*$/i;

/** Return a query as a sub-query: without its final semicolon and its last limit. */
export function inner(text) {
  const plain = text.trim().replace(/;\s*$/, "");
  return plain.replace(LAST_LIMIT, "").trim();
}

export function name(text) {
  return /^[a-z_]\w*$/i.test(text) ? text : `\`${text.replace(/[\\`]/g, "\\$&")}\``;
}

export function value(one) {
  if (one === null) return "null";
  if (typeof one !== "string") return String(one);
  return `'${one.replace(/[\\']/g, "\\$&").replace(/\n/g, "\\n")}'`;
}

/** Filter a query by a value: rows where the path has the value, or has an array with it. */
export function filtered(text, path, one, { isNot = false, isWithin = false } = {}) {
  const compared = isWithin ? membership(operand(path), one, isNot) : comparison(operand(path), one, isNot);
  return `select t.* from (\n${inner(text)}\n) as t${joins(path)}\nwhere ${compared}`;
}

/** Filter a query, naming its columns, because ClickHouse's dialect does not accept `*`. */
export function filteredColumns(text, columns, path, one, { isNot = false } = {}) {
  const names = columns.map((each) => `t.${name(each)}`).join(", ");
  const left = path.slice(1).reduce((map, key) => `${map}[${value(key)}]`, `t.${name(path[0])}`);
  return `select ${names} from (\n${inner(text)}\n) as t\nwhere ${comparison(left, one, isNot)}`;
}

/** Filter a query by a regular expression on messages. */
export function matched(text, columns, regex, { isNot = false, isClickHouse = false } = {}) {
  const names = isClickHouse ? columns.map((each) => `t.${name(each)}`).join(", ") : "t.*";
  const call = isClickHouse ? "match" : "regexp_contains";
  const found = `coalesce(${call}(t.event_message, ${value(regex)}), false)`;
  return `select ${names} from (\n${inner(text)}\n) as t\nwhere ${isNot ? "not " : ""}${found}`;
}

/** Return the joins that unnest the objects on a path of `t`; `operand` names the value at its end. */
export function joins(path) {
  return path
    .slice(0, -1)
    .map((_, depth) => join(path, depth))
    .join("");
}

function join(path, depth) {
  const record = depth === 0 ? `t.${name(path[0])}` : `r${depth - 1}.${name(path[depth])}`;
  return `\ncross join unnest(${record}) as r${depth}`;
}

export function operand(path) {
  return `${path.length > 1 ? `r${path.length - 2}` : "t"}.${name(path.at(-1))}`;
}

function membership(array, one, isNot) {
  return `${value(one)} ${isNot ? "not " : ""}in unnest(${array})`;
}

function comparison(left, one, isNot) {
  if (one === null) return `${left} is ${isNot ? "not " : ""}null`;
  return `${left} ${isNot ? "!=" : "="} ${value(one)}`;
}
