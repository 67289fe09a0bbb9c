// An editor of YAML: a text field, which CodeMirror replaces when it has loaded, with colours, line numbers, search,
// completion from the server's schemas, and marks at the lines of errors and of fields that the server does not know.

import { getJSON, h, kinds, load, write } from "./core.js";
import { documentsOf, fieldsOf, identify, placeAt, spellPath } from "./fields.js";
import { completions, rootOf, unknown } from "./schema.js";
import { t } from "./text.js";

const REST = 400; // milliseconds without typing, after which fields are checked
const LONGEST = 1 << 19; // characters: a longer text is neither checked nor completed
const SHOWN = 3; // fields that are named below the editor

// --- schemas ---

const MOST = 4; // documents that are kept
const kept = new Map(); // by address, which has a hash of the content: a promise of the schemas

/** schemasOf returns the schemas of an apiVersion, {} if the server has none. paths: the server's list of documents. */
async function schemasOf(paths, apiVersion) {
  const { serverRelativeURL: address } = paths[apiVersion.includes("/") ? `apis/${apiVersion}` : `api/${apiVersion}`] ?? {};
  if (!address) return {};
  const found = kept.get(address) ?? getJSON(address).then((document) => document.components?.schemas ?? {});
  kept.delete(address);
  kept.set(address, found); // the last one that was used
  if (kept.size > MOST) kept.delete(kept.keys().next().value);
  return found.catch((err) => {
    kept.delete(address);
    throw err;
  });
}

/** What every document begins with, where its kind is not known yet. */
const FIRST = ["apiVersion", "kind", "metadata"].map((label) => ({ label, insert: `${label}: `, detail: "", info: "", required: true, more: label !== "metadata" }));

/** What completes a document's apiVersion and kind: those that fit the other one come first. */
function namesOf(field, it) {
  const made = kinds.filter((k) => k.verbs.includes("create")), versionOf = (k) => (k.group ? `${k.group}/${k.version}` : k.version);
  const fits = field === "kind" ? (k) => versionOf(k) === it.apiVersion : (k) => k.kind === it.kind;
  const all = field === "kind" && made.some(fits) ? made.filter(fits) : made;
  const labels = new Map(all.map((k) => [field === "kind" ? k.kind : versionOf(k), fits(k)]).sort((a, b) => a[1] - b[1]));
  return [...labels].map(([label, required]) => ({ label, insert: label, detail: "", info: "", required, more: false }));
}

// --- how it looks: made once, because the rules of a style stay in the document ---

const colours = (cm) => cm.HighlightStyle.define([
  { tag: [cm.tags.atom, cm.tags.definition(cm.tags.variableName)], color: "var(--accent)" },
  { tag: [cm.tags.number, cm.tags.keyword, cm.tags.variableName], color: "var(--ending)" },
  { tag: cm.tags.string, color: "var(--wait)" },
  { tag: [cm.tags.comment, cm.tags.meta], color: "var(--soft)" },
]);

