/** Live mode: streams the rows of a query as their events are stored, and reconnects when the connection ends. */

import { follow } from "./api.js";

const AGAIN_MS = 2500;
/** Rows that arrive within this time are shown at once. */
const TOGETHER_MS = 250;

export class Live {
  /** `onRows(rows)` receives the rows in order of arrival; `onRefused()` is called if the query cannot be followed. */
  constructor({ onRows, onRefused }) {
    Object.assign(this, { onRows, onRefused, about: "", rows: [] });
  }

  /** Follow a query, unless it is the one that is followed already. */
  start(endpoint, parameters) {
    const about = JSON.stringify([endpoint.address, parameters]);
    if (about === this.about) return;
    this.stop();
    this.about = about;
    this.following = new AbortController();
    this.go(endpoint, parameters, this.following.signal);
  }

  stop() {
    this.following?.abort();
    clearTimeout(this.timer);
    Object.assign(this, { about: "", rows: [], timer: null });
  }

  async go(endpoint, parameters, signal) {
    let lastId = "";
    while (!signal.aborted) {
      try {
        const onId = (id) => (lastId = id);
        await follow(endpoint, parameters, { signal, lastId, onId, onRow: (row) => this.add(row) });
      } catch (problem) {
        if (problem.name === "AbortError") return;
        if (!problem.isPassing || problem.status === 501) {
          this.stop();
          return this.onRefused();
        }
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  add(row) {
    this.rows.push(row);
    this.timer ??= setTimeout(() => this.show(), TOGETHER_MS);
  }

  show() {
    const { rows } = this;
    Object.assign(this, { rows: [], timer: null });
    this.onRows(rows);
  }
}
