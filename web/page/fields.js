// What a YAML text has, and where: its documents, their kinds and names, and their fields by lines and columns.
//
// Fields are found in block style, also in a text that is only half written. What is in flow style ({a: b}) is passed
// over. Nothing here asks the server.

/** A document's kind and name: { apiVersion, kind, name, namespace, generates }. */
export function identity(doc) {
  const top = (name) => new RegExp(`^["']?${name}["']?:\\s*["']?([^\\s"'#]+)`, "m").exec(doc)?.[1] ?? "";
  const json = doc.replace(/^(?:\s*#[^\n]*\n)+/, "");
  if (/^\s*\{/.test(json)) {
    const { apiVersion = "", kind = "", metadata = {} } = JSON.parse(json);
    return { apiVersion, kind, name: metadata.name ?? "", namespace: metadata.namespace ?? "", generates: Boolean(metadata.generateName) };
  }
  const block = /^metadata:[^\n]*\n?(?:[ ]+[^\n]*\n?|\n|#[^\n]*\n?)*/m.exec(`${doc}\n`)?.[0] ?? "";
  const indent = /\n([ ]+)\S/.exec(block)?.[1] ?? "  ";
  const field = (name) => new RegExp(`(?:^${indent}|[{,]\\s*)["']?${name}["']?:\\s*["']?([^\\s"',}#]+)`, "m").exec(block)?.[1] ?? "";
  return { apiVersion: top("apiVersion"), kind: top("kind"), name: field("name"), namespace: field("namespace"), generates: Boolean(field("generateName")) };
}

/** identify is identity, or { error } of a text that is none. */
export function identify(text) {
  try {
    return identity(text);
  } catch (error) {
    return { apiVersion: "", kind: "", name: "", error };
  }
}

/** documentsOf are the documents of a text: { text, line }, line: the number of its first line, from 0. */
export function documentsOf(text) {
  const all = [{ lines: [], line: 0 }];
  text.split("\n").forEach((line, n) => {
    if (/^---(\s|$)/.test(line)) all.push({ lines: [], line: n + 1 });
    else all.at(-1).lines.push(line);
  });
  return all.map(({ lines, line }) => ({ text: lines.join("\n"), line })).filter((d) => d.text.replace(/^\s*#.*$/gm, "").trim());
}

const KEY = /^(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|(?!\?\s)([^\s"'{}[\],#&*!|>%@`](?:[^:#]|:(?=\S)|(?<=\S)#)*?))\s*:(?=\s|$)/;
const CLOSED = { depth: 0, quote: "" };

/** The brackets and the quote that are open behind a text, which begins with one or continues one. */
function open(text, { depth, quote }) {
  for (let i = 0; i < text.length; i++) {
    const c = text[i], before = text[i - 1] ?? " ";
    if (quote) {
      if ((quote === '"' && c === "\\") || (quote === "'" && c === "'" && text[i + 1] === "'")) i++;
      else if (c === quote) quote = "";
    } else if (c === "#" && /\s/.test(before)) return { depth, quote };
    else if (/["']/.test(c) && /[\s{[,:]/.test(before)) quote = c;
    else if (/[{[]/.test(c)) depth++;
    else if (/[}\]]/.test(c)) depth--;
    if (!quote && depth <= 0) return CLOSED;
  }
  return { depth, quote };
}

/** Reads the lines of a document one by one, and knows what a line at a column belongs to. */
class Reader {
  #above = []; // what is open: { at, step, item }, a key or an item with its column
  #open = CLOSED;
  #block = null; // the column right of which lines are a block scalar's
  found = []; // { path, line, from, to }

  read(text, line) {
    if (this.#within(text)) {
      if (this.#open !== CLOSED) this.#open = open(text, this.#open);
      return;
    }
    let at = text.search(/\S/);
    if (at < 0 || text[at] === "#") return;
    this.#block = null;
    at = this.#items(text, at, (from) => this.found.push({ path: this.#path(), line, from, to: from + 1 }));
    const [whole = "", ...names] = KEY.exec(text.slice(at)) ?? [];
    if (whole) {
      this.#close(at);
      this.#above.push({ at, step: names.find((n) => n !== undefined) });
      this.found.push({ path: this.#path(), line, from: at, to: at + whole.length - 1 });
    }
    const value = text.slice(at + whole.length).replace(/^\s*(?:[&!]\S*\s+)*/, "");
    if (/^[|>]/.test(value)) this.#block = this.#above.at(-1)?.at ?? -1;
    else if (/^["'{[]/.test(value)) this.#open = open(value, CLOSED);
  }

  /** What may be completed behind a part of the next line: { path, typed, column, value, item }; null where nothing is. value: that of the field at the path. */
  place(before) {
    if (this.#within(before) || /(?:^|\s)#|-$/.test(before)) return null;
    let item = false;
    const column = this.#items(before, before.search(/\S|$/), () => (item = true)), rest = before.slice(column);
    this.#close(column);
    const [whole = "", ...names] = KEY.exec(rest) ?? [], typed = rest.slice(whole.length).trimStart();
    if (!/^[\w./-]*$/.test(typed) || (whole && !/^\s/.test(rest.slice(whole.length)))) return null;
    return { path: [...this.#path(), ...(whole ? [names.find((n) => n !== undefined)] : [])], typed, column, value: Boolean(whole), item };
  }

  #within(text) {
    const at = text.search(/\S|$/);
    return this.#open !== CLOSED || (this.#block !== null && at > this.#block);
  }

  #path() {
    return this.#above.map(({ step }) => step);
  }

  /** Closes what does not contain a key at the column. */
  #close(column) {
    while (this.#above.at(-1)?.at >= column) this.#above.pop();
  }

  /** Opens the items whose dashes a line has at a column, and returns the column behind them. */
  #items(text, at, each) {
    for (let dash; (dash = /^-(?:\s+|$)/.exec(text.slice(at))); at += dash[0].length) {
      let step = 0;
      for (let top; (top = this.#above.at(-1)) && (top.at > at || (top.at === at && top.item)); this.#above.pop()) step = top.at === at ? top.step + 1 : 0;
      this.#above.push({ at, step, item: true });
      each(at);
    }
    return at;
  }
}

/** fieldsOf are the fields and items of a document: { path, line, from, to }, the path with the numbers of items, and columns. */
export function fieldsOf(doc) {
  const reader = new Reader();
  doc.split("\n").forEach((text, line) => reader.read(text, line));
  return reader.found;
}

/** placeAt is what may be completed at a line and column of a document. */
export function placeAt(doc, line, column) {
  const reader = new Reader(), lines = doc.split("\n");
  lines.slice(0, line).forEach((text, n) => reader.read(text, n));
  return reader.place(lines[line].slice(0, column));
}

export const same = (a, b) => a.length === b.length && a.every((step, i) => step === b[i]);

/** spellPath is a path as the server writes it: spec.containers[0].image */
export const spellPath = (path) => path.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("").replace(/^\./, "");

/** lineOf is the line of a field, such as spec.containers[0].image, in a document, from 0; of its parent if it has none. */
export function lineOf(doc, path) {
  const steps = path.replace(/\[(\w+)\]/g, ".$1").split(".").filter(Boolean), all = fieldsOf(doc);
  for (; steps.length; steps.pop()) {
    const found = all.find((f) => same(f.path.map(String), steps));
    if (found) return found.line;
  }
  return 0;
}

/** The line that an error of the server is about, in a document, from 0. */
export function lineOfError(doc, error) {
  const [, told] = /\bline (\d+)/.exec(error.message) ?? [], field = error.status?.details?.causes?.find((c) => c.field)?.field;
  return told ? Number(told) - 1 : lineOf(doc, field ?? "");
}
