/** The fields of an operation of the API description, and the request made from their values. */

import { addressOf } from "./api.js";

const VERBS = ["get", "post", "put", "patch", "delete"];
const JSON_TYPE = "application/json";

/** Return the operations of the document by id, each with the fields of its form. */
export function operationsOf(document) {
  const found = new Map();
  for (const [path, verbs] of Object.entries(document.paths)) {
    for (const verb of VERBS.filter((one) => one in verbs)) {
      found.set(verbs[verb].operationId, operationOf(document, path, verb, verbs[verb]));
    }
  }
  return found;
}

/** Return the parts of a request, from which both the code and the call are made. Empty values are omitted. */
export function requestOf(operation, values) {
  const given = operation.fields.filter((field) => (values.get(field.id) ?? "") !== "");
  const placed = (place) => given.filter((one) => one.place === place).map((one) => [one.name, values.get(one.id)]);
  const body = operation.bodyTypes.length ? (values.get("body") ?? "") : "";
  const type = operation.bodyTypes.length ? values.get("type") || operation.bodyTypes[0] : "";
  const headers = placed("header");
  if (body) headers.push(["Content-Type", type]);
  const format = values.get("query:format") ?? "";
  return {
    method: operation.method,
    address: addressOf("./", {}) + pathOf(operation.path.slice(1), placed("path")),
    query: placed("query"),
    headers,
    body: body || null,
    isKeyed: operation.isKeyed,
    isJson: operation.isJson && ["", "json"].includes(format),
  };
}

function operationOf(document, path, verb, operation) {
  const fields = (operation.parameters ?? []).map((one) => fieldOf(document, resolved(document, one)));
  const content = operation.requestBody?.content ?? {};
  const success = Object.entries(operation.responses).find(([status]) => status.startsWith("2"))?.[1] ?? {};
  const answers = Object.keys(resolved(document, success).content ?? {});
  return {
    path,
    method: verb.toUpperCase(),
    fields: withExamples(fields),
    bodyTypes: Object.keys(content),
    body: bodyOf(document, content),
    isKeyed: !(operation.security && operation.security.every((one) => Object.keys(one).length === 0)),
    isJson: answers[0] === JSON_TYPE,
    /** Whether the operation deletes, replaces or revokes something. */
    isDestructive: ["put", "patch", "delete"].includes(verb) || /\/(restore|rotate)$/.test(path),
  };
}

function fieldOf(document, one) {
  const schema = resolved(document, one.schema ?? {});
  return {
    id: `${one.in}:${one.name}`,
    name: one.name,
    place: one.in,
    isRequired: Boolean(one.required),
    choices: schema.enum ?? ([schema.type].flat().includes("boolean") ? ["true", "false"] : []),
    words: one.description ?? "",
    example: one.example ?? exampleOf(schema),
    hasExample: one.example !== undefined,
  };
}

/** Fill in the examples of required fields or, if no field is required, the examples of all query fields. */
function withExamples(fields) {
  const isNeeded = fields.some((one) => one.isRequired && one.place === "query");
  const isFilled = (one) => one.isRequired || (!isNeeded && one.place === "query" && one.hasExample);
  return fields.map((one) => ({ ...one, value: isFilled(one) ? String(one.example ?? "") : "" }));
}

function bodyOf(document, content) {
  const schema = resolved(document, content[JSON_TYPE]?.schema ?? {});
  const members = Object.entries(schema.properties ?? {}).filter(([name]) => (schema.required ?? []).includes(name));
  if (!(JSON_TYPE in content)) return "";
  const values = members.map(([name, member]) => [name, exampleOf(resolved(document, member)) ?? ""]);
  return JSON.stringify(Object.fromEntries(values), null, 2);
}

function exampleOf(schema) {
  return schema.examples?.[0] ?? schema.default ?? schema.enum?.[0];
}

/** Fill in the parameters of a path. A parameter without a value stays as it is in the description. */
function pathOf(path, values) {
  return values.reduce((text, [name, value]) => text.replace(`{${name}}`, () => encodeURIComponent(value)), path);
}

function resolved(document, node) {
  if (!node.$ref) return node;
  const steps = node.$ref.slice(2).split("/");
  return steps.reduce((place, step) => place[step], document);
}

/** Return the address of a request with its parameters. */
export function withQuery({ address, query }) {
  return query.length ? `${address}?${new URLSearchParams(query)}` : address;
}
