// Helm's releases, read from its Secrets: a revision each, whose data is a JSON document, compressed.

import { address, ago, apiPath, AS_METADATA, compare, core, getJSON, h, kindFor, may, millis, moodly, now, readJSON, say, send, tickAges, write } from "./core.js";
import { dialog } from "./dialogs.js";
import { documentsOf, identify } from "./fields.js";
import { home } from "./live.js";
import { edits, left, merged, tree } from "./merge.js";
import { facts, table } from "./sections.js";
import { t } from "./text.js";

const TYPE = "helm.sh/release.v1", YAML = "application/yaml", APPLY = "application/apply-patch+yaml", MANAGER = "helm";
const LARGEST = 32 << 20; // bytes of a release
const MOST = 200; // releases of a list
const TURNS = 5; // of writing an object that others write as well

const MOODS = { deployed: "ok", failed: "bad", superseded: "done", uninstalled: "done" };
const mood = (status) => moodly(MOODS[status] ?? "wait", status);
const number = ({ metadata }) => Number(metadata.labels?.version ?? 0);
const secrets = (namespace, name, query) => apiPath(core("secrets"), namespace, name, "", query);

/** unpack is the release in a Secret. */
async function unpack(secret) {
  const bytes = Uint8Array.from(atob(atob(secret.data?.release ?? "")), (c) => c.charCodeAt(0));
  if (bytes[0] !== 0x1f) return JSON.parse(new TextDecoder().decode(bytes));
  let size = 0;
  const bounded = new TransformStream({ transform(chunk, to) {
    size += chunk.length;
    if (size > LARGEST) throw new Error(t`This release is larger than 32 MiB.`);
    to.enqueue(chunk);
  } });
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")).pipeThrough(bounded)).json();
}

