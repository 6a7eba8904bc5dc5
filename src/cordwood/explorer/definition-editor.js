/** The editor of endpoint and stream definitions: checks while the reader types, saves, compares and restores. */

import * as address from "./address.js";
import { exchange, read } from "./api.js";
import * as texts from "./definition-texts.js";
import { Versions } from "./definition-versions.js";
import { Words } from "./definition-words.js";
import { h, put } from "./dom.js";
import { Editor } from "./editor.js";
import * as kept from "./kept.js";
import { tell } from "./overlays.js";

/** A text is checked once nothing was typed for this time. */
const PAUSE_MS = 400;
const CHANGED_MEANWHILE = "request.changed-meanwhile";

export class DefinitionEditor {
  /** `kind` is ENDPOINT or STREAM; `onSaved()` is called after a saved definition replaced the served one. */
  constructor(kind, onSaved) {
    Object.assign(this, { kind, onSaved, opened: "", isKept: true });
    this.words = new Words();
    const language = kind.noun === "endpoint" ? "endpoint" : "toml";
    const suggest = (before, again) => this.words.suggest(language, this.editor.value, before, again);
    this.editor = new Editor({
      label: `Definition of the ${kind.noun}`,
      role: "status",
      onRun: () => this.save(),
      onInput: () => this.typed(),
      context: () => ({ language, suggest }),
    });
    this.versions = new Versions({
      onShow: (text, number) => this.take(text, `Version ${number} is in the editor; it is not saved.`),
      onRestore: (made, number) => {
        kept.dropDraft(this.place);
        return this.taken(made, `Version ${number} is served again.`);
      },
      onProblem: (problem) => this.fail(problem),
    });
    this.element = this.layout();
    addEventListener("beforeunload", (event) => this.opened && !this.isKept && event.preventDefault());
  }

  layout() {
    const button = (words, onclick, look = "") =>
      h("button", { type: "button", class: `button ${look}`, onclick }, words);
    this.head = h("h3", {});
    this.adder = button("", () => this.add(), "small");
    this.deleter = button("Delete…", () => this.confirmDelete(), "small");
    this.saver = button(`Save ${this.kind.noun}`, () => this.save(), "primary");
    this.discarder = button("Discard changes", () => this.discard());
    this.notice = h("div", { class: "notice", role: "status" });
    this.told = h("p", { class: "faint", role: "status" });
    const close = button("Close", () => this.close(), "small");
    const head = h("div", { class: "bar-line" }, this.head, h("span", { class: "spring" }));
    head.append(this.adder, this.deleter, close);
    this.parts = h("div", { class: "stack" }, this.editor.element, this.told);
    this.parts.append(h("div", { class: "joined-apart" }, this.saver, this.discarder), this.versions.element);
    return h(
      "section",
      { class: "definition stack", hidden: true, "aria-label": "Definition" },
      head,
      this.notice,
      this.parts,
    );
  }

  /** Open the editor as the address says: `mode` is "new", "copy" or "alert", another text to edit, empty to close. */
  async show(mode, name) {
    const wanted = mode ? `${mode} ${name}` : "";
    if (wanted === this.opened) return;
    this.leave();
    this.element.hidden = !mode;
    if (!mode) return;
    const isOwn = !["new", "copy"].includes(mode);
    Object.assign(this, { opened: wanted, mode, name, isOwn, isLoaded: false, after: null });
    const edit = isOwn ? "1" : mode;
    this.place = address.hashOf(this.kind.page, { [this.kind.noun]: mode === "new" ? "" : name, edit });
    this.path = this.kind.path + (isOwn ? `/${encodeURIComponent(name)}` : "");
    this.head.textContent = mode === "new" ? `New ${this.kind.noun}` : isOwn ? `Edit ${name}` : `Copy of ${name}`;
    for (const part of [this.parts, this.adder, this.deleter]) part.hidden = true;
    put(this.notice);
    await this.open();
    if (this.opened === wanted && this.isLoaded) this.aim();
  }

  leave() {
    this.pause();
    this.opening?.abort();
    this.opened = "";
  }

  close() {
    if (this.editor.value !== this.base) tell("What you typed is kept in this tab.");
    address.change({ edit: "" });
    document.querySelector("[data-focus=edit]")?.focus();
  }