const BOX = { background: "var(--sheet)", color: "inherit", border: "1px solid var(--line)", borderRadius: "6px" };
const theme = (cm) => cm.EditorView.theme({
  "&": { color: "var(--ink)", flex: "1 1 auto", minHeight: "0", minWidth: "0" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: "0.6rem 0" },
  ".cm-gutters": { background: "var(--sheet)", color: "var(--soft)", border: "0" },
  ".cm-placeholder": { color: "var(--soft)" },
  ".cm-gutter-lint": { width: "1em" },
  ".cm-gutter-lint .cm-gutterElement": { padding: "0.2em 0" },
  ".cm-tooltip": { ...BOX, maxWidth: "min(34rem, 92vw)" },
  ".cm-tooltip.cm-completionInfo": { padding: "0.4rem 0.6rem", overflow: "hidden" },
  ".cm-completionInfo-left-narrow, .cm-completionInfo-right-narrow": { display: "none" }, // it would cover the list
  ".described": { display: "-webkit-box", "-webkit-box-orient": "vertical", "-webkit-line-clamp": "10", overflow: "hidden", overflowWrap: "anywhere" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxWidth: "92vw" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.15rem 0.5rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { fontStyle: "normal", opacity: "0.85" },
  ".cm-panels": { background: "var(--ground)", color: "inherit" },
  ".cm-panels.cm-panels-bottom": { borderTop: "1px solid var(--line)" },
  ".cm-panel.cm-search": { padding: "0.4rem 1.8rem 0.4rem 0.6rem", fontSize: "0.93rem" },
  ".cm-panel.cm-search label": { fontSize: "inherit" },
  ".cm-panel.cm-search [name=close]": { border: "0", fontSize: "1.1rem" },
  ".cm-textfield": BOX,
  ".cm-button": { ...BOX, backgroundImage: "none", "&:active": { backgroundImage: "none" } },
  ".cm-searchMatch, .cm-selectionMatch": { background: "color-mix(in srgb, var(--accent) 22%, transparent)" },
  ".cm-searchMatch.cm-searchMatch-selected": { background: "color-mix(in srgb, var(--accent) 45%, transparent)" },
  ".cm-searchMatch span, .cm-selectionMatch span": { color: "var(--ink)" },
});

/** The words of CodeMirror's search. */
const PHRASES = {
  Find: t`Find`, Replace: t`Replace`, next: t`next`, previous: t`previous`, all: t`all`, "match case": t`match case`, regexp: t`regexp`, "by word": t`by word`,
  replace: t`replace`, "replace all": t`replace all`, close: t`close`,
};

let look = null;

// --- the editor ---

export class Editor extends HTMLElement {
  #plain; // until CodeMirror has loaded, and where it does not load
  #told = h("p", { class: "hint", role: "status" });
  #options;
  #cm = null;
  #view = null;
  #marks = []; // of the server: { line, text }
  #unknown = [];
  #paths = null; // a promise of the server's list of documents
  #timer = 0;
  #setting = false;

  /** label says what the text is; placeholder is shown while there is none. */
  constructor(text, label, { readonly = false, placeholder = "" } = {}) {
    super();
    this.className = "editor";
    this.#options = { label, readonly, placeholder };
    const lines = (text || placeholder).split("\n").length + 1;
    this.#plain = h("textarea", { spellcheck: "false", autocomplete: "off", autocapitalize: "none", "aria-label": label, wrap: "off", readonly, placeholder, rows: Math.min(40, Math.max(12, lines)) }, text);
    this.append(this.#plain);
  }

  connectedCallback() {
    load("codemirror.js").then((cm) => this.#start(cm), () => {}); // the field stays
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.#view?.destroy();
  }

  get value() {
    return this.#view ? this.#view.state.doc.toString() : this.#plain.value;
  }

  set value(text) {
    if (!this.#view) {
      this.#plain.value = text;
      return;
    }
    this.#setting = true;
    this.#view.dispatch({ changes: { from: 0, to: this.#view.state.doc.length, insert: text } });
    this.#setting = false;
    this.#unknown = [];
    this.#show();
  }

  get readOnly() {
    return this.#options.readonly;
  }

  /** Selects a line, counted from 0, and shows it. */
  goto(line) {
    if (this.#view) {
      const { from, to } = this.#view.state.doc.line(Math.min(line + 1, this.#view.state.doc.lines));
      this.#view.focus();
      this.#view.dispatch({ selection: { anchor: from, head: to }, effects: this.#cm.EditorView.scrollIntoView(from, { y: "center" }) });
      return;
    }
    const lines = this.#plain.value.split("\n"), start = lines.slice(0, line).join("\n").length + Number(line > 0);
    this.#plain.focus();
    this.#plain.setSelectionRange(start, start + (lines[line] ?? "").length);
    this.#plain.scrollTop = this.#plain.scrollHeight * Math.max(0, line - 5) / lines.length;
  }

  /** Marks lines with errors, { line, text }, until the text is edited. */
  mark(marks) {
    this.#marks = marks;
    if (this.#view) this.#show();
  }

  #start(cm) {
    if (!this.isConnected || this.#view) return;
    this.#cm = cm;
    look ??= [cm.syntaxHighlighting(colours(cm)), theme(cm)];
    const { label, readonly, placeholder } = this.#options, plain = this.#plain, typing = document.activeElement === plain;
    const hint = h("p", { class: "hint" }, readonly ? t`Ctrl-F searches.` : t`Ctrl-Space lists the fields, Ctrl-F searches. Esc, then Tab leaves the editor.`);
    hint.id = "editor-hint";
    this.#view = new cm.EditorView({
      state: cm.EditorState.create({ doc: plain.value, selection: { anchor: plain.selectionStart, head: plain.selectionEnd }, extensions: [
        cm.lineNumbers(), cm.history(), cm.search(), cm.StreamLanguage.define(cm.yaml), cm.indentUnit.of("  "), cm.placeholder(placeholder), cm.EditorState.phrases.of(PHRASES),
        cm.EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": hint.id, tabindex: "0" }),
        readonly ? [cm.EditorState.readOnly.of(true), cm.EditorView.editable.of(false)] : [cm.lintGutter(), cm.autocompletion({ override: [(context) => this.#complete(context)], activateOnCompletion: (c) => c.more, icons: false })],
        cm.keymap.of([...cm.completionKeymap, ...cm.searchKeymap, ...cm.historyKeymap, ...cm.defaultKeymap.filter(({ key }) => key !== "Escape"), { key: "F8", run: cm.nextDiagnostic }, cm.indentWithTab]),
        cm.EditorView.updateListener.of((update) => update.docChanged && this.#changed()), look,
      ] }),
    });
    this.#view.dom.addEventListener("input", (ev) => ev.stopPropagation()); // also of the search; #changed tells of edits
    plain.replaceWith(this.#view.dom);
    this.after(this.#told, hint);
    if (typing) this.#view.focus();
    this.#show();
    if (!readonly) this.#check();
  }

  #changed() {
    if (!this.#setting) this.dispatchEvent(new Event("input", { bubbles: true }));
    this.#marks = [];
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#check(), REST);
  }

  /** The schemas for a document, and that of its kind, or null. */
  async #schemas(it) {
    if (!it.apiVersion || !it.kind) return null;
    this.#paths ??= getJSON("/openapi/v3").then(({ paths }) => paths).catch((err) => {
      this.#paths = null;
      throw err;
    });
    const schemas = await schemasOf(await this.#paths, it.apiVersion), root = rootOf(schemas, it);
    return root ? { schemas, root } : null;
  }

  /** Finds the fields that the server does not know. Without schemas nothing is marked. */
  async #check() {
    const text = this.value, found = [];
    try {
      for (const doc of text.length > LONGEST ? [] : documentsOf(text)) {
        const it = identify(doc.text), known = await this.#schemas(it);
        if (!known) continue;
        const { schemas, root } = known;
        for (const { path, line, from, to } of unknown(schemas, root, fieldsOf(doc.text))) found.push({ line: doc.line + line, from, to, text: t`${it.kind} has no field ${spellPath(path)}.` });
      }
    } catch {
      return; // the next edit asks again
    }
    if (!this.#view || this.value !== text) return;
    this.#unknown = found;
    this.#show();
  }

  #show() {
    const { doc } = this.#view.state;
    const at = ({ line, from, to, text }, severity) => {
      const whole = doc.line(Math.min(line + 1, doc.lines)), start = from ?? whole.text.search(/\S|$/);
      return { from: whole.from + Math.min(start, whole.length), to: whole.from + Math.min(to ?? whole.length, whole.length), severity, message: text };
    };
    const all = [...this.#marks.map((m) => at(m, "error")), ...this.#unknown.map((m) => at(m, "warning"))];
    this.#view.dispatch(this.#cm.setDiagnostics(this.#view.state, all));
    const words = this.#unknown.slice(0, SHOWN).map((m) => t`Line ${m.line + 1}: ${m.text}`);
    write(this.#told, words.join(" ") + (this.#unknown.length > SHOWN ? ` ${t`And ${this.#unknown.length - SHOWN} more.`}` : ""));
  }

  async #complete({ state, pos, explicit }) {
    if (state.doc.length > LONGEST) return null;
    const line = state.doc.lineAt(pos), number = line.number - 1;
    const doc = documentsOf(state.doc.toString()).findLast((d) => d.line <= number);
    const place = doc && number - doc.line < doc.text.split("\n").length ? placeAt(doc.text, number - doc.line, pos - line.from) : null;
    if (!place || !(place.typed || place.value || explicit)) return null;
    const it = identify(doc.text), [field, ...below] = place.path;
    let list;
    if (place.value && !below.length && ["apiVersion", "kind"].includes(field)) list = namesOf(field, it);
    else {
      const known = await this.#schemas(it).catch(() => null);
      list = known ? completions(known.schemas, known.root, place, fieldsOf(doc.text)) : place.value || place.path.length ? [] : FIRST;
    }
    if (!list.length) return null;
    const behind = line.text.slice(pos - line.from).trim();
    return { from: pos - place.typed.length, validFor: /^[\w./-]*$/, options: list.map(({ label, insert, detail, info, required, more }) => ({
      label, info: info ? () => h("div", { class: "described" }, info) : undefined, more, boost: required ? 50 : 0, detail: required && detail ? t`${detail}, required` : detail,
      apply: behind.startsWith(":") ? label : behind ? insert.split("\n")[0] : insert,
    })) };
  }
}

customElements.define("yaml-editor", Editor);
