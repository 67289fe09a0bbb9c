// A Collection as rows. Each object keeps its row for as long as it lives; only
// what changed is drawn, all of it in one frame.

import { framed } from "./collection.js";
import { now } from "./api.js";

/** Writes text where it differs; never markup. */
export function write(node, text) {
  text = String(text);
  if (node.textContent !== text) node.textContent = text;
}

/** The parts of a cloned template by their data-part. */
export function clone(id) {
  const root = document.getElementById(id).content.firstElementChild.cloneNode(true);
  const parts = {};
  for (const part of root.querySelectorAll("[data-part]")) parts[part.dataset.part] = part;
  return { root, parts };
}

export class Table {
  #collection;
  #options;
  #rows = new Map(); // by UID
  #dirty = new Set();
  #query = { namespace: "", words: [] };
  #shown = Infinity;
  #section;
  draw = framed(() => this.#draw());

  /**
   * section holds tbody, .count, .empty and maybe .more. options:
   *   row(item) -> { root, update(item), tick?(item, now) }
   *   order(a, b) of items
   *   text(item): what the text filter looks at
   *   page: how many rows at first; all of them when absent
   */
  constructor(section, collection, options) {
    this.#section = section;
    this.#collection = collection;
    this.#options = options;
    this.#shown = options.page ?? Infinity;
    collection.listen((uid) => {
      if (uid !== undefined) this.#dirty.add(uid);
      this.draw();
    });
    section.querySelector(".more")?.addEventListener("click", () => {
      this.#shown += options.page;
      this.draw();
    });
  }

  filter(namespace, text) {
    this.#query = { namespace, words: text.toLowerCase().split(/\s+/).filter(Boolean) };
    this.#shown = this.#options.page ?? Infinity;
    this.draw();
  }

  /** tick moves what depends on the time alone. */
  tick(at) {
    for (const row of this.#rows.values()) row.tick?.(row.item, at);
  }

  #matches(item) {
    const { namespace, words } = this.#query;
    if (namespace && item.obj.metadata.namespace !== namespace) return false;
    if (words.length === 0) return true;
    const text = this.#options.text(item).toLowerCase();
    return words.every((w) => text.includes(w));
  }

  #draw() {
    const found = [...this.#collection.items.values()].filter((it) => this.#matches(it)).sort(this.#options.order);
    const visible = found.slice(0, this.#shown);
    this.#prune(new Set(visible.map((it) => it.obj.metadata.uid)));
    const body = this.#section.querySelector("tbody");
    let cursor = body.firstElementChild;
    for (const item of visible) {
      const { root } = this.#row(item);
      if (root === cursor) cursor = cursor.nextElementSibling;
      else body.insertBefore(root, cursor);
    }
    this.#dirty.clear();
    this.#sum(found.length, visible.length);
  }

  /** row is the item's row, made or brought up to date. */
  #row(item) {
    const uid = item.obj.metadata.uid;
    let row = this.#rows.get(uid);
    if (row && !this.#dirty.has(uid)) return row;
    if (!row) {
      row = this.#options.row(item);
      this.#rows.set(uid, row);
    }
    row.item = item;
    row.update(item);
    row.tick?.(item, now());
    return row;
  }

  #prune(keep) {
    for (const [uid, row] of this.#rows) {
      if (keep.has(uid)) continue;
      if (row.root.contains(document.activeElement)) this.#section.querySelector("h2").focus();
      row.root.remove();
      this.#rows.delete(uid);
    }
  }

  #sum(found, visible) {
    const total = this.#collection.items.size, { loaded } = this.#collection;
    write(this.#section.querySelector(".count"), !loaded ? "" : found === total ? total : `${found} of ${total}`);
    const empty = this.#section.querySelector(".empty");
    empty.hidden = found > 0;
    if (found === 0) write(empty, !loaded ? "Loading…" : total > 0 ? "Nothing matches the filter." : empty.dataset.none);
    const more = this.#section.querySelector(".more");
    if (more) more.hidden = visible === found;
    if (more && !more.hidden) write(more, `Show more (${found - visible} older)`);
  }
}

/** By namespace, then name. */
export function byName(a, b) {
  const x = a.obj.metadata, y = b.obj.metadata;
  return compare(x.namespace ?? "", y.namespace ?? "") || compare(x.name, y.name);
}

export const compare = (x, y) => (x < y ? -1 : x > y ? 1 : 0);

/** Puts a time into a <time>: its age, and the moment itself on hover. */
export function setMoment(node, ms) {
  if (Number.isNaN(ms)) return;
  const moment = new Date(ms);
  node.dateTime = moment.toISOString();
  node.title = moment.toLocaleString();
}
