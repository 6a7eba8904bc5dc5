/** The Streams page: rates and sizes of streams, the fields of their events, and quarantined events. */

import * as address from "./address.js";
import { read, readIfAllowed } from "./api.js";
import { placeOfStream } from "./choices.js";
import { DefinitionEditor } from "./definition-editor.js";
import { STREAM } from "./definition-texts.js";
import { mayManage } from "./described.js";
import { h, put } from "./dom.js";
import { ago, bytes, compact, count, perSecond, time } from "./format.js";
import { tell } from "./overlays.js";
import { privateOnly } from "./private-only.js";
import { fieldShares } from "./shares.js";

const AGAIN_MS = 5000;

export class StreamsPage {
  constructor() {
    this.rows = h("div", {});
    const place = address.hashOf("streams", { edit: "new" });
    this.maker = h("p", { class: "pad", hidden: true }, h("a", { class: "button small", href: place }, "New stream"));
    this.list = h("section", { class: "card", "aria-label": "Streams" }, this.maker, this.rows);
    this.editing = new DefinitionEditor(STREAM, () => (this.chosen = null));
    this.editor = h("section", { class: "card detail-card whole", hidden: true }, this.editing.element);
    this.detail = h("section", { class: "card detail-card", "aria-label": "Stream" });
    this.element = h(
      "div",
      { class: "page streams" },
      h("h1", { class: "off-screen" }, "Streams"),
      this.editor,
      this.list,
      this.detail,
    );
  }

  async update(values) {
    clearTimeout(this.timer);
    const [isManager, sources, status, setAside] = await Promise.all([
      mayManage(),
      readIfAllowed("/api/sources"),
      readIfAllowed("/api/status"),
      readIfAllowed("/api/quarantine", { limit: 1000 }),
    ]);
    if (!sources || !status) return put(this.element, privateOnly("Streams are shown"));
    const wanted = values.stream ?? this.chosen;
    const chosen = sources.find((one) => one.name === wanted) ?? busiest(sources);
    put(this.rows, table(sources, status.streams, setAside ?? [], chosen));
    this.maker.hidden = !isManager;
    this.editor.hidden = !isManager || !values.edit;
    if (isManager) this.editing.show(values.edit, values.edit === "new" ? "" : (chosen?.name ?? ""));
    if (chosen && this.chosen !== chosen.name) await this.show(chosen, setAside ?? [], isManager);
    this.later(values);
    return undefined;
  }

  /** Schedule the next update. It is skipped while the tab is hidden, and repeated if it fails. */
  later(values) {
    const again = () => (document.hidden ? this.later(values) : this.update(values).catch(() => this.later(values)));
    clearTimeout(this.timer);
    if (!this.isLeft) this.timer = setTimeout(again, AGAIN_MS);
  }

  enter() {
    this.isLeft = false;
  }

  leave() {
    this.isLeft = true;
    this.chosen = null;
    this.editing.leave();
    clearTimeout(this.timer);
  }

  async show(stream, setAside, isManager) {
    this.chosen = stream.name;
    const place = `/api/sources/${encodeURIComponent(stream.name)}`;
    const [kinds, events] = await Promise.all([
      read(`${place}/schema`, { variant: "dot" }),
      readIfAllowed(`${place}/recent`).catch(() => null),
    ]);
    if (this.chosen !== stream.name) return;
    const own = setAside.filter((one) => one.stream === stream.name);
    put(
      this.detail,
      h(
        "div",
        { class: "bar-line" },
        h("h2", {}, stream.name),
        h("a", { class: "button small", href: placeOfStream(stream) }, "Show its events"),
        isManager ? editButton(stream) : null,
      ),
      shape(kinds, events ?? []),
      quarantine(own, () => this.again()),
    );
  }

  /** Read everything again. */
  async again() {
    const { chosen } = this;
    this.chosen = null;
    await this.update({ stream: chosen, ...address.current().values });
  }
}

/** Return a button that edits the stream, or one that copies it if it cannot be edited here. */
function editButton({ name, origin }) {
  const [words, edit] = origin === "file" ? ["Copy as new", "copy"] : ["Edit", "1"];
  const open = () => address.go("streams", { stream: name, edit });
  const button = h("button", { type: "button", class: "button small", "data-focus": "edit", onclick: open }, words);
  return [button, origin === "file" ? h("span", { class: "faint" }, "It is in a file of the operator.") : null];
}

