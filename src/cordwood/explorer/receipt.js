/** Descriptions of an answer's receipt in words. */

import { count, milliseconds } from "./format.js";

export function words(receipt) {
  return [rowsOf(receipt), `in ${milliseconds(receipt.totalMs ?? receipt.tookMs)}`].join(" ") + ".";
}

/** Return sentences on the answer's origin, its computing time, and whether it was cut. */
export function sentences(receipt) {
  return [
    words(receipt),
    kept(receipt),
    made(receipt),
    cut(receipt),
    receipt.notice && `Notice: ${receipt.notice}.`,
  ].filter(Boolean);
}

function rowsOf({ rows }) {
  return rows === 1 ? "One row" : `${count(rows)} rows`;
}

function kept({ cache, ageSeconds }) {
  const ttl = /ttl=(\d+)/.exec(cache)?.[1];
  if (/detail=stale/.test(cache)) return `A kept answer, ${ageSeconds} s old: asking again has failed.`;
  if (/; hit/.test(cache)) return `A kept answer, ${ageSeconds} s old; it is good for ${ttl} s more.`;
  if (/collapsed/.test(cache)) return "Somebody else was asking the same: this is their answer too.";
  if (/stored/.test(cache)) return "The engine ran it; the answer is kept for whoever asks next.";
  return "The engine ran it; this endpoint keeps no answers.";
}

function made({ engineMs, compileMs }) {
  if (engineMs === null || compileMs === null) return "";
  return `The engine took ${milliseconds(engineMs)}, compiling ${milliseconds(compileMs)}.`;
}

/** Say that rows were cut, unless the page has a button to show more. */
function cut({ truncated, next }) {
  return truncated && !next ? `There was more: the rows were cut by ${truncated}.` : "";
}
