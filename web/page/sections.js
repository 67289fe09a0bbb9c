// The sections of an object's page: each is drawn again only when what it shows changed.

import { address, addressOf, ago, compare, grace, h, isMoody, moodOf, moodly } from "./core.js";
import { t } from "./text.js";

export class Sections {
  #body;
  #follow;
  #all = [];
  #timers = [];

  /** follow(query, changed) opens a Feed that ends with the page. */
  constructor(body, follow) {
    this.#body = body;
    this.#follow = follow;
    body.replaceChildren();
  }

  /** add is for what the object says: build(obj, row) returns an element, or null for nothing to show. */
  add(title, build, signature) {
    this.#all.push({ box: this.#box(title), build, signature, drawn: undefined });
  }

  /** live is for other objects: build(feed) returns an element, or null. */
  live(title, query, build) {
    const box = this.#box(title);
    return this.#follow(query, (feed) => fill(box, build(feed)));
  }

  /** poll calls ask at once and then every few seconds while the tab is visible; it fills the section. It returns a function that asks now. */
  poll(title, seconds, ask) {
    const box = this.#box(title);
    const turn = async () => {
      if (!document.hidden) fill(box, await ask().catch((err) => h("p", { class: "error" }, err.message)));
    };
    turn();
    this.#timers.push(setInterval(turn, seconds * 1000));
    return turn;
  }

  draw(obj, row) {
    for (const section of this.#all) {
      const is = JSON.stringify(section.signature(obj, row)) ?? "";
      if (section.drawn === is) continue;
      section.drawn = is;
      fill(section.box, section.build(obj, row));
    }
  }

  close() {
    this.#timers.forEach(clearInterval);
  }

  #box(title) {
    const box = h("section", { hidden: true, "aria-label": title, "data-section": title }, h("h3", {}, title));
    this.#body.append(box);
    return box;
  }
}

/** fill replaces what a section shows; the focus stays on the control of the same name, and what is open below the same label stays open. */
function fill(box, content) {
  const focused = box.contains(document.activeElement) ? document.activeElement.textContent : null;
  const label = (details) => details.closest("[aria-label]").getAttribute("aria-label"), opened = [...box.querySelectorAll("details[open]")].map(label);
  while (box.childNodes.length > 1) box.lastChild.remove();
  box.hidden = !content;
  if (content) box.append(content);
  for (const details of box.querySelectorAll("details")) details.open ||= opened.includes(label(details));
  if (focused) [...box.querySelectorAll("a, button")].find((n) => n.textContent === focused)?.focus({ preventScroll: true });
}

/** A list of terms with their values; empty ones are left out. */
export const facts = (list) => h("dl", { class: "facts" }, list.filter(([, v]) => v !== "" && v !== null && v !== undefined)
  .map(([term, v]) => h("div", {}, h("dt", {}, term), h("dd", {}, v))));

/** A link to an object, or its name if the server has no such kind. */
export const link = (kind, namespace, name, text = name) => (kind && name ? h("a", { class: "name", href: address(kind, namespace, name) }, text) : h("span", { class: "name" }, text ?? ""));

/** table has a row for each list of cells; the first cell names the row. Without rows it is null. */
export const table = (heads, rows) => (rows.length ? h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, heads.map((title) => h("th", { scope: "col" }, title)))),
  h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((c, i) => (i ? h("td", { class: "long", "data-label": heads[i] }, c) : h("th", { scope: "row" }, c))))))) : null);

/**
 * The rows of a feed as a small table. only(row): which; newest: the newest first; skip:
 * columns left out; wide: all columns; more: the query of the list with all of them;
 * most: how many rows.
 */
export function miniTable(kind, feed, { only, newest, skip = [], wide, more, most = 50 } = {}) {
  const rows = feed.items.filter(only ?? (() => true));
  if (feed.state !== "live" || !rows.length) return null;
  const columns = feed.columns.map((c, i) => ({ ...c, i })).filter((c) => (wide || !c.priority) && !skip.includes(c.name));
  const since = (row) => Math.max(...row.since.filter((ms) => ms !== undefined), 0);
  rows.sort((a, b) => (newest ? compare(since(b), since(a)) || compare(Number(b.obj.metadata.resourceVersion), Number(a.obj.metadata.resourceVersion)) : 0) || compare(a.obj.metadata.name, b.obj.metadata.name));
  const cell = (c, row) => {
    const { namespace, name, deletionTimestamp } = row.obj.metadata, value = String(row.cells[c.i] ?? "");
    const props = { "data-label": c.name, class: `c-${c.name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}` };
    if (c.format === "name" || c.name === "Name") return h("th", { ...props, scope: "row" }, h("a", { href: address(kind, namespace, name) }, name));
    if (row.since[c.i] !== undefined) return h("td", props, ago(row.since[c.i]));
    if (isMoody(kind, c.name)) return h("td", props, grace(row.obj.metadata) && deletionTimestamp ? moodly("ending", "Terminating") : moodly(moodOf(value), value));
    const about = kind.name === "events" && c.name === "Object" && addressOf(value, namespace);
    return h("td", props, about ? h("a", { href: about }, value) : value);
  };
  return h("div", {}, h("table", { class: "rows static" },
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col" }, c.name)))),
    h("tbody", {}, rows.slice(0, most).map((row) => h("tr", {}, columns.map((c) => cell(c, row)))))),
  rows.length > most ? h("p", { class: "hint" }, t`${rows.length - most} more.`, " ", more ? h("a", { href: address(kind, "", "", "", more) }, t`Show all`) : "") : null);
}
