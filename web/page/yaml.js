// Objects as YAML, which the server writes and reads: shown, changed by server-side
// apply after a dry run, and created.
//
// Only the fields that the user has edited are sent, on top of what the server has by then, as kubectl edit does.

import { MANAGER, address, apiPath, compare, discover, dropsOn, getJSON, h, kindFor, maker, may, now, read, readJSON, say, send, write } from "./core.js";
import { changes } from "./diff.js";
import { Editor } from "./editor.js";
import { documentsOf, identify, lineOfError } from "./fields.js";
import { pause } from "./live.js";
import { configuration, conflicts, edits, left, merged, spell, tree } from "./merge.js";
import { t } from "./text.js";

const YAML = "application/yaml", APPLY = "application/apply-patch+yaml";
const LARGEST = 3 << 20;

/** A manager that owns nothing: when it applies nothing, the answer has the owners of all fields, also of an object that nobody has applied before. */
const READER = "monopod-page-reads";
const TURNS = 5; // of reading and writing an object that others write as well

/** Fields of metadata that only the server sets. */
const SERVERS = ["managedFields", "creationTimestamp", "resourceVersion", "uid", "generation", "selfLink"];
/** Annotations that a controller or kubectl writes. */
const CONTROLLERS = /^(deployment\.kubernetes\.io\/(revision|revision-history|desired-replicas|max-replicas)|kubectl\.kubernetes\.io\/last-applied-configuration)$/;

/** The text without what only the server sets: fields of metadata, annotations of controllers, and the status. */
export function editable(text) {
  const out = [];
  let top = "", skip = false, annotation = ""; // the last annotation, whose value may have more lines
  for (const line of text.split("\n")) {
    const [, name] = /^([A-Za-z]\w*):/.exec(line) ?? [], [, field] = /^ {2}([A-Za-z]\w*):/.exec(line) ?? [];
    if (!/^ {5}|^$/.test(line)) annotation = /^ {4}([\w./-]+): /.exec(line)?.[1] ?? "";
    if (name) [top, skip] = [name, name === "status"];
    else if (top === "metadata" && field) skip = SERVERS.includes(field);
    if (!skip && !(top === "metadata" && CONTROLLERS.test(annotation))) out.push(line);
  }
  return out.join("\n").replace(/^ {2}annotations:\n(?! {4})/m, "");
}

/** The same of an object. */
function plain({ status: _, ...obj }) {
  const metadata = Object.fromEntries(Object.entries(obj.metadata).filter(([k]) => !SERVERS.includes(k)));
  const annotations = Object.entries(metadata.annotations ?? {}).filter(([k]) => !CONTROLLERS.test(k));
  delete metadata.annotations;
  return { ...obj, metadata: annotations.length ? { ...metadata, annotations: Object.fromEntries(annotations) } : metadata };
}

/** Without the fields' managers, which nobody reads. */
const readable = (text) => text.replace(/^ {2}managedFields:\n(?: {2}- .*\n| {4}.*\n)*/m, "");

const EXAMPLE = t`For example:` + "\n\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: hello}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: hello}}\n  template:\n    metadata: {labels: {app: hello}}\n    spec:\n      containers:\n        - {name: web, image: \"nginx:1\"}";

/** The fields that other managers own, one by one: of an error of the server. */
function refused(err) {
  const causes = err.status?.details?.causes ?? [];
  if (err.code !== 409 || !causes.some((c) => c.reason === "FieldManagerConflict")) return null;
  return h("ul", { class: "conflicts plainly" }, causes.map((c) => h("li", {}, t`${h("code", {}, c.field)} belongs to ${/^conflict with (".+?")/.exec(c.message)?.[1] ?? c.message}`)));
}

/** Whether the fields in conflict were only set, and no manager applies them. The server names the version of those. */
const onlySet = (err) => err.code === 409 && err.status?.details?.causes?.length > 0 && err.status.details.causes.every((c) => / using \S+/.test(c.message));

const LONGEST = 60; // characters of a value

