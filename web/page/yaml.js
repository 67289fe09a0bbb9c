// Objects as YAML, which the server writes and reads: shown, changed by server-side
// apply after a dry run, and created.

import { MANAGER, address, apiPath, dropsOn, h, kindFor, maker, may, say, send, write } from "./core.js";
import { changes } from "./diff.js";

const YAML = "application/yaml", APPLY = "application/apply-patch+yaml";
const LARGEST = 3 << 20;

// Annotations that a controller writes; with them in an edit, its next write would be a conflict.
const CONTROLLERS = /^ {4}deployment\.kubernetes\.io\/(revision|revision-history|desired-replicas|max-replicas): /;

/** The text without what only the server sets: fields of metadata, annotations of controllers, and the status. */
export function editable(text) {
  const out = [];
  let top = "", skip = false;
  for (const line of text.split("\n")) {
    const [, name] = /^([A-Za-z]\w*):/.exec(line) ?? [], [, field] = /^ {2}([A-Za-z]\w*):/.exec(line) ?? [];
    if (name) [top, skip] = [name, name === "status"];
    else if (top === "metadata" && CONTROLLERS.test(line)) continue;
    else if (top === "metadata" && field) skip = /^(managedFields|creationTimestamp|resourceVersion|uid|generation|selfLink)$/.test(field);
    if (!skip) out.push(line);
  }
  return out.join("\n").replace(/^ {2}annotations:\n(?! {4})/m, "");
}

/** Without the fields' managers, which nobody reads. */
const readable = (text) => text.replace(/^ {2}managedFields:\n(?: {2}- .*\n| {4}.*\n)*/m, "");

const EXAMPLE = "For example:\n\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: hello}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: hello}}\n  template:\n    metadata: {labels: {app: hello}}\n    spec:\n      containers:\n        - {name: web, image: \"nginx:1\"}";

function editor(text, label, readonly = false, placeholder = "") {
  return h("textarea", { class: "editor", spellcheck: "false", autocomplete: "off", autocapitalize: "none", "aria-label": label, wrap: "off", readonly, placeholder, rows: Math.min(40, Math.max(12, (text || placeholder).split("\n").length + 1)) }, text);
}

/** The fields that other managers own, one by one. */
function conflicts(err) {
  const causes = err.status?.details?.causes ?? [];
  if (err.code !== 409 || !causes.some((c) => c.reason === "FieldManagerConflict")) return null;
  return h("ul", { class: "conflicts plainly" }, causes.map((c) => h("li", {}, h("code", {}, c.field), ` ${owner(c.message)}`)));
}

/** isOwn reports whether all fields in conflict are what the page itself has set, with a button for instance. */
const isOwn = (err) => err.code === 409 && err.status?.details?.causes?.length > 0 && err.status.details.causes.every((c) => c.message.startsWith(`conflict with "${MANAGER}" `));

/** owner puts a conflict's message, conflict with "kubectl" using v1, in words. */
function owner(message) {
  const [, name] = /^conflict with "(.+)"/.exec(message) ?? [];
  return name === "before-first-apply" ? "was set when the object was created or edited" : name ? `belongs to "${name}"` : message;
}

