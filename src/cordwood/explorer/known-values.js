/** Values of fields for completion: the most frequent ones, requested once for each field. */

import { topValues } from "./explore-answers.js";
import { filterText } from "./lql.js";
import { bounds } from "./ranges.js";

export class KnownValues {
  constructor() {
    this.byPath = new Map();
  }

  forget() {
    this.byPath.clear();
  }

  /** Return the values known so far; `again` is called when there are more. */
  of(view, path, again) {
    if (!this.byPath.has(path)) this.look(view, path, again);
    return this.byPath.get(path);
  }

  look(view, path, again) {
    this.byPath.set(path, []);
    const everything = { ...view, text: "", patterns: [] };
    const keep = (values) => this.keep(path, values) && again();
    // Errors are ignored: a field that no event has offers no values.
    topValues(everything, bounds(view.range), path).then(keep, () => {});
  }

  keep(path, values) {
    const plain = values.filter(({ value }) => typeof value !== "object");
    const offered = plain.map(({ value, events }) => ({ text: written(value), hint: String(events) }));
    this.byPath.set(path, offered);
    return offered.length > 0;
  }
}

/** Return a value as a filter writes it after the colon. */
function written(value) {
  return filterText(["x"], value).slice("x:".length);
}