  /** Load the served definition, and the unsaved draft if there is one. */
  async open() {
    const { signal } = (this.opening = new AbortController());
    try {
      await this.load(signal);
    } catch (problem) {
      if (problem.name !== "AbortError") put(this.notice, problemLine(problem));
    }
  }

  async load(signal) {
    const { kind, name, mode } = this;
    await this.words.learn(signal);
    const served = mode === "new" ? null : await this.served(signal);
    this.before = this.isOwn ? await read(this.path, {}, { signal }) : null;
    const draft = kept.draft(this.place);
    this.base = mode === "copy" ? texts.copyOf(served.text, name, kind) : (served?.text ?? this.started());
    this.baseTag = this.isOwn ? served.tag : "";
    this.tag = draft?.tag ?? this.baseTag;
    for (const part of [this.parts, this.adder]) part.hidden = false;
    this.deleter.hidden = this.before?.origin !== "managed";
    this.fill(draft?.text ?? this.base);
    this.isLoaded = true;
    if (draft && draft.text !== this.base) this.say("This is what you typed before. It is not saved.");
    if (this.tag !== this.baseTag) this.showTheirs(served);
    this.versions.of(this.isOwn ? this.path : "");
    this.settle();
    this.check();
  }

  started() {
    return this.kind.starting(this.words.streams[0] ?? "my.app");
  }

  /** Fetch the served text and its tag. */
  async served(signal) {
    const address = `${this.kind.path}/${encodeURIComponent(this.name)}/text`;
    const { text, tag } = await exchange(address, {}, { signal });
    return { text: text.replace(/\r\n?/g, "\n"), tag };
  }

  /** Show a text; replacing a loaded one can be undone. */
  fill(text) {
    if (!this.isLoaded) this.editor.value = text;
    else if (text !== this.editor.value) this.editor.replace(text);
  }

  /** Move the caret to the part that the reader will change first. */
  aim() {
    if (this.mode === "alert") return this.add();
    if (this.isOwn) return this.editor.select(0, 0);
    return this.editor.select(...texts.placeOfName(this.editor.value));
  }

  // Typing

  typed() {
    this.pause();
    this.settle();
    this.told.textContent = "Checking…";
    this.timer = setTimeout(() => this.check(), PAUSE_MS);
  }

  /** Store the text as a draft if it differs from the served one; otherwise drop the draft. */
  settle() {
    const text = this.editor.value;
    const isChanged = text !== this.base;
    this.discarder.hidden = !isChanged;
    const article = this.kind.addition === "alert" ? "an" : "a";
    const isThere = this.kind.found(text);
    this.adder.textContent = isThere ? `Go to the ${this.kind.addition}` : `Add ${article} ${this.kind.addition}`;
    if (!isChanged) kept.dropDraft(this.place);
    this.isKept = !isChanged || kept.keepDraft(this.place, { text, tag: this.tag });
  }

  pause() {
    clearTimeout(this.timer);
    this.checking?.abort();
  }

  /** Validate the text by a dry run, which makes all checks of saving and stores nothing. */
  async check() {
    const { signal } = (this.checking = new AbortController());
    try {
      const { text } = await this.send({ dry_run: true }, { signal });
      this.after = JSON.parse(text);
      this.editor.clearError();
      this.told.textContent = this.valid();
    } catch (problem) {
      this.fail(problem);
    }
  }

  valid() {
    if (!this.before) return `Valid: ${this.after.name} would be new.`;
    const changes = texts.changesOf(this.before, this.after);
    return changes.length ? `Valid. Changed: ${changes.join(", ")}.` : "Valid. It does what is served.";
  }

  fail(problem) {
    if (problem.name === "AbortError") return;
    this.told.textContent = "";
    this.editor.fail(problem);
  }

  add() {
    const { kind, editor } = this;
    const found = kind.found(editor.value);
    if (found) return editor.select(found.index, found.index + found[0].length);
    const { at, text, chosen } = kind.added(editor.value, this.after ?? this.before);
    editor.replace(text, at, at);
    const from = at + text.indexOf(chosen);
    return editor.select(from, from + chosen.length);
  }

  /** Show a notice above the text, with buttons for the offered actions, each as [label, action]. */
  say(words, ...offered) {
    put(this.notice, h("p", {}, words), offered.length ? choices(offered) : null);
  }

  take(text, words) {
    put(this.notice, words ? h("p", {}, words) : null);
    this.fill(text);
    this.editor.area.focus();
  }