export class Part {
  #body;
  #kind;
  #path;
  #name;
  #text = ""; // as the server has it
  #version = "";
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
    this.#may = may("patch", kind, { namespace, name });
    const by = maker(obj);
    if (by) this.#hint = h("p", { class: "hint" }, h("a", { href: address(by.kind, namespace, by.name, "yaml") }, `${by.kind.kind} ${by.name}`), ` makes this ${kind.kind}. To change it for good, change that.`);
    if (kind.name !== "secrets") this.#load();
    else body.replaceChildren(h("button", { type: "button", class: "quiet", onclick: () => this.#load() }, "Show it with its values"));
  }

  close() {}

  update(obj) {
    if (this.#version && obj.metadata.resourceVersion !== this.#version) write(this.#stale, "It has changed since it was read here.");
  }

  async #load(full = false) {
    try {
      const text = await (await send("GET", this.#path(), { accept: YAML })).text();
      this.#version = /^ {2}resourceVersion: "?(\d+)"?$/m.exec(text)?.[1] ?? "";
      this.#text = editable(text);
      this.#show(full ? readable(text) : this.#text, full);
    } catch (err) {
      this.#body.replaceChildren(h("p", { class: "error" }, err.message));
    }
  }

  #show(text, full) {
    const edits = this.#may && !full;
    this.#area = editor(text, `YAML of ${this.#name}`, !edits);
    this.#out.replaceChildren();
    write(this.#stale, "");
    this.#area.addEventListener("input", () => this.#out.replaceChildren());
    const button = (label, act, main) => h("button", { type: "button", class: main ? "main" : "quiet", onclick: act }, label);
    this.#body.replaceChildren(h("div", { class: "tools" },
      edits ? button("Review changes", () => this.#review(), true) : null, button("Read again", () => this.#load(full)),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: full, onchange: (ev) => this.#load(ev.target.checked) }), " With status"), this.#stale), edits ? this.#hint : "", this.#out, this.#area);
  }

  /** apply returns the object as YAML; errors come as a Status in JSON, for their fields. */
  async #apply(dry, force, replace) {
    try {
      return await this.#send(dry, force, replace, YAML);
    } catch (err) {
      if (err.code < 400) throw err;
      return this.#send(dry, force, replace, "application/json");
    }
  }

  #send(dry, force, replace, accept) {
    const query = { fieldManager: MANAGER };
    if (dry) query.dryRun = "All";
    if (replace) {
      const body = this.#area.value.replace(/^metadata:[ ]*$/m, `metadata:\n  resourceVersion: "${this.#version}"`);
      return send("PUT", this.#path(query), { body, type: YAML, accept });
    }
    if (force) query.force = "true";
    return send("PATCH", this.#path(query), { body: this.#area.value, type: APPLY, accept });
  }

  /** review asks the server what would change, and shows it with a button that does it. */
  async #review(force = false, replace = false, own = false) {
    this.#out.replaceChildren(h("p", { class: "hint" }, "Asking the server…"));
    let after;
    try {
      this.#text = editable(await (await send("GET", this.#path(), { accept: YAML })).text()); // it may have changed
      after = editable(await (await this.#apply(true, force, replace)).text());
    } catch (err) {
      if (!force && isOwn(err)) {
        this.#review(true, false, true);
        return;
      }
      const fields = conflicts(err);
      this.#out.replaceChildren(fields
        ? h("div", { class: "warning" }, h("p", {}, "Somebody else has set these fields. If that is a program, it may set them again."), fields,
          h("div", {}, h("button", { type: "button", class: "danger", onclick: () => this.#review(true) }, "Take over these fields")))
        : h("p", { class: "error", role: "alert" }, err.message));
      return;
    }
    const list = changes(this.#text, after), kept = replace ? [] : stays(this.#text, this.#area.value, after);
    this.#out.replaceChildren(
      list ?? h("p", { class: "hint" }, "The server would change nothing."),
      kept.length ? h("div", { class: "warning" }, h("p", {}, "These lines stay, because somebody else has set them:"), h("pre", { tabindex: "0" }, kept.slice(0, 20).join("\n")),
        h("div", {}, h("button", { type: "button", class: "quiet", onclick: () => this.#review(false, true) }, "Replace the whole object instead"))) : "",
      list ? h("div", { class: "tools" }, h("button", { type: "button", class: (force && !own) || replace ? "danger" : "main", "data-action": "apply", onclick: (ev) => this.#commit(ev.target, force, replace) }, replace ? "Replace" : force && !own ? "Apply and take over" : "Apply")) : "");
    this.#out.querySelector("[data-action=apply]")?.focus();
  }

  async #commit(button, force, replace) {
    button.disabled = true;
    try {
      await this.#apply(false, force, replace);
      await this.#load();
      this.#out.replaceChildren(h("p", { class: "hint" }, "Applied."));
      say(`${this.#name} is applied`);
    } catch (err) {
      this.#out.replaceChildren(h("p", { class: "error", role: "alert" }, err.message));
    }
  }
}

/** The lines that the user removed and the server keeps. */
function stays(before, edited, after) {
  const set = (text) => new Set(text.split("\n").map((l) => l.trim()));
  const [e, a] = [set(edited), set(after)];
  return before.split("\n").filter((l) => l.trim() && !e.has(l.trim()) && a.has(l.trim()));
}

// --- create ---

/** A document's kind and name: { apiVersion, kind, name, namespace, generates }. */
export function identity(doc) {
  const top = (name) => new RegExp(`^["']?${name}["']?:\\s*["']?([^\\s"'#]+)`, "m").exec(doc)?.[1] ?? "";
  if (/^\s*\{/.test(doc)) {
    const { apiVersion = "", kind = "", metadata = {} } = JSON.parse(doc);
    return { apiVersion, kind, name: metadata.name ?? "", namespace: metadata.namespace ?? "", generates: Boolean(metadata.generateName) };
  }
  const block = /^metadata:[^\n]*\n?(?:[ ]+[^\n]*\n?|\n|#[^\n]*\n?)*/m.exec(`${doc}\n`)?.[0] ?? "";
  const indent = /\n([ ]+)\S/.exec(block)?.[1] ?? "  ";
  const field = (name) => new RegExp(`(?:^${indent}|[{,]\\s*)["']?${name}["']?:\\s*["']?([^\\s"',}#]+)`, "m").exec(block)?.[1] ?? "";
  return { apiVersion: top("apiVersion"), kind: top("kind"), name: field("name"), namespace: field("namespace"), generates: Boolean(field("generateName")) };
}

export class Create {
  #namespace;
  #area = editor("", "YAML or JSON of the objects", false, EXAMPLE);
  #out = h("div", { class: "review", "aria-live": "polite" });

  constructor(main, namespace) {
    this.#namespace = namespace || "default";
    const file = h("input", { type: "file", accept: ".yaml,.yml,.json", multiple: true, onchange: (ev) => this.#files(ev.target.files) });
    const zone = h("div", { class: "drop" }, this.#area);
    dropsOn(zone, (files) => this.#files(files));
    main.replaceChildren(h("h2", { tabindex: "-1" }, "Create"),
      h("p", { class: "hint" }, "One or more documents, as for kubectl apply. Drop files here. Objects without a namespace are created in ", h("strong", {}, this.#namespace), "."),
      h("div", { class: "tools" }, h("button", { type: "button", class: "main", onclick: () => this.#run(true) }, "Check"), h("label", {}, h("span", {}, "Files"), file)), this.#out, zone);
    this.#area.addEventListener("input", () => this.#out.replaceChildren());
  }

  close() {}

  async #files(list) {
    const texts = [];
    for (const file of list) {
      if (file.size > LARGEST) {
        this.#out.replaceChildren(h("p", { class: "error" }, `${file.name} is larger than 3 MiB`));
        return;
      }
      texts.push((await file.text()).trim());
    }
    this.#area.value = texts.join("\n---\n");
    this.#run(true);
  }

  /** run applies every document, first as a dry run. */
  async #run(dry) {
    const docs = this.#area.value.split(/^---.*$/m).filter((d) => d.replace(/^\s*#.*$/gm, "").trim());
    const results = [];
    for (const doc of docs) results.push(await this.#one(doc, dry));
    const failed = results.filter((r) => r.error).length;
    this.#out.replaceChildren(h("ul", { class: "plainly" }, results.map((r) => h("li", { class: r.error ? "error" : null },
      r.link && !dry ? h("a", { href: r.link, class: "name" }, r.title) : h("span", { class: "name" }, r.title), ` ${r.error ? r.error.message : r.done}`, r.error ? conflicts(r.error) : null))),
    !docs.length ? h("p", { class: "hint" }, "There is no document.") : failed ? h("p", { class: "hint" }, `${failed} of ${docs.length} are refused.`) : dry
      ? h("div", { class: "tools" }, h("button", { type: "button", class: "main", "data-action": "create", onclick: () => this.#run(false) }, docs.length === 1 ? "Create it" : `Create all ${docs.length}`)) : "");
    this.#out.querySelector("[data-action=create]")?.focus();
  }

  async #one(doc, dry) {
    let title = "document";
    try {
      const it = identity(doc), kind = kindFor(it.apiVersion, it.kind);
      title = `${it.kind || "?"} ${it.name}`;
      if (!kind) throw new Error(`The server has no kind ${it.kind || "?"} in ${it.apiVersion || "?"}.`);
      if (!it.name && !it.generates) throw new Error("metadata.name is missing.");
      const namespace = kind.namespaced ? it.namespace || this.#namespace : "", query = { fieldManager: MANAGER, ...(dry ? { dryRun: "All" } : {}) };
      const response = it.generates && !it.name
        ? await send("POST", apiPath(kind, namespace, "", "", query), { body: doc, type: YAML })
        : await send("PATCH", apiPath(kind, namespace, it.name, "", query), { body: doc, type: APPLY });
      const { metadata } = await response.json(), made = response.status === 201;
      const warning = response.headers.get("Warning");
      return { title, link: address(kind, metadata.namespace, metadata.name), done: `${dry ? `would be ${made ? "created" : "changed"}` : made ? "created" : "changed"}${warning ? ` (${warning.replace(/^299 - "|"$/g, "")})` : ""}` };
    } catch (error) {
      return { title, error };
    }
  }
}
