// Search over the names and labels of everything that the token may list.

import { address, ago, apiPath, AS_METADATA, compare, getJSON, h, kinds, may, millis, tickAges, write } from "./core.js";
import { home } from "./live.js";
import { table } from "./sections.js";
import { t } from "./text.js";

const MOST = 5000; // objects of a kind
const MOST_SHOWN = 200;

/** rank is how well an object fits the words, the best is 0; -1 if it does not. */
export function rank({ name, text }, words) {
  if (!words.every((w) => text.includes(w))) return -1;
  if (words.some((w) => name === w)) return 0;
  return words.some((w) => name.startsWith(w)) ? 1 : words.some((w) => name.includes(w)) ? 2 : 3;
}

export class Search {
  #main;
  #found = h("div", {});
  #sum = h("p", { class: "hint", role: "status" });
  #all = [];
  #words = [];
  #loading = true;
  #more = []; // kinds of which there are more objects
  #end = new AbortController();

  constructor(main, query) {
    this.#main = main;
    const text = query.get("q") ?? "";
    const input = h("input", { type: "search", id: "filter", value: text, placeholder: t`names, namespaces, kinds, labels such as app=web`, autocomplete: "off", autocapitalize: "none", spellcheck: "false",
      "aria-label": t`Search`, oninput: () => this.filter(input.value) });
    main.replaceChildren(h("h2", { id: "title", tabindex: "-1" }, t`Search`), h("div", { class: "tools" }, h("label", { class: "grow" }, h("span", {}, t`Words`), input)), this.#sum, this.#found);
    this.filter(text);
    this.#load();
    input.focus();
  }

  close() {
    this.#end.abort();
  }

  tick() {
    tickAges(this.#main);
  }

  /** move sets the focus to another row: 1, -1, or to the ends by ±Infinity. */
  move(by) {
    const links = [...this.#found.querySelectorAll("th a")], at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at < 0 && by === 1 ? 0 : at + by))]?.focus();
  }

  filter(text) {
    this.#words = text.toLowerCase().replace(/(^|\s)(l|label):/g, " ").split(/\s+/).filter(Boolean);
    dispatchEvent(new CustomEvent("searched", { detail: text }));
    this.#draw();
  }

  async #load() {
    const lists = kinds.filter((k) => k.verbs.includes("list") && k.verbs.includes("watch") && k.name !== "events").map((k) => [k, k.namespaced && !may("list", k) ? home.namespace : ""]);
    await Promise.all(lists.filter(([k, namespace]) => may("list", k, { namespace })).map(([k, namespace]) => this.#read(k, namespace)));
    this.#loading = false;
    this.#draw();
  }

  async #read(kind, namespace) {
    const { items, metadata } = await getJSON(apiPath(kind, namespace, "", "", { limit: MOST }), { accept: AS_METADATA, signal: this.#end.signal }).catch(() => ({ items: [], metadata: {} }));
    if (metadata.continue) this.#more.push(kind.name);
    for (const { metadata: m } of items) {
      const labels = Object.entries(m.labels ?? {}).map(([k, v]) => `${k}=${v}`), name = m.name.toLowerCase();
      this.#all.push({ kind, m, labels, name, text: [kind.kind, kind.name, ...kind.short, m.namespace ?? "", m.name, ...labels].join(" ").toLowerCase() });
    }
  }

  #draw() {
    if (this.#end.signal.aborted) return;
    if (!this.#words.length || this.#loading) {
      this.#found.replaceChildren();
      return write(this.#sum, this.#words.length ? t`Loading…` : t`Everything that you may list is searched: names, namespaces, kinds and labels.`);
    }
    const found = this.#all.map((o) => ({ o, rank: rank(o, this.#words) })).filter((f) => f.rank >= 0)
      .sort((a, b) => a.rank - b.rank || compare(a.o.kind.kind, b.o.kind.kind) || compare(a.o.m.namespace ?? "", b.o.m.namespace ?? "") || compare(a.o.name, b.o.name));
    const shown = found.slice(0, MOST_SHOWN).map(({ o: { kind, m, labels } }) => [h("a", { href: address(kind, m.namespace, m.name) }, m.name), kind.kind, m.namespace ?? "",
      labels.filter((l) => this.#words.some((w) => l.toLowerCase().includes(w))).join(", "), ago(millis(m.creationTimestamp))]);
    this.#found.replaceChildren(table([t`Name`, t`Kind`, t`Namespace`, t`Labels that match`, t`Age`], shown) ?? "");
    const parts = [found.length === 0 ? t`Nothing found.` : found.length > MOST_SHOWN ? t`The first ${MOST_SHOWN} of ${found.length} objects.` : ""];
    if (this.#more.length) parts.push(t`Only the first ${MOST} of these are searched: ${this.#more.join(", ")}.`);
    write(this.#sum, parts.filter(Boolean).join(" "));
  }
}
