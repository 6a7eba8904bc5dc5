/** What is shown above the page: panels below a button, and the line at its foot that tells what was done. */

import { h, newId } from "./dom.js";

export function popover(button, panel, { label, onOpen = () => {} }) {
  panel.id = newId("panel");
  panel.classList.add("panel");
  panel.setAttribute("role", "dialog");
  panel.setAttribute("aria-label", label);
  panel.hidden = true;
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-haspopup", "dialog");
  const element = h("div", { class: "popover" }, button, panel);
  const show = (isOpen) => {
    panel.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    onOpen();
    keepInView(panel);
    panel.querySelector("button, input, select, a")?.focus();
  };
  button.addEventListener("click", () => show(panel.hidden));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || panel.hidden) return;
    event.stopPropagation();
    show(false);
    button.focus();
  });
  element.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !element.contains(event.relatedTarget)) show(false);
  });
  addEventListener("pointerdown", (event) => {
    if (!element.contains(event.target)) show(false);
  });
  return { element, close: () => show(false) };
}

function keepInView(panel) {
  panel.style.removeProperty("translate");
  const { left, right } = panel.getBoundingClientRect();
  const over = Math.max(0, right - document.documentElement.clientWidth + 8);
  const under = Math.max(0, 8 - left);
  if (over || under) panel.style.setProperty("translate", `${under - over}px 0`);
}

const SHOWN_MS = 4000;
let timer = 0;

export function tell(words) {
  const place = document.getElementById("told");
  place.textContent = words;
  place.classList.add("is-shown");
  clearTimeout(timer);
  timer = setTimeout(() => place.classList.remove("is-shown"), SHOWN_MS);
}