function busiest(sources) {
  return [...sources].sort((one, two) => (two.newest ?? 0) - (one.newest ?? 0))[0];
}

function table(sources, facts, setAside, chosen) {
  const names = ["Stream", "Events", "Now", "Newest", "Size", "Kept for", "Set aside"];
  const head = h(
    "tr",
    {},
    names.map((name, place) => h("th", { scope: "col", class: place && place !== 3 ? "is-count" : "" }, name)),
  );
  const rows = sources.map((one) =>
    row(one, facts[one.name] ?? {}, setAside.filter((item) => item.stream === one.name).length, one === chosen),
  );
  return h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Streams" },
    h(
      "table",
      { class: "roomy" },
      h("caption", { class: "off-screen" }, "Streams"),
      h("thead", {}, head),
      h("tbody", {}, rows),
    ),
  );
}

function row(one, facts, away, isChosen) {
  const number = (label, text, extra = "") => h("td", { class: `is-count ${extra}`, "data-label": label }, text);
  const link = h(
    "a",
    { href: address.hashOf("streams", { stream: one.name }), "aria-current": isChosen ? "true" : null },
    one.name,
  );
  return h(
    "tr",
    { class: isChosen ? "is-chosen" : "" },
    h("td", { "data-label": "Stream" }, link),
    number("Events", count(one.events)),
    number("Now", perSecond(facts.events_per_second ?? 0), facts.events_per_second ? "is-moving" : "faint"),
    h(
      "td",
      { "data-label": "Newest", title: Number.isFinite(one.newest) ? time(one.newest) : "" },
      Number.isFinite(one.newest) ? ago(one.newest) : "nothing yet",
    ),
    number("Size", facts.bytes ? bytes(facts.bytes) : "–"),
    number("Kept for", one.retention_days ? `${compact(one.retention_days)} days` : "ever"),
    number("Set away", away ? String(away) : "–", away ? "is-warning" : "faint"),
  );
}

function shape(kinds, events) {
  const shares = fieldShares(events);
  const paths = Object.entries(kinds);
  if (!paths.length) return h("p", { class: "empty" }, "No event was seen yet.");
  const told = events.length
    ? `How common each field is, in the newest ${events.length} events.`
    : "The fields that events were seen to have.";
  const rows = paths.map(([path, kind]) => ({ path, kind, share: events.length ? (shares.get(path) ?? 0) : null }));
  return h(
    "div",
    {},
    h("p", { class: "about" }, told),
    h(
      "div",
      { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Fields" },
      h(
        "table",
        { class: "shape" },
        h("caption", { class: "off-screen" }, "Fields"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Field", "Kind", "In"].map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h("tbody", {}, rows.map(shapeRow)),
      ),
    ),
  );
}

function shapeRow({ path, kind, share }) {
  const at = path.lastIndexOf(".") + 1;
  const bar =
    share === null
      ? "–"
      : h(
          "span",
          { class: "share" },
          h("span", { class: "share-bar", style: { "--share": share } }),
          `${Math.round(share * 100)} %`,
        );
  return h(
    "tr",
    {},
    h("td", { "data-label": "Field" }, h("span", { class: "faint" }, path.slice(0, at)), path.slice(at)),
    h("td", { class: "faint", "data-label": "Kind" }, kind.replaceAll("|", " or ")),
    h("td", { "data-label": "In" }, bar),
  );
}

function quarantine(items, again) {
  if (!items.length) return h("p", { class: "about" }, "Nothing of this stream was set aside.");
  return h(
    "div",
    { class: "quarantine" },
    h("h3", {}, `Set aside: ${count(items.length)}`),
    h(
      "ul",
      { class: "plain-list" },
      items.slice(0, 50).map((item) => aside(item, again)),
    ),
  );
}

function aside(item, again) {
  const replay = async () => {
    const told = await read(`/api/quarantine/${item.id}/replay`, {}, { method: "POST" }).catch((problem) => ({
      message: problem.message,
    }));
    tell(told.message);
    again();
  };
  return h(
    "li",
    { class: "aside" },
    h("div", {}, h("strong", {}, item.reason), " ", h("span", { class: "faint" }, item.timestamp)),
    h("pre", {}, item.beginning),
    item.replayed_at
      ? h("span", { class: "faint" }, `Replayed at ${item.replayed_at}.`)
      : h("button", { type: "button", class: "button small", onclick: replay }, "Replay"),
  );
}
