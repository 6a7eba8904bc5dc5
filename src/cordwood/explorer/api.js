/** The public HTTP API: every byte the explorer shows comes through here. */

import { key, untilForgotten } from "./key.js";

/** Queries whose address is longer than this go as the body of a POST instead: it may pass proxies on its way. */
const LONGEST_ADDRESS = 8000;
/** Told of whatever page is shown when the service no longer knows the key. */
export const KEY_REFUSED = "cordwood:key-refused";
const UNREACHED = "unreached";
/** The ids of the requests with a signal, by the signal: what they begin with, and how many there are. */
const idsOfSignals = new WeakMap();
const LONG_NUMBER = /[:[,]\s*-?(?:9\d{15}|\d{17})/;

/** What went wrong, as the service tells it: a code, a sentence, perhaps a hint and a place in the query. */
export class Problem extends Error {
  constructor(status, told) {
    super(told.message ?? `The service answered ${status}.`);
    this.status = status;
    this.code = told.status ?? "";
    this.hint = told.hint ?? "";
    this.line = told.line ?? 0;
    this.column = told.column ?? 0;
  }

  /** Whether the same may well be answered a moment later. */
  get isPassing() {
    return this.code === UNREACHED || this.status === 429 || this.status >= 500;
  }
}

/** The rows of an endpoint's answer, and its receipt. */
export async function ask(endpoint, parameters, { signal, fresh = false } = {}) {
  const headers = fresh ? { "Cache-Control": "no-cache" } : {};
  const began = performance.now();
  const answer = await sent(endpoint.address, parameters, { signal, headers, longest: LONGEST_ADDRESS });
  const { result } = parsed(await answer.text());
  return { rows: result, columns: columnsOf(result), receipt: receiptOf(answer, performance.now() - began) };
}

/** An answer in the form that was asked for, as a file. */
export async function askForFile(endpoint, parameters, format) {
  const answer = await sent(endpoint.address, { ...parameters, format }, { longest: LONGEST_ADDRESS });
  return answer.blob();
}

/**
 * The rows of a followed query, until the connection ends. `onId` is told where to go on from, `lastId` is where to begin;
 * what the service tells at the end, other than that it stops, is a problem.
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

/** A definition as text, or the answer to one that is sent: {text, tag}, where the tag is of its version. */
export async function exchange(path, parameters = {}, options = {}) {
  const answer = await sent(path, parameters, options);
  return { text: await answer.text(), tag: answer.headers.get("ETag") ?? "" };
}

/** Create something of the fields of a JSON object, and return it as the service tells it. */
export async function create(path, fields) {
  const headers = { "Content-Type": "application/json" };
  const answer = await sent(path, {}, { method: "POST", headers, body: JSON.stringify(fields) });
  return parsed(await answer.text());
}

/** A value as JSON, for people to copy; numbers with all their digits. */
export function written(value) {
  const digits = (_, one) => (typeof one === "bigint" ? (JSON.rawJSON?.(String(one)) ?? String(one)) : one);
  return JSON.stringify(value, digits, 2);
}

/** Something read that this key may not see is null. */
export async function readIfAllowed(path, parameters = {}, options = {}) {
  try {
    return await read(path, parameters, options);
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 403) return null;
    throw problem;
  }
}

/** The whole address of a call, for people to copy. */
export function addressOf(path, parameters) {
  const query = new URLSearchParams(given(parameters)).toString();
  return new URL(path.replace(/^\//, ""), document.baseURI).href.replace(/#.*$/, "") + (query && `?${query}`);
}

export function given(parameters) {
  return Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
}

/** Send requests with this signal under ids that begin with `id`, by which the service's list of queries names them. */
export function nameRequests(signal, id) {
  idsOfSignals.set(signal, { id, count: 0 });
}

function idOf(signal) {
  const named = signal && idsOfSignals.get(signal);
  return named ? { "X-Request-Id": `${named.id}-${(named.count += 1)}` } : {};
}

/** Whatever the browser has kept is asked for again: a receipt must be of this answer. */
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

/** Whole numbers that a double does not hold keep their digits, where the browser tells them; an empty answer is null. */
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

/** Rows of one answer have the same keys, unless a column is another's by turns. */
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
