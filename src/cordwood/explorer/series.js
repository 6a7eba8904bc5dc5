/** The order and colours of series in charts: the same name has the same colour everywhere. */

const TONES = [
  [/^(5xx|5\d\d|error|err|severe|failed|failure)$/i, "error"],
  [/^(critical|crit|alert|emergency|emerg|fatal|panic)$/i, "fatal"],
  [/^(4xx|4\d\d|warning|warn)$/i, "warning"],
  [/^(3xx|3\d\d|notice)$/i, "notice"],
  [/^(2xx|2\d\d|ok|info|information|log|informational|success)$/i, "fine"],
  [/^(1xx|1\d\d|debug|trace|verbose|statement)$/i, "quiet"],
];
const ORDER = ["fatal", "error", "warning", "notice", "fine", "quiet"];
const HUES = 8;

export const OTHERS = "other";
export const NONE = "–";

/** Return names with their tones, most severe first; a name without a tone gets a hue by its position. */
export function toned(names) {
  const sorted = [...names].sort((one, two) => rank(one) - rank(two) || one.localeCompare(two));
  let hue = 0;
  return sorted.map((name) => {
    const tone = toneOf(name);
    if (tone) return { name, tone };
    hue += 1;
    return { name, tone: `hue${((hue - 1) % HUES) + 1}` };
  });
}

/** Return the tone of a level or a status; empty for other values. */
export function toneOf(value) {
  if (value === OTHERS || value === NONE) return "rest";
  const found = TONES.find(([pattern]) => pattern.test(String(value)));
  return found ? found[1] : "";
}

function rank(name) {
  const tone = toneOf(name);
  if (tone === "rest") return ORDER.length + 1;
  return tone ? ORDER.indexOf(tone) : ORDER.length;
}
