/** SQL as text: how names and values are written in it, and queries around a query. */

const LAST_LIMIT = /\blimit\s+\d+(\s+offset\s+\d+)?\s*$/i;

/** A query that may stand inside another: no end mark, and all its rows. */
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

/** The same rows, of which only those are left where the path has the value, or an array that holds it. */
export function filtered(text, path, one, { isNot = false, isWithin = false } = {}) {
  const compared = isWithin ? membership(operand(path), one, isNot) : comparison(operand(path), one, isNot);
  return `select t.* from (\n${inner(text)}\n) as t${joins(path)}\nwhere ${compared}`;
}

/** The same without stars, of which ClickHouse's dialect has none. */
export function filteredColumns(text, columns, path, one, { isNot = false } = {}) {
  const names = columns.map((each) => `t.${name(each)}`).join(", ");
  const left = path.slice(1).reduce((map, key) => `${map}[${value(key)}]`, `t.${name(path[0])}`);
  return `select ${names} from (\n${inner(text)}\n) as t\nwhere ${comparison(left, one, isNot)}`;
}

/** The same rows, of which only those are left whose message matches a regular expression. */
export function matched(text, columns, regex, { isNot = false, isClickHouse = false } = {}) {
  const names = isClickHouse ? columns.map((each) => `t.${name(each)}`).join(", ") : "t.*";
  const call = isClickHouse ? "match" : "regexp_contains";
  const found = `coalesce(${call}(t.event_message, ${value(regex)}), false)`;
  return `select ${names} from (\n${inner(text)}\n) as t\nwhere ${isNot ? "not " : ""}${found}`;
}

/** What joins the objects on a path of `t`, so that `operand` can name the value at its end. */
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