  // Saving

  send(parameters, { signal, tag = "" } = {}) {
    const headers = { "Content-Type": "text/plain; charset=utf-8", ...(tag && { "If-Match": tag }) };
    const method = this.isOwn ? "PUT" : "POST";
    return exchange(this.path, parameters, { method, headers, signal, body: this.editor.value });
  }

  async save() {
    if (this.isBusy) return;
    this.pause();
    this.isBusy = true;
    this.saver.setAttribute("aria-busy", "true");
    const [{ opened, place }, sent] = [this, this.editor.value];
    try {
      const { text, tag } = await this.send({}, { tag: this.tag });
      kept.dropDraft(place);
      const made = JSON.parse(text);
      const words = `The ${this.kind.noun} ${made.name} is saved.`;
      if (opened !== this.opened) return tell(words);
      // What was typed during the request is a change of the version that was just saved.
      Object.assign(this, { base: sent, baseTag: tag, tag });
      this.settle();
      await this.taken(made, words);
    } catch (problem) {
      if (opened === this.opened) await this.refused(problem);
    } finally {
      this.isBusy = false;
      this.saver.removeAttribute("aria-busy");
    }
  }

  /** Show the saved definition; go to its new address if it was renamed. */
  taken(made, words) {
    tell(words);
    if (!this.opened) return undefined;
    this.onSaved();
    if (!this.isOwn || made.name !== this.name)
      return address.go(this.kind.page, { [this.kind.noun]: made.name, edit: "1" });
    put(this.notice);
    address.change({});
    return this.open();
  }

  async refused(problem) {
    if (problem.status === 404 && this.isOwn) return this.offerNew();
    if (problem.code !== CHANGED_MEANWHILE) return this.fail(problem);
    try {
      return this.showTheirs(await this.served());
    } catch (other) {
      return this.fail(other);
    }
  }

  /** Show the version that somebody else has saved meanwhile; the reader overwrites it or takes it. */
  showTheirs(theirs) {
    const mine = new Set(this.editor.value.split("\n"));
    const lines = theirs.text.split("\n").map((one) => h("span", { class: mine.has(one) ? "" : "other" }, `${one}\n`));
    const over = () => {
      this.tag = theirs.tag;
      this.save();
    };
    const instead = () => {
      Object.assign(this, { base: theirs.text, baseTag: theirs.tag });
      this.discard();
    };
    put(
      this.notice,
      h("p", {}, h("strong", {}, "Somebody else has changed it meanwhile."), " What you typed is still here."),
      h(
        "details",
        {},
        h("summary", {}, "Look at theirs"),
        h("pre", { tabindex: "0", role: "region", "aria-label": "Their text" }, lines),
      ),
      choices([["Save mine over it", over], ["Take theirs", instead]]),
    );
  }

  offerNew() {
    const again = () => {
      Object.assign(this, { isOwn: false, path: this.kind.path, tag: "" });
      this.save();
    };
    this.say(`${this.name} has been deleted meanwhile. What you typed is still here.`, ["Save it again", again]);
  }

  discard() {
    this.tag = this.baseTag;
    this.take(this.base, "");
  }

  confirmDelete() {
    const { name, kind } = this;
    const rest = kind === texts.STREAM ? "Its events stay; a stream that ships has its own settings again. " : "";
    const keep = () => this.take(this.editor.value, "");
    const words = `Delete ${name}? ${rest}Its versions can be restored.`;
    this.say(words, [`Delete ${name}`, () => this.delete()], ["Keep it", keep]);
    this.notice.querySelector("button").focus();
  }

  async delete() {
    this.pause();
    try {
      await exchange(this.path, {}, { method: "DELETE", headers: { "If-Match": this.tag } });
    } catch (problem) {
      return this.refused(problem);
    }
    kept.dropDraft(this.place);
    tell(`The ${this.kind.noun} ${this.name} is deleted.`);
    this.onSaved();
    address.go(this.kind.page, {});
    return document.getElementById("content").focus();
  }
}

function choices(offered) {
  const buttons = offered.map(([words, onclick]) => h("button", { type: "button", class: "button", onclick }, words));
  return h("div", { class: "joined-apart" }, buttons);
}

function problemLine({ message, hint }) {
  return h("p", { class: "problem" }, h("strong", {}, message), " ", hint ?? "");
}
