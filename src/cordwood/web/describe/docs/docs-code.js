/** A request as code in three languages, without dependencies and without the text of the key. */

import { withQuery } from "./docs-request.js";
import { KEY_PLACEHOLDER, literal, quoted } from "./save.js";

const KEY_NAME = KEY_PLACEHOLDER.slice(1);

/** The languages by name, each with the function that writes a request in it. */
export const LANGUAGES = { curl: curlOf, Python: pythonOf, JavaScript: javascriptOf };

function curlOf(request) {
  const isGet = request.method === "GET";
  const inQuery = isGet && request.query.length > 0;
  const address = inQuery ? request.address : withQuery(request);
  const method = isGet ? (inQuery ? " -G" : "") : ` -X ${request.method}`;
  const lines = [`curl -sS${method} ${quoted(address)}`];
  if (request.isKeyed) lines.push(`-H "X-API-KEY: ${KEY_PLACEHOLDER}"`);
  for (const [name, value] of request.headers) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (inQuery) for (const [name, value] of request.query) lines.push(`--data-urlencode ${quoted(`${name}=${value}`)}`);
  if (request.body !== null) lines.push(`--data-raw ${quoted(request.body)}`);
  return lines.join(" \\\n  ");
}

/** Return a Python program that uses urllib of the standard library. */
function pythonOf(request) {
  const { query, body, isJson } = request;
  const address = literal(request.address) + (query.length ? ' + "?" + urlencode(parameters)' : "");
  return [
    ...(isJson ? ["import json"] : []),
    ...(request.isKeyed ? ["import os"] : []),
    ...(isJson ? [] : ["import sys"]),
    ...(query.length ? ["from urllib.parse import urlencode"] : []),
    "from urllib.request import Request, urlopen",
    "",
    ...(query.length ? block("parameters = [", query.map(pair), "]") : []),
    "request = Request(",
    `    ${address},`,
    ...(body === null ? [] : [`    data=${literal(body)}.encode(),`]),
    `    headers={${membersOf(request, `os.environ["${KEY_NAME}"]`)}},`,
    `    method="${request.method}",`,
    ")",
    "with urlopen(request) as answer:",
    ...(isJson
      ? ["    told = json.load(answer)", "print(json.dumps(told, indent=2))"]
      : ["    sys.stdout.buffer.write(answer.read())"]),
    "",
  ].join("\n");
}

/** Return JavaScript that uses fetch; the key is read from the environment of Node.js. */
function javascriptOf(request) {
  const { query, body } = request;
  const headers = membersOf(request, `process.env.${KEY_NAME}`);
  const list = query.map(([name, value]) => `  [${literal(name)}, ${literal(value)}],`);
  const address = query.length ? `${literal(request.address)} + "?" + parameters` : literal(request.address);
  return [
    ...(query.length ? ["const parameters = new URLSearchParams([", ...list, "]);"] : []),
    `const answer = await fetch(${address}, {`,
    `  method: "${request.method}",`,
    `  headers: ${headers ? `{ ${headers} }` : "{}"},`,
    ...(body === null ? [] : [`  body: ${literal(body)},`]),
    "});",
    "const told = await answer.text();",
    "if (!answer.ok) throw new Error(told);",
    "console.log(told);",
    "",
  ].join("\n");
}

/** Return the headers as members of a dictionary or an object. */
function membersOf(request, keyText) {
  const given = request.headers.map(([name, value]) => `${literal(name)}: ${literal(value)}`);
  return (request.isKeyed ? [`"X-API-KEY": ${keyText}`, ...given] : given).join(", ");
}

function pair([name, value]) {
  return `(${literal(name)}, ${literal(value)})`;
}

function block(head, lines, tail) {
  return [head, ...lines.map((line) => `    ${line},`), tail];
}
