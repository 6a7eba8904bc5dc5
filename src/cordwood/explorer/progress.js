/** The progress of a running query, as far as the engine reports it. */

import { nameRequests, read } from "./api.js";
import { h } from "./dom.js";
import { compact } from "./format.js";

/** The delay of the first request for the progress, which short queries end before, and the period of later ones. */
const [FIRST_MS, EVERY_MS] = [1000, 500];

export class Progress {
  constructor() {
    this.element = h("span", { class: "progress", title: "How much of the query is done" });
  }

  /** Show the progress of the requests with this signal, until it is aborted or `stop` is called. */
  watch(signal) {
    this.stop();
    const id = newId();
    this.id = id;
    nameRequests(signal, id);
    signal.addEventListener("abort", () => id === this.id && this.stop());
    this.timer = setTimeout(() => this.look(id), FIRST_MS);
  }

  stop() {
    this.id = null;
    clearTimeout(this.timer);
    this.element.textContent = "";
  }

  /** Request and show the progress. Errors are ignored: the query itself may still succeed. */
  async look(id) {
    const told = await read("/api/queries").catch(() => null);
    if (!told || id !== this.id) return;
    this.element.textContent = words(told.queries.filter((one) => one.id?.startsWith(id)));
    this.timer = setTimeout(() => this.look(id), EVERY_MS);
  }
}

/** Describe the progress of the query that has the largest remaining part. */
function words(queries) {
  const [first] = queries.filter(isTold).sort((one, other) => (one.part ?? 0) - (other.part ?? 0));
  if (!first) return "";
  const { rows_read: read, rows_total: total, part } = first;
  if (read === null) return `${Math.floor(part * 100)} % done`;
  return total === null ? `${compact(read)} rows read` : `${compact(read)} of ${compact(total)} rows read`;
}

function isTold({ rows_read: read, part }) {
  return read !== null || part !== null;
}

/** Return a random id; `crypto.randomUUID` is not available to pages without TLS. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
