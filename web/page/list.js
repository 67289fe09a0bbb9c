// The list of a kind: the server's columns, sorted and filtered here, selected by the
// server where the filter names labels or fields. Of many rows only those near the
// visible area are in the document, with gaps instead of the others.

import { address, addressOf, ago, compare, findKind, getJSON, grace, h, isMoody, load, may, moodOf, moodOfCondition, moodOfReady, moodly, now, plural, quantity, tickAges, undoDuration, write } from "./core.js";
import { Feed, home } from "./live.js";
import { t } from "./text.js";

// More rows than this are not all in the document.
const MOST_ROWS = 80;
// How many additional rows are drawn above and below the visible area.
const MARGIN = 12;
// Milliseconds after a change until the server is asked which rows are not well, of few and of many rows; and between
// two questions without a change, because time alone makes a row worse.
const HEALTH_PAUSE = [500, 4000], HEALTH_AGAIN = 60_000;
// Milliseconds between two questions about CPU and memory, and the most rows for which they are asked.
const USE_AGAIN = 15_000, MOST_USED = 2000;
const USED = ["pods", "nodes"];
// The height of a row before the first measurement, in pixels.
const ROW_HEIGHT = 36;

/** What a filter says: words, and selectors that the server applies: label:app=web field:spec.nodeName=a. */
export function parseFilter(text) {
  const found = { words: [], labels: [], fields: [] };
  for (const word of text.trim().split(/\s+/).filter(Boolean)) {
    const [, prefix, rest] = /^(l|label|f|field):(.*)$/.exec(word) ?? [];
    if (!prefix) found.words.push(word.toLowerCase());
    else if (rest) found[prefix[0] === "l" ? "labels" : "fields"].push(rest);
  }
  return { words: found.words, labels: found.labels.join(","), fields: found.fields.join(",") };
}

