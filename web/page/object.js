// The page of one object: what it is, what belongs to it, and its parts (logs, terminal,
// YAML, revisions), each with an address of its own.

import { actions, buttons } from "./actions.js";
import { address, ago, apiPath, AS_METADATA, builtIn, compare, core, getJSON, grace, h, inGroup, isAdmin, kindFor, kinds, load, maker, may, millis, moment, moodly, moodOf, moodOfReady, plural, say, send, tickAges, write } from "./core.js";
import { Feed } from "./live.js";
import { Sections, facts, miniTable } from "./sections.js";
import { t } from "./text.js";
import { POLL, ofPods, shows } from "./use.js";
import { why } from "./why.js";

const key = (kind) => `${kind.name}.${kind.group}`;

/** Kinds whose pods have logs that can be read together. */
const OWNERS = ["deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "services.", "replicationcontrollers."];
/** Kinds that are part of an app. */
const MAPPED = ["namespaces.", "pods.", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "replicationcontrollers.",
  "services.", "ingresses.networking.k8s.io", ...["httproutes", "grpcroutes", "tlsroutes", "tcproutes", "gateways"].map((name) => `${name}.gateway.networking.k8s.io`), "networkpolicies.networking.k8s.io",
  "horizontalpodautoscalers.autoscaling", "poddisruptionbudgets.policy", "persistentvolumeclaims.", "configmaps.", "secrets.", "serviceaccounts."];
const UNDOES = ["deployments.apps", "statefulsets.apps", "daemonsets.apps"];

/** The selector of the pods of a workload, as text; "" if it has none. */
export function selector(obj) {
  const s = obj.spec?.selector;
  if (!s) return "";
  if (!s.matchLabels && !s.matchExpressions) return pairs(s); // a Service's
  return selectorText(s);
}

/** A LabelSelector as text; "" for one that selects everything. */
export const selectorText = ({ matchLabels = {}, matchExpressions = [] }) => [pairs(matchLabels), ...matchExpressions.map(requirement)].filter(Boolean).join(",");

/** A filter of the list of pods that says the same as a selector; "" if none can, because words of a filter have no spaces: a in (b,c). */
export const filterOf = (labels) => (labels && !labels.includes(" ") ? `label:${labels}` : "");

const pairs = (labels) => Object.entries(labels).map(([k, v]) => `${k}=${v}`).join(",");

function requirement({ key: k, operator, values = [] }) {
  if (operator === "Exists") return k;
  if (operator === "DoesNotExist") return `!${k}`;
  return `${k} ${operator === "In" ? "in" : "notin"} (${values.join(",")})`;
}

export class ObjectPage {
  #kind;
  #at;
  #feed;
  #main;
  #obj = null;
  #row = null;
  #part = null; // the view of logs, terminal, …
  #sections;
  #wrong = false; // as the answer to why says
  #terminal = false; // of the node
  #feeds = [];
  #closed = false;
  #parts;

  constructor(main, kind, at) {
    this.#kind = kind;
    this.#at = at;
    this.#main = main;
    const title = h("h2", { id: "title", tabindex: "-1" }, at.name), mood = h("p", { class: "state" }), tabs = h("nav", { class: "tabs", "aria-label": t`Parts` });
    const bar = h("div", { class: "bar" }), body = h("div", { class: "body" }, h("p", { class: "empty" }, t`Loading…`));
    const crumb = h("p", { class: "crumb" }, h("a", { href: address(kind, "", "", "", { ns: kind.namespaced ? at.namespace : "" }) }, plural(kind)), at.namespace ? [" ", t`in ${at.namespace}`] : "");
    this.#parts = { title, mood, tabs, bar, body };
    main.replaceChildren(crumb, h("div", { class: "head" }, title, mood), bar, tabs, body);
    this.#feed = new Feed({ kind, namespace: at.namespace, fields: `metadata.name=${at.name}`, full: true }, (feed) => this.#update(feed));
  }

  close() {
    this.#closed = true;
    this.#feed.close();
    this.#part?.close();
    for (const feed of this.#feeds) feed.close();
    this.#sections?.close();
  }

  get target() {
    const { namespace, name } = this.#at;
    return { kind: this.#kind, obj: this.#obj ?? { metadata: { namespace, name } } };
  }

  tick() {
    tickAges(this.#main);
    if (this.#obj?.metadata.deletionTimestamp) this.#state();
    this.#part?.tick?.();
  }

  #update(feed) {
    const row = feed.items[0];
    if (!row) {
      const { state, error } = feed, { kind, name } = { kind: this.#kind, name: this.#at.name };
      const text = state === "denied" ? t`You are not allowed to list ${kind.name}.` : state === "live" ? this.#obj ? t`There is no ${kind.kind} ${name} any more.` : t`There is no ${kind.kind} ${name}.` : error || t`Loading…`;
      if (!this.#obj) this.#parts.body.replaceChildren(h("p", { class: "empty" }, text));
      else if (state === "live") this.#gone(text);
      return;
    }
    const first = !this.#obj || this.#obj.metadata.uid !== row.uid;
    [this.#row, this.#obj] = [row, row.obj];
    this.#state();
    this.#bar();
    if (first) this.#open();
    else this.#sections?.draw(this.#obj, this.#row);
    this.#part?.update?.(this.#obj);
  }

  #gone(text) {
    this.#parts.mood.replaceChildren(moodly("done", text));
    this.#parts.bar.replaceChildren();
    say(text);
  }

  /** state is the server's word for the object, and the rest of its grace period. */
  #state() {
    const { columns } = this.#feed, cell = (name) => this.#row.cells[columns.findIndex((c) => c.name === name)];
    const status = cell("Status") ?? cell("Condition"), ends = grace(this.#obj.metadata), ready = String(cell("Ready") ?? "");
    const ratio = /^\d+\/\d+$/.test(ready) ? ready : "";
    const parts = [];
    if (ends) parts.push(moodly("ending", "Terminating"), h("span", { class: "left" }, ends.left > 0 ? h("progress", { max: Math.max(1, ends.total), value: ends.left, "aria-label": t`Grace left` }) : null, ends.left > 0 ? [" ", t`${ends.left} s left`] : this.#kind.name === "pods" ? t`grace over: waiting for the node to say that its containers are dead` : t`waiting for its finalizers`));
    else if (status !== undefined && status !== "") parts.push(moodly(this.#worse(moodOf(status, ratio)), String(status)));
    if (ratio) parts.push(parts.length ? h("span", { class: "muted" }, t`${ratio} ready`) : moodly(this.#worse(moodOfReady(ratio)), t`${ratio} ready`));
    this.#parts.mood.replaceChildren(...parts);
  }

  /** worse is the mood, or bad where something is wrong. */
  #worse(mood) {
    return this.#wrong && /ok|wait/.test(mood) ? "bad" : mood;
  }

  #bar() {
    const wanted = JSON.stringify(actions(this.#kind, this.#obj).map((a) => a.label)) + this.#obj.metadata.resourceVersion;
    if (this.#parts.bar.dataset.drawn === wanted) return;
    const focused = document.activeElement?.dataset?.action;
    this.#parts.bar.dataset.drawn = wanted;
    this.#parts.bar.replaceChildren(...buttons(this.#kind, this.#obj));
    if (focused) this.#parts.bar.querySelector(`[data-action="${focused}"]`)?.focus();
  }

  #tabs() {
    const kind = this.#kind, where = { namespace: this.#at.namespace }, pods = core("pods"), all = [["", t`Overview`]];
    const logs = pods && may("get", pods, { ...where, subresource: "log" });
    if (logs && (kind === pods || OWNERS.includes(key(kind)) && selector(this.#obj))) all.push(["logs", t`Logs`]);
    if (kind === pods ? may("create", kind, { ...where, subresource: "exec" }) : this.#terminal) all.push(["shell", t`Terminal`]);
    if (MAPPED.includes(key(kind))) all.push(["map", t`Map`]);
    all.push(["yaml", "YAML"]);
    if (UNDOES.includes(key(kind))) all.push(["revisions", t`Revisions`]);
    this.#parts.tabs.replaceChildren(...all.map(([part, text]) =>
      h("a", { href: address(kind, this.#at.namespace, this.#at.name, part), "aria-current": part === this.#at.part ? "page" : null }, text)));
    return all.some(([part]) => part === this.#at.part);
  }

  async #open() {
    this.#part?.close();
    this.#part = null;
    const { body } = this.#parts, { part } = this.#at;
    if (this.#kind === core("nodes") && isAdmin()) {
      const asked = this.#askTerminal().catch(() => {});
      if (part === "shell") await asked; // another part does not wait for a node that does not answer
    }
    if (this.#closed) return;
    if (!this.#tabs()) {
      body.replaceChildren(h("p", { class: "empty" }, t`There is no such part, or you may not see it.`));
      return;
    }
    if (!part) {
      try {
        await this.#overview(body);
      } catch (err) {
        body.replaceChildren(h("p", { class: "error" }, t`This part of the page did not load: ${err.message}`));
      }
      return;
    }
    const open = { logs: () => load("logs.js"), shell: () => load("terminal.js"), yaml: () => load("yaml.js"), revisions: () => load("revisions.js"), map: () => load("map.js") }[part];
    try {
      const module = await open();
      if (!this.#closed) this.#part = new module.Part(body, this.#kind, this.#obj, this.#at.query);
    } catch (err) {
      body.replaceChildren(h("p", { class: "error" }, t`This part of the page did not load: ${err.message}`));
    }
  }

  async #askTerminal() {
    const { ofNode } = await load("terminal.js");
    this.#terminal = await ofNode(this.#at.name);
    if (!this.#closed) this.#tabs();
  }

  // --- the overview ---

  async #overview(body) {
    const kind = this.#kind, special = kind === core("pods") ? await load("pod.js") : kind === core("nodes") ? await load("node.js") : null;
    const said = special ? null : await load("kinds.js");
    if (this.#closed) return;
    let asks = () => {};
    const follow = (query, changed) => {
      const feed = new Feed(query, (f) => {
        changed(f);
        asks();
      });
      this.#feeds.push(feed);
      return feed;
    };
    this.#sections = new Sections(body, follow);
    const s = this.#sections;
    asks = why(s, kind, (wrong) => {
      this.#wrong = wrong;
      this.#state();
    });
    special?.sections(s, this.#obj);
    said?.sections(s, kind, this.#obj);
    if (!special) this.#workload(s);
    s.add(t`Details`, (obj, row) => facts(this.#details(obj, row)), (obj, row) => [obj.metadata, row.cells]);
    if (!special) s.add(t`Conditions`, conditions, allConditions);
    this.#children(s);
    const events = core("events");
    if (kind !== core("pods") && kind !== events && may("list", events, { namespace: this.#at.namespace || "default" })) {
      s.live(t`Events`, { kind: events, namespace: this.#at.namespace, fields: `involvedObject.uid=${kind === core("nodes") ? this.#obj.metadata.name : this.#obj.metadata.uid}` },
        (feed) => miniTable(events, feed, { skip: ["Object"], newest: true }));
    }
    s.draw(this.#obj, this.#row);
  }

  /** details are the server's columns and the metadata. */
  #details(obj, row) {
    const { metadata: m } = obj, kind = this.#kind;
    const printed = this.#feed.columns.map((c, i) => [c.name, row.cells[i]])
      .filter(([name, v]) => kind !== core("nodes") && !/^(Name|Age|Status|Ready)$/.test(name) && v !== null && v !== "" && v !== "<none>" && v !== "<unset>")
      .filter(([name]) => !obj.spec?.template || !/^(Containers|Images)$/.test(name)); // those have a section
    const owners = (m.ownerReferences ?? []).map((ref) => {
      const k = kindFor(ref.apiVersion, ref.kind), text = `${ref.kind} ${ref.name}`;
      return k ? h("a", { href: address(k, m.namespace, ref.name) }, text) : text;
    });
    const by = maker(obj);
    if (by && !m.ownerReferences.some((ref) => ref.name === by.name)) owners.push(h("a", { href: address(by.kind, m.namespace, by.name) }, `${by.kind.kind} ${by.name}`));
    const node = kind.name === "pods" && obj.spec.nodeName && core("nodes");
    return [
      ...printed.map(([name, v]) => [name, name === "Node" && node ? h("a", { href: address(node, "", v) }, v) : String(v)]),
      [t`Owner`, owners.length ? owners.flatMap((o, i) => (i ? [", ", o] : [o])) : ""],
      [t`Created`, [ago(millis(m.creationTimestamp), true), h("span", { class: "muted" }, `, ${moment(millis(m.creationTimestamp))}`)]],
      [t`Labels`, chips(m.labels, kind, m.namespace)],
      [t`Annotations`, chips(m.annotations)],
      [t`Finalizers`, (m.finalizers ?? []).join(", ")],
    ];
  }

  /** workload shows what kinds have besides their metadata. */
  #workload(s) {
    const kind = this.#kind;
    const { uid, namespace, name } = this.#obj.metadata, labels = OWNERS.includes(key(kind)) ? selector(this.#obj) : "";
    if (labels && shows("pods", { namespace })) s.poll(t`Use`, POLL, () => ofPods(uid, namespace, labels));
    if (key(kind) === "namespaces." && shows("pods", { namespace: name })) s.poll(t`Use`, POLL, () => ofPods(uid, name));
    if (key(kind) === "configmaps.") s.add(t`Data`, (obj) => data(obj.data ?? {}), (obj) => obj.data);
    if (key(kind) === "secrets.") s.add(t`Data`, secretData, (obj) => obj.data);
    if (key(kind) === "services.") s.add(t`Ports`, (obj) => servicePorts(kind, obj), (obj) => obj.spec);
    if (this.#obj.spec?.template?.spec?.containers) {
      s.add(t`Containers`, (obj) => h("ul", { class: "plainly" }, obj.spec.template.spec.containers.map((c) => h("li", {}, h("strong", { class: "name" }, c.name), " ", h("span", { class: "name" }, c.image)))), (obj) => obj.spec.template.spec);
    }
  }

  /** children are the objects that belong to this one. */
  #children(s) {
    const { namespace, uid, name } = this.#obj.metadata, kind = this.#kind, labels = selector(this.#obj);
    const owned = (row) => row.obj.metadata.ownerReferences?.some((ref) => ref.uid === uid);
    const list = (k, query, options) => k && may("list", k, { namespace: namespace ?? "" }) &&
      s.live(plural(k), { kind: k, namespace: namespace ?? "", ...query }, (feed) => miniTable(k, feed, options));
    if (key(kind) === "deployments.apps") list(inGroup("apps", "replicasets"), { labels }, { only: owned, newest: true });
    if (key(kind) === "cronjobs.batch") list(inGroup("batch", "jobs"), {}, { only: owned, newest: true });
    if (OWNERS.includes(key(kind)) && labels) list(core("pods"), { labels }, { more: { ns: namespace, q: filterOf(labels) }, only: key(kind) === "services." || key(kind) === "deployments.apps" ? null : owned });
    if (key(kind) === "services.") list(inGroup("discovery.k8s.io", "endpointslices"), { labels: `kubernetes.io/service-name=${name}` });
    if (key(kind) === "nodes.") list(core("pods"), { fields: `spec.nodeName=${name}` }, { more: { q: `field:spec.nodeName=${name}` } });
    if (!builtIn(kind)) s.add(t`Owned objects`, () => this.#search(), () => 0);
  }

  /** search is a button that looks for owned objects in every kind, because the API has no list of them. */
  #search() {
    const { namespace = "", uid } = this.#obj.metadata, found = h("ul", { class: "plainly" });
    const look = h("button", { type: "button", class: "quiet", onclick: async () => {
      look.disabled = true;
      found.replaceChildren();
      for (const k of kinds.filter((x) => x.verbs.includes("list") && x.name !== "events" && may("list", x, { namespace }) && (x.namespaced || !namespace))) {
        const list = await getJSON(apiPath(k, namespace, "", "", { limit: "2000" }), { accept: AS_METADATA }).catch(() => ({ items: [] }));
        found.append(...list.items.filter((it) => it.metadata.ownerReferences?.some((ref) => ref.uid === uid)).map((it) =>
          h("li", {}, `${k.kind} `, h("a", { class: "name", href: address(k, it.metadata.namespace, it.metadata.name) }, it.metadata.name))));
      }
      if (!found.firstChild) found.append(h("li", {}, t`It owns nothing that you may see.`));
      look.disabled = false;
    } }, t`Find what it owns`);
    return h("div", {}, look, found);
  }
}

/** Labels or annotations; labels lead to the objects that have them. */
const SCROLLS = 150; // characters of a value that may be too high for its box, and can then be scrolled with the keyboard

function chips(map, kind, namespace) {
  const all = Object.entries(map ?? {}).filter(([k]) => k !== "kubectl.kubernetes.io/last-applied-configuration").sort((a, b) => compare(a[0], b[0]));
  if (!all.length) return "";
  return h("ul", { class: "chips" }, all.map(([k, v]) => h("li", { tabindex: !kind && v.length > SCROLLS ? 0 : null }, kind
    ? h("a", { href: address(kind, "", "", "", { ns: namespace, q: `label:${k}=${v}` }) }, `${k}=${v}`) : [h("span", { class: "muted" }, k), h("span", { class: "value" }, v)])));
}

// Those of the object, of a route's parents and of a Gateway's listeners.
function allConditions({ status }) {
  return [...(status?.conditions ?? []), ...[...(status?.parents ?? []), ...(status?.listeners ?? [])].flatMap((part) => part.conditions ?? [])];
}

function conditions(obj) {
  const all = allConditions(obj);
  if (!all.length) return null;
  return h("ul", { class: "conditions" }, all.map((c) => h("li", {}, h("strong", {}, c.type), " ", h("span", {}, c.status), c.reason ? ` · ${c.reason}` : "",
    h("span", { class: "muted" }, " ", ago(millis(c.lastTransitionTime), true)), c.message ? h("p", {}, c.message) : null)));
}

function data(map) {
  const all = Object.entries(map);
  return all.length ? h("dl", { class: "data" }, all.map(([k, v]) => [h("dt", { class: "name" }, k), h("dd", {}, h("pre", { tabindex: "0" }, v))])) : h("p", { class: "muted" }, t`Empty.`);
}

/** Secrets are hidden until asked for. */
function secretData(obj) {
  const all = Object.entries(obj.data ?? {});
  if (!all.length) return h("p", { class: "muted" }, t`Empty.`);
  return h("dl", { class: "data" }, all.map(([k, v]) => {
    const dd = h("dd", {}, h("button", { type: "button", class: "quiet", "aria-label": t`Show ${k}`, onclick: () => dd.replaceChildren(h("pre", { tabindex: "0" }, decoded(v))) }, t`Show`),
      h("span", { class: "muted" }, " ", t`${Math.floor(v.replace(/=+$/, "").length * 3 / 4)} bytes`));
    return [h("dt", { class: "name" }, k), dd];
  }));
}

export function decoded(base64) {
  const raw = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    return base64; // no text
  }
}

function servicePorts(kind, obj) {
  const ports = obj.spec.ports ?? [];
  if (!ports.length) return null;
  const { namespace, name } = obj.metadata, ok = may("get", kind, { namespace, subresource: "proxy" });
  return h("ul", { class: "plainly" }, ports.map((p) => h("li", {}, h("span", { class: "name" }, `${p.port}/${p.protocol ?? "TCP"}`), p.name ? ` ${p.name}` : "", ` → ${p.targetPort}`, p.nodePort ? `, ${t`node port ${p.nodePort}`}` : "", " ",
    ok && (p.protocol ?? "TCP") === "TCP" ? proxyLink(apiPath(kind, namespace, `${name}:${p.port}`, "proxy/")) : null)));
}

/**
 * A link through the API's proxy. The token is a header and a link has none: the page
 * fetches the answer and shows it as text; a client certificate opens the link itself.
 */
export function proxyLink(path) {
  const out = h("pre", { class: "answer", tabindex: "0", hidden: true });
  const button = h("button", { type: "button", class: "quiet", onclick: async () => {
    button.disabled = true;
    let text;
    try {
      const response = await send("GET", path, { accept: "*/*" });
      text = `${response.status} ${response.headers.get("Content-Type") ?? ""}\n\n${(await response.text()).slice(0, 20_000)}`;
    } catch (err) {
      text = err.message;
    }
    out.hidden = false;
    write(out, text);
    button.disabled = false;
  } }, t`Send GET`);
  return [button, " ", h("a", { href: path, target: "_blank", rel: "noopener noreferrer", title: t`Through the API's proxy. The browser needs a client certificate; the page's token is not sent with links.` }, t`open`), out];
}

