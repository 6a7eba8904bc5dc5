/** The endpoints with their parameters and columns, from the service's OpenAPI document. */

import { read, readIfAllowed } from "./api.js";

const OWN_QUERY = ["lql", "sql"];
const SCOPE_MS = 60_000;
const ADDRESS = "/api/endpoints/query/";

let endpointsAsked = null;
let managesAsked = null;
const scopesAsked = new Map();

export function endpoints() {
  endpointsAsked ??= read("/api/openapi.json").then(endpointsOf);
  return endpointsAsked;
}

/**
 * Read the sub-queries of an endpoint, with their columns and fields, and the rights of the key. They are cached for a
 * short time only, because new events may add fields.
 */
function scope(endpoint) {
  const known = scopesAsked.get(endpoint.name);
  if (known && Date.now() - known.atMs < SCOPE_MS) return known.asked;
  const asked = read(`/api/endpoints/${encodeURIComponent(endpoint.name)}/scope`);
  asked.catch((problem) => problem.status === 403 || scopesAsked.delete(endpoint.name));
  scopesAsked.set(endpoint.name, { asked, atMs: Date.now() });
  return asked;
}

/** Return the first endpoint that the key may query, with its sub-queries and the key's rights, {private, pins}. */
export async function firstAllowed(candidates) {
  let refusal = null;
  for (const endpoint of candidates) {
    try {
      const { sub_queries: subQueries, key } = await scope(endpoint);
      return { endpoint: { ...endpoint, key }, subQueries };
    } catch (problem) {
      if (problem.status !== 403) throw problem;
      refusal ??= problem;
    }
  }
  throw refusal;
}

/** Return the definition of an endpoint, or null if the key may not read it. */
export function definition(endpoint) {
  return readIfAllowed(`/api/endpoints/${encodeURIComponent(endpoint.name)}`);
}

/** Whether the key may change definitions: a private key without pins and redaction. */
export function mayManage() {
  managesAsked ??= read("/api/key").then(
    ({ scopes, pins, redact }) => scopes.split(" ").includes("private") && !redact && !Object.keys(pins).length,
    () => (managesAsked = null),
  );
  return managesAsked;
}

/** Return the definitions of all endpoints by name; null if the key may not change them. */
export async function definitions() {
  const isOffered = await mayManage();
  return isOffered ? new Map((await read("/api/endpoints")).map((one) => [one.name, one])) : null;
}

/** Forget everything cached, because another key may see other endpoints. */
export function askAgain() {
  endpointsAsked = null;
  managesAsked = null;
  scopesAsked.clear();
}

function endpointsOf(document) {
  const paths = Object.entries(document.paths).filter(([path]) => path.startsWith(ADDRESS));
  return paths.map(([path, verbs]) => endpointOf(path, verbs.get, document));
}

function endpointOf(address, operation, document) {
  // Omit the parameters that all endpoints have: references, query languages, and the page size, which has a maximum.
  const isItsOwn = (one) => one.name && !OWN_QUERY.includes(one.name) && one.schema.maximum === undefined;
  const parameters = operation.parameters.filter(isItsOwn);
  return {
    name: operation["x-cordwood-endpoint"],
    address,
    description: operation.description,
    parameters: parameters.map(parameterOf),
    /** The languages of callers' own queries; an endpoint in ClickHouse's dialect has no LQL. */
    languages: OWN_QUERY.filter((language) => operation.parameters.some((one) => one.name === language)),
    columns: columnsOf(operation),
    formats: document.components.parameters.format.schema.enum,
  };
}

function parameterOf(one) {
  return {
    name: one.name,
    isRequired: Boolean(one.required),
    description: one.description ?? "",
    choices: one.schema.enum ?? [],
    example: one.example ?? one.schema.examples?.[0] ?? "",
    fallback: one.schema.default,
    kind: one.schema.format ?? one.schema.type,
  };
}

function columnsOf(operation) {
  const result = operation.responses["200"].content["application/json"].schema.properties.result.items;
  const row = result.anyOf ? result.anyOf[0] : result;
  return Object.entries(row.properties ?? {}).map(([name, schema]) => ({
    name,
    type: [schema.type ?? "any"].flat()[0],
  }));
}
