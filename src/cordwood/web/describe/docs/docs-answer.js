/** Send a request, and show the answer as it arrives: status, time, headers and the beginning of the body. */

import { withQuery } from "./docs-request.js";
import { h, put } from "./dom.js";
import { key } from "./key.js";

/** Reading stops after this many bytes: an export may have gigabytes, and a followed query has no end. */
const MOST_BYTES = 200_000;
const TEXT = /^(?:text\/|application\/(?:[\w.+-]*json|x-ndjson|x-www-form-urlencoded|xml))/;
const SHOWN = /^(?:content-type|cordwood-.*|cache-status|age|etag|server-timing|ratelimit.*|retry-after|x-request-id)$/;

/** Send the request and show its answer; return when the answer has ended or `signal` is aborted. */
export async function answerInto(place, request, signal) {
  const began = performance.now();
  const line = h("p", { role: "status" }, `Sent ${request.method}; waiting.`);
  put(place, line);
  try {
    const answer = await fetch(withQuery(request), options(request, signal));
    const body = h("code", {});
    const frame = answer.body && h("pre", { tabindex: "0", role: "region", "aria-label": "Body" }, body);
    put(place, line, headersOf(answer), frame);
    const told = (end) => `${answer.status} ${answer.statusText} after ${took(began)}${end}`;
    line.textContent = told(", still open.");
    line.classList.toggle("problem", !answer.ok);
    line.textContent = told(await read(answer, body));
  } catch (failure) {
    line.classList.add("problem");
    const reason = failure.name === "AbortError" ? "Stopped" : `No answer: ${failure.message}`;
    line.textContent = `${reason} after ${took(began)}.`;
  }
}

function options(request, signal) {
  const headers = new Headers(request.headers);
  if (request.isKeyed && key()) headers.set("X-API-KEY", key());
  return { method: request.method, headers, body: request.body ?? undefined, signal, cache: "no-store" };
}

function headersOf(answer) {
  const shown = [...answer.headers].filter(([name]) => SHOWN.test(name));
  const lines = shown.map(([name, value]) => [h("dt", {}, h("code", {}, name)), h("dd", {}, value)]);
  return h("details", {}, h("summary", {}, `Headers (${shown.length})`), h("dl", {}, lines));
}

/** Read the body into an element; return a text that says how the body ended. */
async function read(answer, element) {
  if (!answer.body) return ", without a body.";
  const isText = TEXT.test(answer.headers.get("Content-Type") ?? "");
  const decoder = new TextDecoder();
  const reader = answer.body.getReader();
  let bytes = 0;
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (isText) text += decoder.decode(value, { stream: true });
    element.textContent = isText ? text.slice(0, MOST_BYTES) : "(not text)";
    if (bytes < MOST_BYTES) continue;
    await reader.cancel();
    return `; the first ${MOST_BYTES.toLocaleString("en")} bytes are read, not the rest.`;
  }
  element.textContent = isText ? indented(text) : `(${bytes} bytes that are not text)`;
  return `, ${bytes.toLocaleString("en")} bytes.`;
}

/** Indent JSON, unless parsing would lose digits of its numbers. */
function indented(text) {
  if (!/^\s*[[{]/.test(text) || /\d{16}/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function took(began) {
  return `${Math.round(performance.now() - began).toLocaleString("en")} ms`;
}
