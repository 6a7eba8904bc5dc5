/** Values of fields for completion: those that occur most, asked for once a field. */

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

  /** What is known now; `again` is called when there is more. */
  of(view, path, again) {
    if (!this.byPath.has(path)) this.look(view, path, again);
    return this.byPath.get(path);
  }

  look(view, path, again) {
    this.byPath.set(path, []);
    const everything = { ...view, text: "", patterns: [] };
    const keep = (values) => this.keep(path, values) && again();
    // A field that nobody ever saw has none to offer, and that is all there is to say here.
    topValues(everything, bounds(view.range), path).then(keep, () => {});
  }

  keep(path, values) {
    const plain = values.filter(({ value }) => typeof value !== "object");
    const offered = plain.map(({ value, events }) => ({ text: written(value), hint: String(events) }));
    this.byPath.set(path, offered);
    return offered.length > 0;
  }
}

/** A value as a filter has it after the colon. */
function written(value) {
  return filterText(["x"], value).slice("x:".length);
}
