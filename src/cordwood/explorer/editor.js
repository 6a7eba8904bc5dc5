/** The query editor: a text area above its coloured text, with completion at the caret and marked errors. */

import { suggestions } from "./completion.js";
import { endOfSettings } from "./definition-texts.js";
import { h, newId, put } from "./dom.js";

const MOST_SHOWN = 60;
/** A longer text is not coloured, because that would take longer than a key press. */
const MOST_PAINTED = 40_000;
/** Insertions of more lines cannot be undone: the command that records them takes time quadratic in the lines. */
const MOST_TYPED = 300;
const PAINT = {
  lql: /(?<text>"(?:\\.|[^"\\])*"?)|(?<word>\b(?:OR|NULL)\b)|(?<name>(?<![\w.$-])-?[\w.$-]+(?=:))|(?<sign>:(?:[<>]=?|@>~?|~)?|\.\.)/g,
  sql: /(?<note>--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(?<text>'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?)|(?<word>\b(?:select|from|where|group|order|by|having|limit|with|as|and|or|not|in|is|null|between|like|case|when|then|else|end|distinct|desc|asc|cross|left|join|on|unnest|interval|union|all|true|false)\b)|(?<name>\b\w+(?=\())|(?<sign>\b\d+(?:\.\d+)?\b)/gi,
  toml: /(?<note>#[^\n]*|\/\*|\*\/)|(?<text>"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?)|(?<word>^[ \t]*\[[^\n=]*\]|\b(?:true|false)\b)|(?<name>(?<![\w.-])[\w.-]+(?=[ \t]*=))|(?<sign>\b\d[\d.]*\b)/gm,
};

export class Editor {
  /**
   * `onRun` is called on Control+Enter, and in LQL on Enter. `context()` returns {language, shape, valuesOf}, or
   * {language, suggest} with a function `suggest(before, again)`. `role` is the ARIA role of the error line.
   */
  constructor({ onRun, onInput, context, label = "Query", role = "alert" }) {
    Object.assign(this, { onRun, onInput, context, options: [], chosen: 0, error: null });
    const [list, message] = [newId("completions"), newId("error")];
    this.area = h("textarea", {
      class: "editor-text",
      rows: "1",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      autocorrect: "off",
      role: "combobox",
      "aria-autocomplete": "list",
      "aria-controls": list,
      "aria-expanded": "false",
      "aria-label": label,
      "aria-describedby": message,
    });
    this.paint = h("pre", { class: "editor-paint", "aria-hidden": "true" });
    this.list = h("ul", { class: "completions", role: "listbox", id: list, "aria-label": "Completions", hidden: true });
    this.message = h("div", { class: "editor-error", id: message, role });
    this.element = h(
      "div",
      { class: "editor" },
      h("div", { class: "editor-box" }, this.paint, this.area, this.list),
      this.message,
    );
    this.listen();
  }

  get value() {
    return this.area.value;
  }

  set value(text) {
    if (this.area.value !== text) this.area.value = text;
    this.close();
    this.repaint();
  }

  focus() {
    this.area.focus();
    this.area.setSelectionRange(this.value.length, this.value.length);
  }

  /** Show an error. `line` and `column` count from 1 in the text; 0 means that the error has no position in it. */
  fail({ message, hint, line, column }) {
    this.failedAt = [line, column];
    this.error = line ? offsetOf(this.value, line, column) : null;
    const at = line
      ? h("button", { type: "button", class: "linkish", onclick: () => this.visit() }, `line ${line}, column ${column}`)
      : null;
    put(
      this.message,
      h("strong", {}, message),
      at ? [" ", at] : null,
      hint ? h("span", { class: "hint" }, " ", hint) : null,
    );
    this.area.setAttribute("aria-invalid", "true");
    this.repaint();
  }

  clearError() {
    this.error = null;
    put(this.message);
    this.area.removeAttribute("aria-invalid");
    this.repaint();
  }

  visit() {
    const { from, to } = offsetOf(this.value, ...this.failedAt);
    this.select(from, to);
  }

  /** Select a part of the text and scroll to it. */
  select(from, to) {
    this.area.focus();
    this.area.setSelectionRange(from, to);
    this.paint.scrollTo(this.area.scrollLeft, this.area.scrollTop);
    const { node, offset } = placeIn(this.paint, from);
    const range = document.createRange();
    range.setStart(node, offset);
    range.setEnd(node, Math.min(node.length ?? 0, offset + 1));
    const [at, box] = [range.getBoundingClientRect(), this.area.getBoundingClientRect()];
    if (at.top < box.top || at.bottom > box.bottom) this.area.scrollTop += at.top - box.top - box.height / 3;
  }

  /** Replace a part of the text, changing only the lines that differ. It can be undone unless these are very many. */
  replace(text, from = 0, to = this.value.length) {
    const [before, after] = alike(this.value.slice(from, to), text);
    const added = text.slice(before, text.length - after);
    this.area.focus();
    this.area.setSelectionRange(from + before, to - after);
    const isSame = !added && before + after === to - from;
    const command = added ? "insertText" : "delete";
    const isTyped = isSame || (added.split("\n").length < MOST_TYPED && document.execCommand(command, false, added));
    if (!isTyped) this.area.setRangeText(added, from + before, to - after, "end");
    this.area.setSelectionRange(from + text.length, from + text.length);
    this.repaint();
    this.onInput(this.value);
    this.close();
  }

  listen() {
    this.area.addEventListener("input", () => {
      // The position of the error is unknown after a change.
      this.error = null;
      this.repaint();
      this.suggest();
      this.onInput(this.value);
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => this.close());
    this.area.addEventListener("scroll", () => this.paint.scrollTo(this.area.scrollLeft, this.area.scrollTop));
    this.list.addEventListener("pointerdown", (event) => this.point(event));
  }

  key(event) {
    if (!this.list.hidden && this.keyInList(event)) return;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.suggest({ always: true });
    } else if (this.isRun(event)) {
      event.preventDefault();
      this.close();
      this.onRun();
    }
  }

  /** Handle a key while the completions are open; return whether they used it. */
  keyInList(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.choose(event);
    else if (event.key === "Tab" || (event.key === "Enter" && this.isChosen)) this.accept(event);
    else if (event.key === "Escape") this.stop(event);
    else return false;
    return true;
  }

  isRun(event) {
    if (event.key !== "Enter") return false;
    return event.ctrlKey || event.metaKey || (this.context().language === "lql" && !event.shiftKey);
  }

  stop(event) {
    event.stopPropagation();
    this.close();
  }

  choose(event) {
    event.preventDefault();
    const by = event.key === "ArrowDown" ? 1 : -1;
    this.chosen = (this.chosen + by + this.options.length) % this.options.length;
    this.isChosen = true;
    this.showOptions();
  }

  accept(event) {
    event.preventDefault();
    this.insert(this.options[this.chosen].text);
  }

  point(event) {
    event.preventDefault();
    const item = event.target.closest("[data-place]");
    if (item) this.insert(this.options[Number(item.dataset.place)].text);
  }

  /** Replace the completed word with a completion. */
  insert(text) {
    const goesOn = /[:(.]$/.test(text);
    const added = goesOn || this.context().language !== "lql" ? text : `${text} `;
    this.replace(added, this.from, this.area.selectionStart);
    if (goesOn) this.suggest();
  }

  async suggest({ always = false } = {}) {
    const { language, shape, valuesOf, suggest } = this.context();
    const before = this.value.slice(0, this.area.selectionStart);
    if (!always && (!before.trim() || /\s$/.test(before))) return this.close();
    const again = () => this.suggest();
    const values = (path) => valuesOf(path, again);
    const found = suggest ? suggest(before, again) : suggestions(language, before, shape, values);
    this.options = found.options.slice(0, MOST_SHOWN);
    this.from = found.from;
    this.chosen = 0;
    this.isChosen = false;
    this.showOptions();
    return undefined;
  }

  showOptions() {
    this.list.hidden = this.options.length === 0 || document.activeElement !== this.area;
    this.area.setAttribute("aria-expanded", String(!this.list.hidden));
    put(
      this.list,
      this.options.map((one, place) => this.item(one, place)),
    );
    const active = this.list.children[this.chosen];
    if (this.list.hidden || !active) return this.area.removeAttribute("aria-activedescendant");
    this.area.setAttribute("aria-activedescendant", active.id);
    active.scrollIntoView({ block: "nearest" });
    return this.placeList();
  }

  item({ text, hint }, place) {
    const isActive = place === this.chosen;
    return h(
      "li",
      {
        role: "option",
        id: `${this.list.id}-${place}`,
        "data-place": place,
        "aria-selected": String(isActive),
        class: isActive ? "active" : "",
      },
      h("span", {}, text),
      hint ? h("span", { class: "faint" }, hint) : null,
    );
  }

  /** Place the list below the completed word, whose position is measured in the coloured text. */
  placeList() {
    const range = document.createRange();
    const { node, offset } = placeIn(this.paint, this.from);
    range.setStart(node, offset);
    const box = this.paint.parentElement.getBoundingClientRect();
    const at = range.getBoundingClientRect();
    const left = Math.max(0, Math.min(at.left - box.left - 8, box.width - this.list.offsetWidth));
    this.list.style.setProperty("left", `${left}px`);
    this.list.style.setProperty("top", `${(at.bottom || box.top + 32) - box.top + 6}px`);
  }

  close() {
    this.list.hidden = true;
    this.area.setAttribute("aria-expanded", "false");
    this.area.removeAttribute("aria-activedescendant");
  }

  /** Paint the text and fit the area's height to it, without moving the text under the reader. */
  repaint() {
    const { scrollLeft, scrollTop } = this.area;
    put(this.paint, painted(this.value, this.context().language, this.error), "\n");
    this.area.style.setProperty("height", "0");
    this.area.style.setProperty("height", `${this.area.scrollHeight}px`);
    for (const one of [this.area, this.paint]) one.scrollTo(scrollLeft, scrollTop);
  }
}

/** Return the text as spans, cut where the colour changes and at the ends of the error. */
function painted(text, language, error) {
  const pieces = [];
  let at = 0;
  const add = (to, kind) => {
    if (to > at) pieces.push({ from: at, to, kind });
    at = Math.max(at, to);
  };
  for (const { from, to, kind } of inks(text, language)) {
    add(from, "");
    add(to, kind);
  }
  add(text.length, "");
  const cut = error ? pieces.flatMap((piece) => cutAt(piece, error)) : pieces;
  return cut.map(({ from, to, kind, isWrong }) =>
    h("span", { class: `${kind ? `ink-${kind}` : ""}${isWrong ? " wrong" : ""}` }, text.slice(from, to)),
  );
}

/** Return the coloured parts: [{from, to, kind}]. In the file of an endpoint, the TOML settings precede the SQL. */
function inks(text, language, start = 0) {
  if (text.length > MOST_PAINTED) return [];
  if (language === "endpoint") {
    const end = endOfSettings(text);
    return [...inks(text.slice(0, end), "toml"), ...inks(text.slice(end), "sql", end)];
  }
  return [...text.matchAll(PAINT[language] ?? PAINT.lql)].map(({ 0: { length }, index, groups }) => ({
    from: start + index,
    to: start + index + length,
    kind: Object.keys(groups).find((name) => groups[name] !== undefined),
  }));
}

function cutAt(piece, error) {
  const edges = [piece.from, ...[error.from, error.to].filter((at) => at > piece.from && at < piece.to), piece.to];
  return edges.slice(1).map((to, place) => {
    const from = edges[place];
    return { ...piece, from, to, isWrong: from >= error.from && to <= error.to };
  });
}

/** Return the word at a line and column (counted in characters); at the end of a line, its last character. */
function offsetOf(text, line, column) {
  const lines = text.split("\n");
  const before = [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + before;
  const isEnd = start >= text.length || (text[start] === "\n" && before > 0);
  const from = Math.max(0, Math.min(start, text.length) - Number(isEnd));
  const word = /^[\w$]+|^(["'`]).*?(?:\1|$)|^./s.exec(text.slice(from));
  return { from, to: from + (word ? word[0].length : 1) };
}

/** Return the lengths of the common beginning and the common end of two texts, in whole lines. */
function alike(one, other) {
  const most = Math.min(one.length, other.length);
  let [before, after] = [0, 0];
  while (before < most && one[before] === other[before]) before += 1;
  if (one !== other) before = one.slice(0, before).lastIndexOf("\n") + 1;
  while (after < most - before && one.at(-1 - after) === other.at(-1 - after)) after += 1;
  const end = one.slice(one.length - after).indexOf("\n");
  return [before, end < 0 ? 0 : after - end];
}

function placeIn(element, offset) {
  let left = offset;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (left <= node.length) return { node, offset: left };
    left -= node.length;
  }
  return { node: element, offset: 0 };
}
