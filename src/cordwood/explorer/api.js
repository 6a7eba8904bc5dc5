/** The client of the public HTTP API, which all requests of the explorer go through. */

import { key, untilForgotten } from "./key.js";

/** Queries with a longer address are sent as the body of a POST, because a proxy may refuse a long address. */
const LONGEST_ADDRESS = 8000;
/** The event that is dispatched when the service refuses the key, so that the shown page can react. */
export const KEY_REFUSED = "cordwood:key-refused";
const UNREACHED = "unreached";
/** For each signal of requests, the prefix of their ids and the number of ids so far. */
const idsOfSignals = new WeakMap();
const LONG_NUMBER = /[:[,]\s*-?(?:9\d{15}|\d{17})/;

/** An error as the service describes it: code, message, and perhaps a hint and a position in the query. */
export class Problem extends Error {
  constructor(status, told) {
    super(told.message ?? `The service answered ${status}.`);
    this.status = status;
    this.code = told.status ?? "";
    this.hint = told.hint ?? "";
    this.line = told.line ?? 0;
    this.column = told.column ?? 0;
  }

  /** Whether the same request may succeed a moment later. */
  get isPassing() {
    return this.code === UNREACHED || this.status === 429 || this.status >= 500;
  }
}

/** Query an endpoint; return the rows, the columns and the receipt of the answer. */
export async function ask(endpoint, parameters, { signal, fresh = false } = {}) {
  const headers = fresh ? { "Cache-Control": "no-cache" } : {};
  const began = performance.now();
  const answer = await sent(endpoint.address, parameters, { signal, headers, longest: LONGEST_ADDRESS });
  const { result } = parsed(await answer.text());
  return { rows: result, columns: columnsOf(result), receipt: receiptOf(answer, performance.now() - began) };
}

/** Query an endpoint and return the answer as a file in the given format. */
export async function askForFile(endpoint, parameters, format) {
  const answer = await sent(endpoint.address, { ...parameters, format }, { longest: LONGEST_ADDRESS });
  return answer.blob();
}

/**
 * Follow a query: call `onRow` for each row until the connection ends. `lastId` is the event id to resume after, and
 * `onId` is called with each id received. The status with which the service ends the stream is thrown, unless it is
 * that the service is stopping.
 */
export async function follow(endpoint, parameters, { signal, lastId, onId, onRow }) {
  const address = endpoint.address.replace("/query/", "/tail/");
  const headers = lastId ? { "Last-Event-ID": lastId } : {};
  const answer = await sent(address, parameters, { signal, headers, longest: LONGEST_ADDRESS });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reached(() => reader.read());
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) takeEvent(event, onId, onRow);
  }
}

function takeEvent(event, onId, onRow) {
  const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
  if (fields.id) onId(fields.id);
  if (!fields.data) return;
  const told = parsed(fields.data);
  if (!fields.event) onRow(told);
  if (fields.event === "end" && !told.status.startsWith("service.")) throw new Problem(0, told);
}

export async function read(path, parameters = {}, options = {}) {
  const answer = await sent(path, parameters, options);
  return parsed(await answer.text());
}

/** Read a definition as text, or send one and return the answer: {text, tag}; the tag identifies its version. */
export async function exchange(path, parameters = {}, options = {}) {
  const answer = await sent(path, parameters, options);
  return { text: await answer.text(), tag: answer.headers.get("ETag") ?? "" };
}

/** Create an object from JSON fields; return it as the service answers it. */
export async function create(path, fields) {
  const headers = { "Content-Type": "application/json" };
  const answer = await sent(path, {}, { method: "POST", headers, body: JSON.stringify(fields) });
  return parsed(await answer.text());
}

/** Return a value as JSON to copy, with all digits of large integers. */
export function written(value) {
  const digits = (_, one) => (typeof one === "bigint" ? (JSON.rawJSON?.(String(one)) ?? String(one)) : one);
  return JSON.stringify(value, digits, 2);
}

/** Read an object; return null if the key may not read it. */
export async function readIfAllowed(path, parameters = {}, options = {}) {
  try {
    return await read(path, parameters, options);
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 403) return null;
    throw problem;
  }
}

/** Return the absolute URL of a call, to copy. */
export function addressOf(path, parameters) {
  const query = new URLSearchParams(given(parameters)).toString();
  return new URL(path.replace(/^\//, ""), document.baseURI).href.replace(/#.*$/, "") + (query && `?${query}`);
}

export function given(parameters) {
  return Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
}

/** Give requests with this signal ids that begin with `id`, as they appear in the service's list of active queries. */
export function nameRequests(signal, id) {
  idsOfSignals.set(signal, { id, count: 0 });
}

function idOf(signal) {
  const named = signal && idsOfSignals.get(signal);
  return named ? { "X-Request-Id": `${named.id}-${(named.count += 1)}` } : {};
}

/** Send a request. Responses in the browser's cache are revalidated, because a receipt must describe this answer. */
async function sent(path, parameters, { signal, method = "GET", headers = {}, body, longest = Infinity }) {
  const keyed = { ...(key() ? { "X-API-KEY": key() } : {}), ...idOf(signal), ...headers };
  const address = addressOf(path, parameters);
  const whileWanted = AbortSignal.any([untilForgotten(), signal].filter(Boolean));
  const options = { signal: whileWanted, method, headers: keyed, body, cache: "no-cache" };
  const call = address.length > longest ? asBody(path, parameters, options) : [address, options];
  const answer = await reached(() => fetch(...call));
  if (answer.ok) return answer;
  if (answer.status === 401) dispatchEvent(new Event(KEY_REFUSED));
  throw new Problem(answer.status, await toldIn(answer));
}

function asBody(path, parameters, options) {
  const headers = { ...options.headers, "Content-Type": "application/json" };
  const body = JSON.stringify(Object.fromEntries(given(parameters)));
  return [addressOf(path, {}), { ...options, method: "POST", headers, body }];
}

async function reached(call) {
  try {
    return await call();
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Problem(0, {
      status: UNREACHED,
      message: "The service cannot be reached.",
      hint: "It may be stopping, or the network is gone.",
    });
  }
}

/** Parse JSON; integers beyond the precision of a double become BigInt where the browser supports it. Empty is null. */
function parsed(text) {
  if (!text) return null;
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => (isInexact(value, context?.source) ? BigInt(context.source) : value));
}

function isInexact(value, source) {
  return typeof value === "number" && source !== undefined && !Number.isSafeInteger(value) && /^-?\d+$/.test(source);
}

async function toldIn(answer) {
  try {
    return (await answer.json()).error ?? {};
  } catch {
    return {};
  }
}

/** Return the columns of the rows of an answer, which all have the same keys. */
function columnsOf(rows) {
  return rows.length ? Object.keys(rows[0]) : [];
}

function receiptOf(answer, tookMs) {
  const header = (name) => answer.headers.get(name) ?? "";
  return {
    rows: Number(header("Cordwood-Rows")),
    truncated: header("Cordwood-Truncated"),
    next: header("Cordwood-Next"),
    notice: header("Cordwood-Notice"),
    revision: header("Cordwood-Revision"),
    cache: header("Cache-Status"),
    ageSeconds: Number(header("Age")),
    engineMs: timing(header("Server-Timing"), "engine"),
    compileMs: timing(header("Server-Timing"), "compile"),
    totalMs: timing(header("Server-Timing"), "total"),
    tookMs,
  };
}

function timing(header, name) {
  const found = new RegExp(`\\b${name};dur=([0-9.]+)`).exec(header);
  return found ? Number(found[1]) : null;
}
