// A Collection as rows. Only changes are drawn, all of them in one frame. Of many
// rows only those near the visible area are in the document, with gaps instead of the
// others; of few rows each object keeps its row until it is deleted.

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

// More rows than this are not all in the document.
const MOST_ROWS = 80;
// How many additional rows are drawn above and below the visible area.
const MARGIN = 12;
// The height of a row before the first measurement, in pixels.
const ROW_HEIGHT = 38;

const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export class Table {
  #collection;
  #options;
  #rows = new Map(); // by UID
  #dirty = new Set();
  #sorted = null; // all items in their order; null: not sorted yet
  #found = null; // those that match the filter; null: not filtered yet
  #texts = new WeakMap(); // the text for the filter, by item
  #height = { mean: 0, least: 0, width: 0 }; // of rows, in pixels, at the window's width
  #gaps = [];
  #query = { namespace: "", words: [] };
  #shown = Infinity;
  #section;
  draw = framed(() => this.#draw());

  /**
   * section contains tbody, .count, .empty and optionally .more. options:
   *   row(item) -> { root, update(item), tick?(item, now) }
   *   order(a, b) of items
   *   text(item): the text for the filter
   *   page: the initial number of rows; all of them if absent
   */
  constructor(section, collection, options) {
    this.#section = section;
    this.#collection = collection;
    this.#options = options;
    this.#shown = options.page ?? Infinity;
    collection.listen((uid) => {
      if (uid !== undefined) this.#dirty.add(uid);
      this.#sorted = this.#found = null;
      this.draw();
    });
    for (const moved of ["scroll", "resize"]) {
      addEventListener(moved, () => this.#found?.length > MOST_ROWS && this.draw(), { passive: true });
    }
    section.querySelector(".more")?.addEventListener("click", () => {
      this.#shown += options.page;
      this.draw();
    });
  }

  filter(namespace, text) {
    this.#query = { namespace, words: text.toLowerCase().split(/\s+/).filter(Boolean) };
    this.#shown = this.#options.page ?? Infinity;
    this.#found = null;
    this.draw();
  }

  /** renew draws every row again, because permissions have changed. */
  renew() {
    for (const uid of this.#rows.keys()) this.#dirty.add(uid);
    this.draw();
  }

  /** tick updates what depends only on the time. */
  tick(at) {
    for (const row of this.#rows.values()) row.tick?.(row.item, at);
  }

  #matches(item) {
    const { namespace, words } = this.#query;
    if (namespace && item.obj.metadata.namespace !== namespace) return false;
    if (words.length === 0) return true;
    let text = this.#texts.get(item);
    if (text === undefined) this.#texts.set(item, text = this.#options.text(item).toLowerCase());
    return words.every((w) => text.includes(w));
  }

  #draw() {
    this.#sorted ??= [...this.#collection.items.values()].sort(this.#options.order);
    this.#found ??= this.#sorted.filter((it) => this.#matches(it));
    const all = this.#found.slice(0, this.#shown), body = this.#section.querySelector("tbody");
    const places = this.#places(all, body);
    this.#prune(new Set(places.map((i) => all[i].obj.metadata.uid)));
    const many = all.length > MOST_ROWS;
    let cursor = body.firstElementChild, next = 0, gaps = 0;
    const put = (node) => {
      if (node === cursor) cursor = cursor.nextElementSibling;
      else body.insertBefore(node, cursor);
    };
    const skipTo = (place) => {
      if (place > next) put(this.#gap(gaps++, (place - next) * this.#height.mean));
    };
    for (const place of places) {
      skipTo(place);
      const { root } = this.#row(all[place]);
      if (many) root.setAttribute("aria-rowindex", place + 2);
      else root.removeAttribute("aria-rowindex");
      put(root);
      next = place + 1;
    }
    skipTo(all.length);
    for (const gap of this.#gaps.splice(gaps)) gap.remove();
    if (many) body.parentElement.setAttribute("aria-rowcount", all.length + 1);
    else body.parentElement.removeAttribute("aria-rowcount");
    this.#dirty.clear();
    this.#sum(this.#found.length, all.length);
    if (many) this.#measure();
  }

  /** places are the indexes of all rows in the document, ascending. */
  #places(all, body) {
    if (all.length <= MOST_ROWS) return all.map((_, i) => i);
    const { mean, least } = this.#height.mean ? this.#height : { mean: ROW_HEIGHT, least: ROW_HEIGHT };
    this.#height.mean = mean;
    const above = Math.max(0, -body.getBoundingClientRect().top);
    const first = Math.min(Math.floor(above / mean) - MARGIN, all.length - 1);
    const last = first + Math.ceil(innerHeight / (least || mean)) + 2 * MARGIN;
    const places = new Set();
    for (let i = Math.max(0, first); i <= Math.min(last, all.length - 1); i++) places.add(i);
    // The row with the focus stays where it is, also out of sight.
    const focused = [...this.#rows].find(([, row]) => row.root.contains(document.activeElement))?.[0];
    const place = focused ? all.findIndex((it) => it.obj.metadata.uid === focused) : -1;
    if (place >= 0) places.add(place);
    return [...places].sort((a, b) => a - b);
  }

  /** gap is the n-th row that replaces others. */
  #gap(n, height) {
    if (!this.#gaps[n]) {
      const gap = document.createElement("tr");
      gap.className = "gap";
      gap.setAttribute("aria-hidden", "true");
      gap.append(document.createElement("td"));
      this.#gaps[n] = gap;
    }
    const pixels = `${Math.round(height)}px`;
    if (this.#gaps[n].style.height !== pixels) this.#gaps[n].style.height = pixels;
    return this.#gaps[n];
  }

  /** measure measures the height of rows, once for each width of the window, so that the gaps do not move. */
  #measure() {
    if (this.#height.width === innerWidth) return;
    const heights = [...this.#rows.values()].map((row) => row.root.getBoundingClientRect().height).filter((h) => h > 0);
    if (heights.length === 0) return;
    const mean = heights.reduce((a, b) => a + b) / heights.length;
    this.#height = { mean, least: Math.min(...heights), width: innerWidth };
    this.draw();
  }

  /** row returns the item's row, created or updated. */
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
      if (row.root.contains(document.activeElement)) this.#section.querySelector("h2").focus({ preventScroll: true });
      row.root.remove();
      this.#rows.delete(uid);
    }
  }

  #sum(found, visible) {
    const { items: { size: total }, loaded, denied, namespace } = this.#collection;
    const count = found === total ? `${total}` : `${found} of ${total}`;
    write(this.#section.querySelector(".count"), !loaded || denied ? "" : namespace ? `${count} in ${namespace}` : count);
    const empty = this.#section.querySelector(".empty");
    empty.hidden = found > 0;
    if (found === 0) write(empty, !loaded ? "Loading…" : denied ? empty.dataset.denied : total > 0 ? "Nothing matches the filter." : empty.dataset.none);
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
  node.title = MOMENT.format(moment);
}
