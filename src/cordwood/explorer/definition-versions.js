/** The earlier versions of a definition, which can be viewed and restored. */

import { us } from "./alert-states.js";
import { read } from "./api.js";
import { h, put } from "./dom.js";
import { ago, time } from "./format.js";

export class Versions {
  /** `onShow(text, number)` receives the text of a version, `onRestore(definition, number)` a restored definition. */
  constructor({ onShow, onRestore, onProblem }) {
    Object.assign(this, { onShow, onRestore, onProblem });
    this.list = h("ol", { class: "plain-list" });
    this.element = h(
      "details",
      { class: "about-columns", ontoggle: () => this.refresh() },
      h("summary", {}, "Versions"),
      this.list,
    );
  }

  /** List the versions of the definition at an address of the API, which is empty for a definition not saved yet. */
  of(path) {
    this.path = path;
    this.element.hidden = !path;
    put(this.list);
    return this.refresh();
  }

  /** Read the versions, if their list is open. */
  async refresh() {
    const { path } = this;
    if (!path || !this.element.open) return;
    await this.trying(async () => {
      const versions = await read(`${path}/versions`);
      if (path === this.path) put(this.list, versions.length ? versions.map((one) => this.item(one)) : nothing());
    });
  }

  item({ version, inserted_at: at, key, deleted, current }) {
    const button = (word, work) =>
      h(
        "button",
        { type: "button", class: "button small", "aria-label": `${word} version ${version}`, onclick: work },
        word,
      );
    return h(
      "li",
      { class: "bar-line" },
      h("strong", {}, version),
      h("span", { class: "faint" }, h("span", { title: time(us(at)) }, ago(us(at))), key ? ` with the key ${key}` : ""),
      current ? h("span", {}, "served") : null,
      deleted ? h("span", {}, "deleted") : button("Show", () => this.show(version)),
      deleted || current ? null : button("Restore", () => this.restore(version)),
    );
  }

  show(version) {
    return this.trying(async () => this.onShow((await read(`${this.path}/versions/${version}`)).text, version));
  }

  restore(version) {
    const address = `${this.path}/versions/${version}/restore`;
    return this.trying(async () => this.onRestore(await read(address, {}, { method: "POST" }), version));
  }

  async trying(work) {
    try {
      await work();
    } catch (problem) {
      if (problem.name !== "AbortError") this.onProblem(problem);
    }
  }
}

function nothing() {
  return h("li", { class: "faint" }, "None is kept yet: the first is kept when it is changed.");
}