function brief(value) {
  const text = value === undefined ? t`nothing` : JSON.stringify(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

/** A button that leads to a line of the editor, counted from 0. */
const lineButton = (area, line) => h("button", { type: "button", class: "quiet", onclick: () => area.goto(line) }, t`Line ${line + 1}`);

/** A conflict in words. */
function told({ edit, by, now, applied }) {
  const path = h("code", {}, spell(edit.path)), was = brief(edit.was), is = brief(now);
  return h("li", {}, applied ? t`${path} belongs to "${by}", which applies it and may set it again`
    : by ? t`${path} has changed since you opened it, by "${by}": it was ${was}, and is ${is} now` : t`${path} has changed since you opened it: it was ${was}, and is ${is} now`);
}

export class Part {
  #body;
  #kind;
  #path;
  #name;
  #version = "";
  #opened = null; // the object as it was read
  #out = h("div", { class: "review", "aria-live": "polite" });
  #stale = h("p", { class: "hint", role: "status" });
  #area;
  #may;
  #hint = "";

  constructor(body, kind, obj) {
    const { namespace, name } = obj.metadata;
    this.#body = body;
    this.#kind = kind;
    this.#name = name;
    this.#path = (query) => apiPath(kind, namespace, name, "", query);
    this.#may = ["patch", "update"].every((verb) => may(verb, kind, { namespace, name }));
    const by = maker(obj);
    if (by) this.#hint = h("p", { class: "hint" }, t`${h("a", { href: address(by.kind, namespace, by.name, "yaml") }, `${by.kind.kind} ${by.name}`)} makes this ${kind.kind}. To change it for good, change that.`);
    if (kind.name !== "secrets") this.#load();
    else body.replaceChildren(h("button", { type: "button", class: "quiet", onclick: () => this.#load() }, t`Show it with its values`));
  }

  close() {}

  update(obj) {
    if (this.#version && obj.metadata.resourceVersion !== this.#version) write(this.#stale, this.#may ? t`It has changed since it was read here. What you do not edit stays as it is now.` : t`It has changed since it was read here.`);
  }

  async #load(full = false) {
    try {
      const { text, version, obj } = await this.#read();
      [this.#version, this.#opened] = [version, obj];
      this.#show(full ? readable(text) : editable(text), full);
    } catch (err) {
      this.#body.replaceChildren(h("p", { class: "error" }, err.message));
    }
  }

  /** read returns the object as text, and as it is for the edits to come: both of the same version, unless it never rests. */
  async #read() {
    for (let turn = 1; ; turn++) {
      const [text, obj] = await Promise.all([read("GET", this.#path(), { accept: YAML }), this.#may ? getJSON(this.#path()) : null]);
      const version = /^ {2}resourceVersion: "?(\d+)"?$/m.exec(text)?.[1] ?? "";
      if (!obj || obj.metadata.resourceVersion === version || turn === TURNS) return { text, version, obj: obj && plain(obj) };
    }
  }

  #show(text, full) {
    const edits = this.#may && !full;
    this.#area = new Editor(text, t`YAML of ${this.#name}`, { readonly: !edits });
    this.#out.replaceChildren();
    write(this.#stale, "");
    this.#area.addEventListener("input", () => this.#out.replaceChildren());
    const button = (label, act, main) => h("button", { type: "button", class: main ? "main" : "quiet", onclick: act }, label);
    this.#body.replaceChildren(h("div", { class: "tools" },
      edits ? button(t`Review changes`, () => this.#review(), true) : null, button(t`Read again`, () => this.#load(full)),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: full, onchange: (ev) => this.#load(ev.target.checked) }), " ", t`With status`), this.#stale), edits ? this.#hint : "", this.#out, this.#area);
  }

  /** live is the object as the server has it now, with the owners of all fields. */
  async #live() {
    const { apiVersion, kind, metadata: { name, namespace } } = this.#opened;
    return readJSON("PATCH", this.#path({ fieldManager: READER, dryRun: "All" }), { body: JSON.stringify({ apiVersion, kind, metadata: { name, namespace } }), type: APPLY });
  }

  /** parsed is what the user has written, as the server reads it. */
  async #parsed({ metadata: { resourceVersion } }) {
    const text = this.#area.value, added = text.split("\n").findIndex((line) => /^metadata:[ ]*$/.test(line)) + 2; // the number of the line that is added
    const body = text.replace(/^metadata:[ ]*$/m, `metadata:\n  resourceVersion: "${resourceVersion}"`);
    try {
      return plain(await readJSON("PUT", this.#path({ fieldManager: MANAGER, dryRun: "All" }), { body, type: YAML }));
    } catch (err) {
      if (body !== text) err.message = err.message.replace(/\bline (\d+)/, (_, n) => `line ${n >= added ? n - 1 : n}`);
      throw err;
    }
  }

  /** refuse shows an error, with its line if it is about one. */
  #refuse(err) {
    const line = lineOfError(this.#area.value, err), marked = line > 0 || err.status?.details?.causes?.length > 0;
    this.#out.replaceChildren(h("p", { class: "error", role: "alert" }, err.message, marked ? [" ", lineButton(this.#area, line)] : null));
    if (marked) this.#area.mark([{ line, text: err.message }]);
  }

  /** write sends the edits for this version of the object: what cannot be applied, such as a removed field of another manager, replaces it. */
  async #write(list, live, dry) {
    const query = { fieldManager: MANAGER, ...(dry ? { dryRun: "All" } : {}) }, applies = list.every((e) => e.applies);
    const body = applies ? configuration(list, live, MANAGER) : merged(list, live);
    if (!applies) delete body.metadata.managedFields;
    const [method, path, type] = applies ? ["PATCH", this.#path({ ...query, force: "true" }), APPLY] : ["PUT", this.#path(query), "application/json"];
    const go = (accept) => read(method, path, { body: JSON.stringify(body), type, accept });
    if (!dry) {
      await send(method, path, { body: JSON.stringify(body), type }); // the answer is not needed, and may break off
      return "";
    }
    try {
      return await go(YAML);
    } catch (err) {
      if (err.code < 400) throw err;
      return go("application/json"); // for an error that is a Status in JSON
    }
  }

  /**
   * run does the edits, or asks the server what they would change, and reports whether nothing was in the way: conflicts
   * that the user has not accepted are shown. accepted: their words. Somebody else may write at the same time.
   */
  async #run(list, dry, accepted, done) {
    for (let turn = 1; ; turn++) {
      try {
        const live = await this.#live();
        list ??= edits(this.#opened, await this.#parsed(live), tree(live.metadata.managedFields ?? []));
        const todo = left(list, live), found = conflicts(todo, live, MANAGER).map(told);
        if (found.some((c) => !accepted.includes(c.textContent))) return this.#ask(list, found);
        const before = dry ? editable(await read("GET", this.#path(), { accept: YAML })) : "";
        const after = todo.length ? await this.#write(todo, live, dry) : before;
        return await done(list, before, editable(after));
      } catch (err) {
        if (err.code === 409 && turn < TURNS) continue;
        return this.#refuse(err);
      }
    }
  }

  #ask(list, found) {
    const words = found.map((c) => c.textContent);
    this.#out.replaceChildren(h("div", { class: "warning" }, h("p", {}, t`Somebody else has set these fields:`), h("ul", { class: "conflicts plainly" }, found),
      h("div", {}, h("button", { type: "button", class: "danger", onclick: () => this.#review(list, words) }, t`Take over these fields`))));
  }

  /** review shows what would change, with a button that does it. */
  #review(list = null, accepted = []) {
    this.#out.replaceChildren(h("p", { class: "hint" }, t`Asking the server…`));
    return this.#run(list, true, accepted, (known, before, after) => {
      const shown = changes(before, after);
      this.#out.replaceChildren(shown ?? h("p", { class: "hint" }, t`The server would change nothing.`),
        shown ? h("div", { class: "tools" }, h("button", { type: "button", class: accepted.length ? "danger" : "main", "data-action": "apply", onclick: (ev) => this.#commit(ev.target, known, accepted) }, accepted.length ? t`Apply and take over` : t`Apply`)) : "");
      this.#out.querySelector("[data-action=apply]")?.focus();
    });
  }

  async #commit(button, list, accepted) {
    button.disabled = true;
    await this.#run(list, false, accepted, async () => {
      await this.#load();
      this.#out.replaceChildren(h("p", { class: "hint" }, t`Applied.`));
      say(t`${this.#name} is applied`);
    });
  }
}

// --- create ---

/** apply takes over fields that were only set, as with kubectl create. */
async function apply(path, body) {
  try {
    return await send("PATCH", path, { body, type: APPLY });
  } catch (err) {
    if (!onlySet(err)) throw err;
    return send("PATCH", `${path}&force=true`, { body, type: APPLY });
  }
}

/** The group and kind that a CustomResourceDefinition defines, as group/Kind. */
function defines(doc) {
  const group = /^\s+["']?group["']?:\s*["']?([^\s"',]+)/m.exec(doc)?.[1], names = /^(\s+)["']?names["']?:([^\n]*\n(?:\1\s+[^\n]*\n?)*)/m.exec(`${doc}\n`)?.[2] ?? "";
  return `${group}/${/["']?\bkind["']?:\s*["']?(\w+)/.exec(names)?.[1]}`;
}

/** What others need comes first. */
const RANK = ["Namespace", "CustomResourceDefinition"];
const rank = ({ it }) => (RANK.indexOf(it.kind) + RANK.length + 1) % (RANK.length + 1);

const DEFINED = 10_000; // milliseconds until a new kind must be there

/** filesOf are the files that were dropped, with those in folders, by path. */
async function filesOf(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean), files = [];
  if (!entries.length) return [...transfer.files];
  const visit = async (entry) => {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      if (entries.includes(entry) || /\.(ya?ml|json)$/i.test(file.name)) files.push({ path: entry.fullPath, file });
      return;
    }
    const reader = entry.createReader();
    for (;;) { // a hundred at a time
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) break;
      for (const one of some) await visit(one);
    }
  };
  for (const entry of entries) await visit(entry);
  return files.sort((a, b) => compare(a.path, b.path)).map((f) => f.file);
}

export class Create {
  #namespace;
  #area = new Editor("", t`YAML or JSON of the objects`, { placeholder: EXAMPLE });
  #out = h("div", { class: "review", "aria-live": "polite" });

  constructor(main, namespace, query) {
    this.#namespace = namespace || "default";
    const file = h("input", { type: "file", accept: ".yaml,.yml,.json", multiple: true, onchange: (ev) => this.#files(ev.target.files) });
    const zone = h("div", { class: "drop" }, this.#area);
    dropsOn(zone, async (_, transfer) => this.#files(await filesOf(transfer)));
    main.replaceChildren(h("h2", { tabindex: "-1" }, t`Create`),
      h("p", { class: "hint" }, t`One or more documents, as for kubectl apply. Drop files or folders here. Objects without a namespace are created in ${h("strong", {}, this.#namespace)}.`),
      h("div", { class: "tools" }, h("button", { type: "button", class: "main", onclick: () => this.#run(true) }, t`Check`), h("label", {}, h("span", {}, t`Files`), file)), this.#out, zone);
    this.#area.addEventListener("input", () => this.#out.replaceChildren());
    if (query?.has("example")) this.#area.value = EXAMPLE.replace(/^.*\n\n/, "");
  }

  close() {}

  async #files(list) {
    const texts = [];
    for (const file of list) {
      if (file.size > LARGEST) {
        this.#out.replaceChildren(h("p", { class: "error" }, t`${file.name} is larger than 3 MiB`));
        return;
      }
      texts.push(`${list.length > 1 ? `# ${file.name}\n` : ""}${(await file.text()).trim()}`);
    }
    this.#area.value = texts.join("\n---\n");
    this.#run(true);
  }

  /** run applies every document, first as a dry run. What the documents create themselves counts. */
  async #run(dry) {
    const docs = documentsOf(this.#area.value).map((doc) => ({ ...doc, it: identify(doc.text) })).sort((a, b) => rank(a) - rank(b));
    const coming = { namespaces: new Set(), kinds: new Set() }, results = [];
    for (const doc of docs) {
      const result = await this.#one(doc, dry, coming);
      results.push(result);
      if (result.error) result.line = doc.line + lineOfError(doc.text, result.error);
      if (result.error) continue;
      if (doc.it.kind === "Namespace") coming.namespaces.add(doc.it.name);
      if (doc.it.kind === "CustomResourceDefinition") coming.kinds.add(defines(doc.text));
    }
    const failed = results.filter((r) => r.error).length;
    this.#area.mark(results.filter((r) => r.error).map((r) => ({ line: r.line, text: r.error.message })));
    this.#out.replaceChildren(h("ul", { class: "plainly" }, results.map((r) => h("li", { class: r.error ? "error" : null },
      r.link && !dry ? h("a", { href: r.link, class: "name" }, r.title) : h("span", { class: "name" }, r.title), ` ${r.error ? r.error.message : r.done}`, r.error ? [" ", lineButton(this.#area, r.line)] : null, r.error ? refused(r.error) : null))),
    !docs.length ? h("p", { class: "hint" }, t`There is no document.`) : failed ? h("p", { class: "hint" }, t`${failed} of ${docs.length} are refused.`) : dry
      ? h("div", { class: "tools" }, h("button", { type: "button", class: "main", "data-action": "create", onclick: () => this.#run(false) }, docs.length === 1 ? t`Create it` : t`Create all ${docs.length}`)) : "");
    this.#out.querySelector("[data-action=create]")?.focus();
  }

  async #one(doc, dry, coming) {
    const { it, text } = doc, title = `${it.kind || t`document`} ${it.name || ""}`;
    try {
      if (it.error) throw it.error;
      const would = `${it.apiVersion.split("/")[0]}/${it.kind}`, defined = coming.kinds.has(would);
      const kind = kindFor(it.apiVersion, it.kind) ?? (defined && !dry ? await this.#await(it) : null);
      if (!kind && defined) return { doc, title, done: t`can be checked when its kind has been created` };
      if (!kind) throw new Error(t`The server has no kind ${it.kind || "?"} in ${it.apiVersion || "?"}.`);
      if (!it.name && !it.generates) throw new Error(t`metadata.name is missing.`);
      const query = { fieldManager: MANAGER, ...(dry ? { dryRun: "All" } : {}) };
      let namespace = kind.namespaced ? it.namespace || this.#namespace : "", body = text;
      if (dry && coming.namespaces.has(namespace) && it.namespace) { // it is not there yet: checked in another one
        namespace = "default";
        body = text.replace(/^(metadata:[^\n]*(?:\n[ ]+[^\n]*)*?)(\bnamespace["']?:\s*["']?)[^\s"',}#]+/m, "$1$2default");
      }
      const response = it.generates && !it.name
        ? await send("POST", apiPath(kind, namespace, "", "", query), { body, type: YAML })
        : await apply(apiPath(kind, namespace, it.name, "", query), body);
      const { metadata } = await response.json(), made = response.status === 201;
      const warning = response.headers.get("Warning"), done = dry ? made ? t`would be created` : t`would be changed` : made ? t`created` : t`changed`;
      return { doc, title, link: address(kind, metadata.namespace, metadata.name), done: `${done}${warning ? ` (${warning.replace(/^299 - "|"$/g, "")})` : ""}` };
    } catch (error) {
      return { doc, title, error };
    }
  }

  /** await waits until the server has a kind that was just defined. */
  async #await({ apiVersion, kind }) {
    for (const end = now() + DEFINED; now() < end; await pause(300)) {
      await discover();
      if (kindFor(apiVersion, kind)) return kindFor(apiVersion, kind);
    }
    return null;
  }
}