/** pack is the Secret of a release, as Helm writes it. */
async function pack(release) {
  const zipped = new Uint8Array(await new Response(new Blob([JSON.stringify(release)]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer());
  let text = "";
  for (const byte of zipped) text += String.fromCharCode(byte);
  const { name, namespace, version, info } = release;
  return { apiVersion: "v1", kind: "Secret", type: TYPE, data: { release: btoa(btoa(text)) },
    metadata: { name: `sh.helm.release.v1.${name}.v${version}`, namespace, labels: { ...release.labels, name, owner: "helm", status: info.status, version: String(version), modifiedAt: String(Math.floor(now() / 1000)) } } };
}

/** revisions are the Secrets of a namespace ("": all), without their data, the newest first. */
async function revisions(namespace, name) {
  const query = { fieldSelector: `type=${TYPE}`, labelSelector: `owner=helm${name ? `,name=${name}` : ""}` };
  const { items } = await getJSON(secrets(namespace, "", query), { accept: AS_METADATA });
  return items.sort((a, b) => number(b) - number(a));
}

const latest = (all) => [...new Map(all.toReversed().map((s) => [`${s.metadata.namespace}/${s.metadata.labels.name}`, s])).values()];
const chart = ({ chart: { metadata: m = {} } = {} }) => `${m.name ?? ""} ${m.version ?? ""}`;
const page = (namespace, name) => `#/helm/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

/** Releases is the list. */
export class Releases {
  #main;

  constructor(main) {
    this.#main = main;
    const body = h("div", {}, h("p", { class: "empty" }, t`Loading…`));
    main.replaceChildren(h("h2", { id: "title", tabindex: "-1" }, t`Helm releases`), body);
    this.#load(body).catch((err) => body.replaceChildren(h("p", { class: "error" }, err.message)));
  }

  close() {}

  tick() {
    tickAges(this.#main);
  }

  async #load(body) {
    const all = latest(await revisions(may("list", core("secrets")) ? "" : home.namespace)).sort((a, b) => compare(a.metadata.namespace, b.metadata.namespace) || compare(a.metadata.labels.name, b.metadata.labels.name));
    const rows = await Promise.all(all.slice(0, MOST).map(async ({ metadata: { namespace, name, labels } }) => {
      const release = await getJSON(secrets(namespace, name)).then(unpack).catch(() => ({}));
      return [h("a", { href: page(namespace, labels.name) }, labels.name), namespace, labels.version, mood(labels.status), chart(release), release.chart?.metadata?.appVersion ?? "", ago(millis(release.info?.last_deployed))];
    }));
    body.replaceChildren(table([t`Name`, t`Namespace`, t`Revision`, t`Status`, t`Chart`, t`Version of the app`, t`Updated`], rows) ?? h("p", { class: "empty" }, t`No release is installed. helm install creates one.`));
    if (all.length > MOST) body.append(h("p", { class: "hint" }, t`Only the first ${MOST} of ${all.length} releases are shown.`));
  }
}

/** Release is the page of one. */
export class Release {
  #main;
  #body = h("div", { class: "body" }, h("p", { class: "empty" }, t`Loading…`));
  #at;

  constructor(main, at) {
    [this.#main, this.#at] = [main, at];
    main.replaceChildren(h("p", { class: "crumb" }, h("a", { href: "#/helm" }, t`Helm releases`), " ", t`in ${at.namespace}`), h("h2", { id: "title", tabindex: "-1" }, at.name), this.#body);
    this.#load();
  }

  close() {}

  tick() {
    tickAges(this.#main);
  }

  async #load() {
    try {
      await this.#draw();
    } catch (err) {
      this.#body.replaceChildren(h("p", { class: "error" }, err.message));
    }
  }

  async #draw() {
    const { namespace, name } = this.#at, list = await revisions(namespace, name);
    if (!list.length) throw new Error(t`There is no release ${name} in ${namespace}.`);
    const all = await Promise.all(list.map((s) => getJSON(secrets(namespace, s.metadata.name)).then(unpack))), [release] = all, { info, manifest = "" } = release;
    const returns = ["create", "update"].every((verb) => may(verb, core("secrets"), { namespace }));
    const history = all.map((r, i) => [`${r.version}`, mood(r.info.status), chart(r), ago(millis(r.info.last_deployed), true), r.info.description ?? "",
      i && returns ? h("button", { type: "button", class: "quiet", onclick: () => this.#back(all, r) }, t`Return to revision ${r.version}`) : ""]);
    const section = (title, ...content) => h("section", { "aria-label": title, "data-section": title }, h("h3", {}, title), content);
    const folded = (title, text) => (text.trim() ? h("details", { "aria-label": title }, h("summary", {}, title), code(text, title)) : null);
    this.#body.replaceChildren(
      section(t`Release`, facts([[t`Status`, mood(info.status)], [t`Revision`, release.version], [t`Chart`, chart(release)], [t`Version of the app`, release.chart?.metadata?.appVersion], [t`Updated`, ago(millis(info.last_deployed), true)], [t`Said`, info.description]])),
      info.notes ? section(t`Notes`, code(info.notes, t`Notes`)) : "",
      section(t`Values`, Object.keys(release.config ?? {}).length ? code(yaml(release.config), t`Values`) : h("p", { class: "muted" }, t`None are set: those of the chart hold.`), folded(t`Values of the chart`, yaml(release.chart?.values ?? {}))),
      section(t`Objects`, objects(manifest, namespace), folded(t`Manifest`, manifest)),
      section(t`History`, table([t`Revision`, t`Status`, t`Chart`, t`Updated`, t`Said`, t`Return`], history)));
  }

  #back(all, target) {
    const error = h("p", { role: "status" }), [current] = all;
    return dialog({
      title: t`Return to revision ${target.version}`, what: [h("strong", { class: "name" }, current.name)], submit: t`Return`,
      body: [h("p", {}, t`The objects get what revision ${target.version} (${chart(target)}) says, as a new revision, as helm rollback does. Hooks of the chart do not run.`), error],
      act: async () => {
        await rollback(all, target, (text) => write(error, text));
        say(t`${current.name} is returned to revision ${target.version}`);
        await this.#load();
        return true;
      },
    });
  }
}

const code = (text, label) => h("pre", { class: "code", tabindex: "0", role: "group", "aria-label": label }, text);

const documents = (manifest) => documentsOf(manifest).map(({ text }) => ({ text, ...identify(text) })).filter((d) => d.kind);

function objects(manifest, release) {
  return h("ul", { class: "plainly" }, documents(manifest).map(({ apiVersion, kind, name, namespace }) => {
    const k = kindFor(apiVersion, kind);
    return h("li", {}, `${kind} `, k ? h("a", { class: "name", href: address(k, namespace || release, name) }, name) : h("span", { class: "name" }, name));
  }));
}

/** yaml writes plain data. */
export function yaml(value, indent = "") {
  const scalar = (v) => (typeof v === "string" ? (/^[\w./][\w ./-]*$/.test(v) && !/^([\d.+-].*|true|false|null|yes|no|on|off|~)$/i.test(v) && v === v.trim() ? v : JSON.stringify(v)) : JSON.stringify(v));
  const whole = (v) => v === null || typeof v !== "object" || !Object.keys(v).length;
  const lines = Array.isArray(value) ? value.map((v) => (whole(v) ? `${indent}- ${scalar(v)}\n` : `${indent}- ${yaml(v, `${indent}  `).trimStart()}`))
    : Object.entries(value).map(([k, v]) => (whole(v) ? `${indent}${scalar(k)}: ${scalar(v)}\n` : `${indent}${scalar(k)}:\n${yaml(v, `${indent}  `)}`));
  return lines.join("");
}

// --- rollback ---

const id = (d, release) => `${d.apiVersion.split("/")[0]} ${d.kind} ${d.namespace || release} ${d.name}`;

/** rollback writes a new revision with the manifest of target; what is not in it any more is deleted. */
async function rollback(all, target, tell) {
  const [current] = all, { namespace, name } = current, at = new Date(now()).toISOString();
  const next = { ...target, version: current.version + 1, info: { ...target.info, first_deployed: current.info.first_deployed, last_deployed: at, status: "pending-rollback", description: `Preparing rollback to ${target.version}` } };
  await send("POST", secrets(namespace), { body: await pack(next) });
  try {
    const is = documents(target.manifest), old = new Map(documents(current.manifest).map((d) => [id(d, namespace), d]));
    for (const doc of is) {
      tell(`${doc.kind} ${doc.name}`);
      await turn(old.get(id(doc, namespace)), doc, namespace);
      old.delete(id(doc, namespace));
    }
    for (const doc of old.values()) {
      if (!/helm\.sh\/resource-policy["']?:\s*["']?keep/.test(doc.text)) await send("DELETE", pathOf(doc, namespace), { body: { apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: "Background" } }).catch((err) => err.code === 404 || Promise.reject(err));
    }
  } catch (err) {
    await save({ ...next, info: { ...next.info, status: "failed", description: `Rollback "${name}" failed: ${err.message}` } });
    throw err;
  }
  for (const r of all.filter((r) => r.info.status === "deployed")) await save({ ...r, info: { ...r.info, status: "superseded" } });
  await save({ ...next, info: { ...next.info, status: "deployed", description: `Rollback to ${target.version}` } });
}

/** save replaces the Secret of a revision. */
async function save(release) {
  const secret = await pack(release);
  await send("PUT", secrets(release.namespace, secret.metadata.name), { body: secret });
}

function pathOf({ apiVersion, kind, name, namespace }, release, query) {
  const k = kindFor(apiVersion, kind);
  if (!k) throw new Error(t`The server has no kind ${kind} in ${apiVersion}.`);
  return apiPath(k, namespace || release, name, "", query);
}

/**
 * turn makes of an object what a document says. Helm 4 applies it; for Helm 3, which only sets fields, what differs
 * between the two documents is written into the object as it is now.
 */
async function turn(was, is, release) {
  const path = (query) => pathOf(is, release, { fieldManager: MANAGER, ...query });
  for (let turns = 1; ; turns++) {
    try {
      const live = await getJSON(pathOf(is, release)), fields = live.metadata.managedFields ?? [];
      if (fields.some((f) => f.manager === MANAGER && f.operation === "Apply")) return void await send("PATCH", path({ force: "true" }), { body: is.text, type: APPLY });
      if (was?.text === is.text) return;
      const parsed = ({ text }) => readJSON("PUT", path({ dryRun: "All" }), { body: text.replace(/^metadata:[ ]*$/m, `metadata:\n  resourceVersion: "${live.metadata.resourceVersion}"`), type: YAML });
      const [before, after] = await Promise.all([was ? parsed(was) : live, parsed(is)]);
      const list = left(edits(plain(before), plain(after), tree(fields)), live);
      if (list.length) await send("PUT", path(), { body: merged(list, live) });
      return;
    } catch (err) {
      if (err.code === 404) return void await send("POST", pathOf({ ...is, name: "" }, release, { fieldManager: MANAGER }), { body: is.text, type: YAML });
      if (err.code !== 409 || turns === TURNS) throw err;
    }
  }
}

/** Without what only the server sets. */
function plain({ status: _, metadata: { name, labels, annotations }, ...obj }) {
  return { ...obj, metadata: { name, labels, annotations } };
}
