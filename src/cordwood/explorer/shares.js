/** The share of events that have each field; paths are written as in the flat form of the schema. */

export function fieldShares(events) {
  const seen = new Map();
  for (const event of events) for (const path of pathsOf(event)) seen.set(path, (seen.get(path) ?? 0) + 1);
  return new Map([...seen].map(([path, times]) => [path, times / events.length]));
}

/** Return all paths with a value in an event, each once; arrays add no step to a path. */
function pathsOf(event) {
  const found = new Set();
  collect(event, "", found);
  return found;
}

function collect(value, path, found) {
  if (value === null || value === undefined) return;
  if (Array.isArray(value)) {
    for (const one of value) collect(one, path, found);
  } else if (typeof value === "object") {
    for (const [key, one] of Object.entries(value)) collect(one, path ? `${path}.${key}` : key, found);
  } else found.add(path);
}