/** What a column is called in classes: a status has a mood, a message may be long. */
const slug = (name) => `c-${name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;

export class List {
  #kind;
  #feed;
  #query;
  #sort = { column: -1, down: false };
  #rows = new Map(); // by UID: the row drawn and what it was drawn from
  #gaps = [];
  #sorted = null;
  #found = [];
  #height = { mean: ROW_HEIGHT, least: ROW_HEIGHT, width: 0 };
  #columns = [];
  #wide = false;
  #texts = new WeakMap();
  #cursor = 0;
  #health = {}; // by UID, of rows that are not well: { state, reason }
  #asked = 0; // when
  #timer = 0;
  #use = new Map(); // by namespace/name, of pods and nodes: { cpu, memory, of }
  #measured = 0; // when
  #selected = new Set(); // UIDs
  #parts;
  #end = new AbortController();

  /** Shows the kind's list in main. query: { namespace, filter, wide, sort }. */
  constructor(main, kind, query) {
    this.#kind = kind;
    this.#query = { namespace: query.namespace, ...parseFilter(query.filter) };
    this.#wide = Boolean(query.wide);
    this.#sort = sortOf(query.sort);
    const title = h("h2", { id: "title", tabindex: "-1" }, plural(kind), " ", h("span", { class: "count" }));
    const head = h("tr", { role: "row" }), body = h("tbody", { role: "rowgroup" });
    const table = h("table", { class: "rows", role: "table", "aria-labelledby": "title", hidden: true }, h("thead", { role: "rowgroup" }, head), body);
    const empty = h("p", { class: "empty" }, t`Loading…`), chosen = h("div", { class: "bar chosen", role: "group", "aria-label": t`Selected rows` });
    const more = h("p", { class: "hint", "data-drawn": "" });
    this.#parts = { title, head, body, table, empty, more, chosen };
    main.replaceChildren(title, query.tools ?? "", chosen, table, empty, more);
    this.#open();
    for (const moved of ["scroll", "resize"]) {
      addEventListener(moved, () => this.#found.length > MOST_ROWS && requestAnimationFrame(() => this.#draw()), { passive: true, signal: this.#end.signal });
    }
  }

  close() {
    this.#end.abort();
    this.#feed.close();
    clearTimeout(this.#timer);
  }

  /** filter applies a filter: words at once, selectors by a new request. */
  filter(text) {
    const was = this.#query, is = { namespace: was.namespace, ...parseFilter(text) };
    this.#query = is;
    if (is.labels !== was.labels || is.fields !== was.fields) {
      this.#feed.close();
      this.#open();
    }
    this.#find();
    this.#draw();
  }

  tick() {
    tickAges(this.#parts.body);
    for (const node of this.#parts.body.querySelectorAll("[data-ends]")) write(node, graceText(JSON.parse(node.dataset.ends)));
    if (this.#found.length && now() - this.#asked > HEALTH_AGAIN) this.#askHealth();
    if (this.#found.length && now() - this.#measured > USE_AGAIN) this.#askUse();
  }

  /** The row with the focus, as { kind, obj }, or undefined. */
  get focused() {
    const uid = document.activeElement?.closest?.("tr[data-uid]")?.dataset.uid;
    const row = uid && this.#feed.rows.get(uid);
    return row && { kind: this.#kind, obj: row.obj };
  }

  /** move sets the focus by rows: 1, -1, or to the ends by ±Infinity. */
  move(by) {
    const uid = document.activeElement?.closest?.("tr[data-uid]")?.dataset.uid;
    const at = uid ? this.#found.findIndex((r) => r.uid === uid) : -1;
    this.#cursor = Math.max(0, Math.min(this.#found.length - 1, at < 0 ? (by > 0 && by < Infinity ? 0 : this.#found.length * (by === Infinity)) : at + by));
    const row = this.#found[this.#cursor];
    if (!row) return;
    if (!this.#rows.get(row.uid)?.root.isConnected) {
      const top = this.#parts.body.getBoundingClientRect().top + scrollY;
      scrollTo(0, top + this.#cursor * this.#height.mean - innerHeight / 2);
      this.#draw();
    }
    const link = this.#rows.get(row.uid)?.root.querySelector("a");
    link?.focus({ preventScroll: true });
    link?.closest("tr").scrollIntoView({ block: "nearest" });
  }

  /** select toggles the row with the focus. */
  select() {
    const uid = document.activeElement?.closest?.("tr[data-uid]")?.dataset.uid;
    if (uid && this.#selects()) this.#choose([uid], !this.#selected.has(uid));
  }

  /** selects reports whether the user may do something with several rows. */
  #selects() {
    const where = { namespace: this.#query.namespace };
    return this.#kind.name !== "events" && (may("delete", this.#kind, where) || may("patch", this.#kind, where));
  }

  #choose(uids, on) {
    for (const uid of uids) {
      if (on) this.#selected.add(uid);
      else this.#selected.delete(uid);
    }
    for (const box of this.#parts.table.querySelectorAll("input[data-row]")) box.checked = this.#selected.has(box.dataset.row);
    this.#showChosen();
  }

  async #showChosen() {
    const rows = this.#found.filter((row) => this.#selected.has(row.uid)), { chosen, head } = this.#parts;
    this.#selected = new Set(rows.map((row) => row.uid)); // what is gone or filtered out is not selected
    const all = head.querySelector("input"), text = [...this.#selected].join();
    if (all) [all.checked, all.indeterminate] = [rows.length > 0 && rows.length === this.#found.length, rows.length > 0 && rows.length < this.#found.length];
    if (chosen.dataset.drawn === text) return;
    chosen.dataset.drawn = text;
    const { bulk } = rows.length ? await load("actions.js") : { bulk: () => [] };
    if (chosen.dataset.drawn !== text) return;
    chosen.replaceChildren(...(rows.length ? [h("strong", {}, t`${rows.length} selected`), ...bulk(this.#kind, rows.map((row) => row.obj)),
      h("button", { type: "button", class: "quiet", onclick: () => this.#choose([...this.#selected], false) }, t`Select none`)] : []));
  }

  #open() {
    const { namespace, labels, fields } = this.#query;
    this.#feed = new Feed({ kind: this.#kind, namespace, labels, fields }, () => {
      this.#sorted = null;
      this.#find();
      this.#draw();
      this.#timer ||= setTimeout(() => this.#askHealth(), HEALTH_PAUSE[Number(this.#found.length > 1000)]);
    });
    this.#sorted = null;
    this.#clear();
  }

  /** askHealth asks the server which rows are not well, and draws those again whose answer has changed. */
  async #askHealth() {
    const { namespace } = this.#feed, { name, group, subresources } = this.#kind, was = this.#health;
    clearTimeout(this.#timer);
    [this.#timer, this.#asked] = [0, now()];
    if (!subresources.includes("status") || document.hidden) return;
    const query = new URLSearchParams({ kind: `${name}${group ? `.${group}` : ""}`, namespace });
    const is = await getJSON(`/monopod/health?${query}`, { signal: this.#end.signal }).catch(() => null);
    if (!is || this.#end.signal.aborted) return;
    this.#health = is;
    this.#again((uid) => was[uid]?.state !== is[uid]?.state || was[uid]?.reason !== is[uid]?.reason);
  }

  /** askUse asks what pods or nodes use. */
  async #askUse() {
    this.#measured = now();
    if (!USED.includes(this.#kind.name) || document.hidden || this.#feed.rows.size > MOST_USED) return;
    const { amounts } = await load("use.js");
    const use = await amounts(this.#kind, this.#feed.namespace, this.#feed.rows.size).catch(() => null);
    if (!use || this.#end.signal.aborted) return;
    this.#use = use;
    this.#again(() => true);
  }

  /** again sorts and draws the rows once more, because what is added to them has changed. */
  #again(changed) {
    for (const [uid, drawn] of this.#rows) {
      if (changed(uid)) drawn.row = null;
    }
    if (this.#added().some((c) => c.name === this.#sort.column)) this.#sorted = null;
    this.#find();
    this.#draw();
  }

  /** added are the columns that the server's table does not have: { text(row), key(row), title(row) }; a title may be missing. */
  #added() {
    const columns = [], used = (row) => this.#use.get(`${row.obj.metadata.namespace ?? ""}/${row.obj.metadata.name}`);
    const use = (name, description, resource) => ({ name, description, text: (row) => used(row)?.[resource].text ?? "",
      key: (row) => used(row)?.[resource].n ?? -1, title: (row) => used(row)?.[resource].of });
    if (this.#use.size) columns.push(use("CPU", t`CPU in use`, "cpu"), use("Memory", t`Memory in use`, "memory"));
    if (Object.keys(this.#health).length) {
      const reason = (row) => this.#health[row.uid]?.reason ?? "";
      columns.push({ name: "Reason", description: t`Why it is not well`, text: reason, key: (row) => reason(row) || "~" });
    }
    return columns;
  }

  #clear() {
    for (const { root } of this.#rows.values()) root.remove();
    this.#rows.clear();
  }

  // --- columns ---

  #head() {
    const all = this.#feed.columns.map((c, i) => ({ ...c, i })).filter((c) => this.#wide || !c.priority);
    all.push(...this.#added());
    const columns = this.#kind.namespaced && !this.#feed.namespace
      ? [...all, { name: "Namespace", i: -1, priority: 0 }] : all;
    if (columns.map((c) => c.name).join() === this.#columns.map((c) => c.name).join()) return;
    this.#columns = columns;
    const boxes = this.#selects() ? [h("th", { scope: "col", role: "columnheader", class: "box" }, h("input", { type: "checkbox", "aria-label": t`Select all`,
      onchange: (ev) => this.#choose(this.#found.map((row) => row.uid), ev.target.checked) }))] : [];
    this.#parts.head.replaceChildren(...boxes, ...columns.map((c) => this.#headCell(c)));
    this.#clear();
    this.#showSort();
  }

  #headCell(c) {
    const sort = () => {
      const same = this.#sort.column === c.name;
      this.#sort = { column: c.name, down: same && !this.#sort.down };
      this.#sorted = null;
      this.#find();
      this.#showSort();
      this.#draw();
      dispatchEvent(new CustomEvent("sorted", { detail: `${c.name}${this.#sort.down ? ",down" : ""}` }));
    };
    return h("th", { scope: "col", role: "columnheader", class: slug(c.name), "data-column": c.name },
      h("button", { type: "button", onclick: sort, title: c.description ?? "" }, c.name));
  }

  #showSort() {
    for (const th of this.#parts.head.children) {
      if (th.dataset.column === this.#sort.column) th.setAttribute("aria-sort", this.#sort.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
  }

  // --- order and filter ---

  #find() {
    this.#sorted ??= this.#feed.items.sort(this.#order());
    const { words } = this.#query;
    this.#found = words.length === 0 ? this.#sorted : this.#sorted.filter((row) => {
      const text = this.#text(row) + (this.#health[row.uid]?.reason ?? "").toLowerCase();
      return words.every((w) => text.includes(w));
    });
  }

  #text(row) {
    let text = this.#texts.get(row);
    if (text === undefined) {
      const labels = Object.entries(row.obj.metadata.labels ?? {}).map(([k, v]) => `${k}=${v}`);
      text = [row.obj.metadata.namespace ?? "", ...row.cells, ...labels, ""].join(" ").toLowerCase();
      this.#texts.set(row, text);
    }
    return text;
  }

  #order() {
    const at = this.#feed.columns.findIndex((c) => c.name === this.#sort.column), sign = this.#sort.down ? -1 : 1;
    if (this.#sort.column === "Namespace" && at < 0) return (a, b) => sign * byName(a, b);
    const added = this.#added().find((c) => c.name === this.#sort.column);
    if (at < 0 && added) return (a, b) => sign * compareKeys(added.key(a), added.key(b)) || byName(a, b);
    // Events come newest first: their names say nothing.
    if (at < 0 && this.#kind.name === "events") return (a, b) => compare(b.since[0] ?? 0, a.since[0] ?? 0) || byName(b, a);
    if (at < 0) return byName;
    const keys = new Map(this.#feed.items.map((row) => [row, sortKey(row, at)]));
    return (a, b) => sign * compareKeys(keys.get(a), keys.get(b)) || byName(a, b);
  }

  // --- rows ---

  #draw() {
    if (this.#end.signal.aborted) return;
    this.#head();
    const all = this.#found, { body, table } = this.#parts, many = all.length > MOST_ROWS;
    const places = this.#places(all, body);
    this.#prune(new Set(places.map((i) => all[i].uid)));
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
      const root = this.#row(all[place]);
      root.setAttribute("aria-rowindex", place + 2);
      put(root);
      next = place + 1;
    }
    skipTo(all.length);
    for (const gap of this.#gaps.splice(gaps)) gap.remove();
    table.setAttribute("aria-rowcount", all.length + 1);
    table.hidden = all.length === 0;
    this.#sum();
    if (this.#selected.size || this.#parts.chosen.firstChild) this.#showChosen();
    if (many) this.#measure();
  }

  /** places are the indexes of all rows in the document, ascending. */
  #places(all, body) {
    if (all.length <= MOST_ROWS) return all.map((_, i) => i);
    const { mean, least } = this.#height;
    const above = Math.max(0, -body.getBoundingClientRect().top);
    const first = Math.min(Math.floor(above / mean) - MARGIN, all.length - 1);
    const last = first + Math.ceil(innerHeight / (least || mean)) + 2 * MARGIN;
    const places = new Set();
    for (let i = Math.max(0, first); i <= Math.min(last, all.length - 1); i++) places.add(i);
    const focused = document.activeElement?.closest?.("tr[data-uid]")?.dataset.uid; // stays, also out of sight
    const place = focused ? all.findIndex((row) => row.uid === focused) : -1;
    if (place >= 0) places.add(place);
    return [...places].sort((a, b) => a - b);
  }

  #gap(n, height) {
    this.#gaps[n] ??= h("tr", { class: "gap", "aria-hidden": "true" }, h("td", {}));
    const pixels = `${Math.round(height)}px`;
    if (this.#gaps[n].style.height !== pixels) this.#gaps[n].style.height = pixels;
    return this.#gaps[n];
  }

  /** measure measures the height of rows, once for each width of the window, so that the gaps do not move. */
  #measure() {
    if (this.#height.width === innerWidth) return;
    const heights = [...this.#rows.values()].map(({ root }) => root.getBoundingClientRect().height).filter((n) => n > 0);
    if (heights.length === 0) return;
    this.#height = { mean: heights.reduce((a, b) => a + b) / heights.length, least: Math.min(...heights), width: innerWidth };
    this.#draw();
  }

  #row(row) {
    const drawn = this.#rows.get(row.uid);
    if (drawn?.row === row) return drawn.root;
    const root = drawn?.root ?? h("tr", { role: "row", "data-uid": row.uid });
    const focused = root.contains(document.activeElement);
    const boxes = this.#selects() ? [h("td", { role: "cell", class: "box" }, h("input", { type: "checkbox", "data-row": row.uid, "aria-label": t`Select ${row.obj.metadata.name}`,
      onchange: (ev) => this.#choose([row.uid], ev.target.checked) }))] : [];
    root.replaceChildren(...boxes, ...this.#columns.map((c) => this.#cell(c, row)));
    const box = root.querySelector("input");
    if (box) box.checked = this.#selected.has(row.uid);
    if (focused) root.querySelector("a")?.focus({ preventScroll: true });
    this.#rows.set(row.uid, { row, root });
    return root;
  }

  #cell(c, row) {
    const { metadata } = row.obj, health = this.#health[row.uid];
    const value = c.text ? c.text(row) : c.i < 0 ? metadata.namespace ?? "" : String(row.cells[c.i] ?? "");
    const props = { role: "cell", class: slug(c.name), "data-label": c.name };
    if (c.text) return h("td", { ...props, title: c.title?.(row) }, value);
    if (c.i === this.#nameColumn()) {
      const name = this.#kind.name === "events" ? value : metadata.name;
      return h("th", { ...props, scope: "row", role: "rowheader" }, h("a", { href: address(this.#kind, metadata.namespace, metadata.name) }, name));
    }
    if (row.since[c.i] !== undefined) return h("td", props, ago(row.since[c.i]));
    if (c.name === "Ready" && !this.#columns.some((x) => isMoody(this.#kind, x.name)) && moodOfReady(value)) return h("td", props, moodly(health?.state ?? moodOfReady(value), value));
    if (moodOfCondition(c.name, value)) return h("td", props, moodly(moodOfCondition(c.name, value), value));
    if (isMoody(this.#kind, c.name)) return h("td", props, ...this.#status(c, row, value));
    return h("td", { ...props, title: value.length > 24 ? value : null }, this.#linked(c, value, metadata));
  }

  /** nameColumn is the one that links to the object: its name, or for events the first. */
  #nameColumn() {
    const at = this.#feed.columns.findIndex((c) => c.format === "name" || c.name === "Name");
    return at >= 0 ? at : this.#feed.columns.findIndex((c) => c.name === "Reason");
  }

  /** linked makes a link of what names another object: an event's pod/web-1. */
  #linked(c, value, { namespace }) {
    const about = this.#kind.name === "events" && c.name === "Object" && addressOf(value, namespace);
    if (about) return h("a", { href: about }, value);
    if (c.name === "Node" && value && !value.startsWith("<")) {
      const kind = findKind("nodes");
      return kind ? h("a", { href: address(kind, "", value), class: "quietly" }, value) : value;
    }
    return value;
  }

  #status(c, row, value) {
    const ready = row.cells[this.#feed.columns.findIndex((x) => x.name === "Ready")] ?? "";
    const { metadata } = row.obj, ends = grace(metadata);
    const text = ends ? "Terminating" : value;
    return [moodly(this.#health[row.uid]?.state ?? moodOf(text, /^\d+\/\d+$/.test(ready) ? ready : ""), text),
      ends && h("span", { class: "left", "data-ends": JSON.stringify({ deletionTimestamp: metadata.deletionTimestamp, deletionGracePeriodSeconds: metadata.deletionGracePeriodSeconds }) }, graceText(metadata))];
  }

  #prune(keep) {
    for (const [uid, { root }] of this.#rows) {
      if (keep.has(uid)) continue;
      if (root.contains(document.activeElement)) this.#parts.title.focus({ preventScroll: true });
      root.remove();
      this.#rows.delete(uid);
    }
  }

  #sum() {
    const { state, rows: { size: total }, namespace, complete, error } = this.#feed, found = this.#found.length;
    const count = found === total ? `${total}` : t`${found} of ${total}`, sum = namespace ? t`${count} in ${namespace}` : count;
    write(this.#parts.title.querySelector(".count"), state !== "live" ? "" : complete ? sum : t`${sum}, loading…`);
    this.#parts.empty.hidden = found > 0;
    const name = this.#kind.name;
    const words = {
      loading: error || t`Loading…`, denied: t`You are not allowed to list ${name}.`, gone: t`The server has no ${name} any more.`, bad: error,
      live: total > 0 ? t`Nothing matches the filter.` : namespace ? t`No ${name} in ${namespace}.` : t`No ${name}.`,
    };
    if (found === 0) write(this.#parts.empty, words[state]);
    this.#suggest(state === "live" && found === 0 && complete);
  }

  /** suggest leads on from a list without rows. */
  #suggest(nothing) {
    const { words, namespace } = this.#query, { more } = this.#parts, kind = this.#kind, drawn = nothing ? `${namespace} ${words.join(" ")}` : "";
    if (more.dataset.drawn === drawn) return;
    more.dataset.drawn = drawn;
    const links = [words.length ? h("a", { href: `#/search?${new URLSearchParams({ q: words.join(" ") })}` }, t`Search all kinds`) : null,
      kind.namespaced && namespace ? h("a", { href: address(kind, "", "", "", { q: words.join(" ") }) }, t`Show all namespaces`) : null,
      !words.length && kind.verbs.includes("create") && may("create", kind, { namespace: namespace || home.namespace }) ? h("a", { href: "#/create" }, t`Create`) : null].filter(Boolean);
    more.replaceChildren(...(nothing ? links.flatMap((link, i) => (i ? [" · ", link] : [link])) : []));
  }
}

const graceText = (meta) => {
  const { left } = grace(meta);
  return left > 0 ? t`${left} s left` : t`grace over`;
};

/** By namespace, then name. */
function byName(a, b) {
  const x = a.obj.metadata, y = b.obj.metadata;
  return compare(x.namespace ?? "", y.namespace ?? "") || compare(x.name, y.name);
}

const sortOf = (text) => {
  const [column, way] = (text ?? "").split(",");
  return { column: column || -1, down: way === "down" };
};

/** A cell's key: a moment, an amount, or text. Younger sorts before older, as smaller numbers do. */
function sortKey(row, at) {
  if (row.since[at] !== undefined) return -row.since[at];
  const text = String(row.cells[at] ?? "");
  const ms = undoDuration(text);
  if (!Number.isNaN(ms)) return ms;
  const number = quantity(text.split(/[ /]/)[0]);
  return Number.isNaN(number) ? text : number;
}

const compareKeys = (a, b) => (typeof a === typeof b ? compare(a, b) : typeof a === "number" ? -1 : 1);
