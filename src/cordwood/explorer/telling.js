/** A line at the foot of the page that tells what was done; screen readers read it out. */

const SHOWN_MS = 4000;
let timer = 0;

export function tell(words) {
  const place = document.getElementById("told");
  place.textContent = words;
  place.classList.add("is-shown");
  clearTimeout(timer);
  timer = setTimeout(() => place.classList.remove("is-shown"), SHOWN_MS);
}
