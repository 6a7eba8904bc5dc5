/** Exports from the page: files, and calls for the clipboard. */

import { addressOf, askForFile, given } from "./api.js";
import { h } from "./dom.js";

const ENDINGS = { json: "json", ndjson: "ndjson", csv: "csv", arrow: "arrows", parquet: "parquet" };
export const KEY_PLACEHOLDER = "$CORDWOOD_KEY";

export async function downloadAs(endpoint, parameters, format) {
  const blob = await askForFile(endpoint, parameters, format);
  download(blob, `${endpoint.name}.${ENDINGS[format] ?? format}`);
}

export function downloadText(text, fileName) {
  download(new Blob([text], { type: "text/plain;charset=utf-8" }), fileName);
}

/** Return the call as a shell command, with the key as a variable. */
export function curlOf(endpoint, parameters) {
  const lines = [`curl -sG ${quoted(addressOf(endpoint.address, {}))}`, `-H "X-API-KEY: ${KEY_PLACEHOLDER}"`];
  for (const [name, value] of given(parameters)) lines.push(`--data-urlencode ${quoted(`${name}=${value}`)}`);
  return lines.join(" \\\n  ");
}

/** Return the call as a Python program without dependencies, with the key as a variable. */
export function pythonOf(endpoint, parameters) {
  const lines = given(parameters).map(([name, value]) => `    ${literal(name)}: ${literal(value)},`);
  return [
    "import json",
    "import os",
    "from urllib.parse import urlencode",
    "from urllib.request import Request, urlopen",
    "",
    "parameters = {",
    ...lines,
    "}",
    `address = ${literal(addressOf(endpoint.address, {}))} + "?" + urlencode(parameters)`,
    `request = Request(address, headers={"X-API-KEY": os.environ["${KEY_PLACEHOLDER.slice(1)}"]})`,
    "with urlopen(request) as answer:",
    '    rows = json.load(answer)["result"]',
    "for row in rows:",
    "    print(json.dumps(row))",
    "",
  ].join("\n");
}

export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "off-screen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}

function download(blob, fileName) {
  const link = h("a", { href: URL.createObjectURL(blob), download: fileName });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return a text as a literal, in JSON's syntax, which Python and JavaScript share. */
export function literal(value) {
  return JSON.stringify(String(value));
}

/** Return a text as one quoted word of a shell. */
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
