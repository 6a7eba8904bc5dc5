/** The interactive part of an operation: its code in the chosen language, and a form that sends the request. */

import { answerInto } from "./docs-answer.js";
import { LANGUAGES } from "./docs-code.js";
import { requestOf } from "./docs-request.js";
import { h, newId, option, put } from "./dom.js";
import { key } from "./key.js";
import { tell } from "./overlays.js";
import { copy } from "./save.js";

const calls = new Set();
/** The chosen language applies to all operations of the page. */
let language = "curl";

/** The interactive part of an operation, which replaces the static command of the page. */
export class Call {
  constructor(place, operation) {
    this.operation = operation;
    this.values = new Map(operation.fields.map((field) => [field.id, field.value]));
    this.values.set("body", operation.body).set("type", operation.bodyTypes[0] ?? "");
    this.code = h("code", {});
    this.languages = Object.keys(LANGUAGES).map((name) =>
      h("button", { type: "button", onclick: () => choose(name) }, name),
    );
    this.form = h("div", { class: "call-try", hidden: true });
    this.opener = h("button", { type: "button", class: "button", "aria-expanded": "false" }, "Try it");
    this.opener.addEventListener("click", () => this.toggle());
    const copied = () => copy(this.code.textContent).then(() => tell("The code is in the clipboard."));
    put(
      place,
      h(
        "div",
        { class: "call-bar" },
        h("h4", {}, "Code"),
        h("div", { class: "segments", role: "group", "aria-label": "Language" }, this.languages),
        h("button", { type: "button", class: "button small", onclick: copied }, "Copy"),
        this.opener,
      ),
      h("pre", {}, this.code),
      this.form,
    );
    calls.add(this);
    this.write();
  }

  write() {
    for (const button of this.languages) button.setAttribute("aria-pressed", String(button.textContent === language));
    this.code.textContent = LANGUAGES[language](requestOf(this.operation, this.values));
  }

  /** Show or hide the form, which is created on first use. */
  toggle() {
    if (!this.form.firstChild) this.fill();
    this.form.hidden = !this.form.hidden;
    this.opener.setAttribute("aria-expanded", String(!this.form.hidden));
    if (!this.form.hidden) this.form.querySelector("input, select, textarea, button")?.focus();
  }

  fill() {
    this.answer = h("div", { class: "call-answer" });
    this.note = h("p", { class: "problem", role: "alert" });
    this.stop = h("button", { type: "button", class: "button", hidden: true }, "Stop");
    this.stop.addEventListener("click", () => this.running?.abort());
    const send = h("button", { type: "submit", class: "button primary" }, "Send");
    const submit = (event) => {
      event.preventDefault();
      this.submit();
    };
    put(
      this.form,
      h(
        "form",
        { onsubmit: submit },
        h("div", { class: "call-fields" }, this.operation.fields.map((field) => this.field(field)), this.bodyFields()),
        this.note,
        h("div", { class: "call-bar" }, send, this.stop),
      ),
      this.answer,
    );
  }

  field(field) {
    const id = newId("field");
    const given = this.values.get(field.id);
    const attributes = { id, required: field.isRequired, title: field.words || undefined };
    const input = field.choices.length
      ? h("select", attributes, ["", ...field.choices].map((one) => option(one, String(one), String(one) === given)))
      : h("input", { ...attributes, type: "text", value: given, spellcheck: "false", autocomplete: "off" });
    this.follow(input, field.id);
    const needed = field.isRequired && h("span", { class: "needed" }, " *");
    const where = field.place !== "query" && h("span", { class: "faint" }, ` in the ${field.place}`);
    return h("div", { class: "field" }, h("label", { for: id }, field.name, needed, where), input);
  }

  bodyFields() {
    const { bodyTypes } = this.operation;
    if (!bodyTypes.length) return [];
    const [typeId, bodyId] = [newId("field"), newId("field")];
    const types = h("select", { id: typeId }, bodyTypes.map((one) => option(one)));
    const area = h("textarea", { id: bodyId, spellcheck: "false", value: this.values.get("body") });
    this.follow(types, "type");
    this.follow(area, "body");
    return [
      h("div", { class: "field is-wide" }, h("label", { for: bodyId }, "Body"), area),
      h("div", { class: "field" }, h("label", { for: typeId }, "Type of the body"), types),
    ];
  }

  follow(input, id) {
    input.addEventListener("input", () => {
      this.values.set(id, input.value);
      this.write();
    });
  }

  async submit() {
    const needsKey = this.operation.isKeyed && !key();
    this.note.textContent = needsKey ? "This operation needs a key: give one at the top of the page." : "";
    if (needsKey) return undefined;
    const request = requestOf(this.operation, this.values);
    if (this.operation.isDestructive && !(await isConfirmed(this.form, request))) return undefined;
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    this.stop.hidden = false;
    await answerInto(this.answer, request, running.signal);
    if (this.running === running) this.stop.hidden = true;
    return undefined;
  }
}

function choose(name) {
  language = name;
  for (const call of calls) call.write();
}

/** Ask for confirmation before a request that changes or removes something. */
function isConfirmed(place, request) {
  const words = h("p", {}, "This changes what is in force: ", h("code", {}, `${request.method} ${request.address}`));
  const button = (value, label, kind) => h("button", { value, class: `button ${kind}` }, label);
  const buttons = h("div", { class: "call-bar" }, button("no", "Cancel", ""), button("yes", "Send it", "primary"));
  const dialog = h("dialog", { "aria-label": "Send this request?" }, h("form", { method: "dialog" }, words, buttons));
  place.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
