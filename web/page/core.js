// What every part of the page uses: requests with the user's token, the kinds of the
// API, the user's permissions, elements without markup, and words for amounts.
//
// The token is kept for this tab and this origin; a browser would send a cookie to
// every port of the host.

import { locale, t } from "./text.js";

/** An error with the API's message, Status.message. code 0: no response. */
export class ApiError extends Error {
  constructor(message, code = 0, status = null) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** Fires "ended" when the API no longer accepts the token, "refused" when an action is forbidden. */
export const session = new EventTarget();

const SECOND_TRY = 250; // milliseconds
const SENDS = 3;
const KEPT = "monopod-token";

let token = sessionStorage.getItem(KEPT) ?? "";
let skew = 0;

/** The server's time in milliseconds: grace periods end by its clock. */
export const now = () => Date.now() + skew;

/** learnClock reads the server's time from a response; its Date has whole seconds. */
function learnClock(response) {
  const ahead = Date.parse(response.headers.get("Date") ?? "") + 500 - Date.now();
  if (!Number.isNaN(ahead)) skew = Math.abs(ahead) < 2000 ? 0 : ahead;
}

/** Sends a request and returns its Response, or throws an ApiError. body: an object, or text of the type. again: it may be sent twice. */
export async function send(method, path, { body, type = "application/json", accept = "application/json", headers: more, signal, again = method !== "POST" } = {}) {
  const headers = { Accept: accept, ...more };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = type;
  if (body !== undefined && typeof body !== "string" && !(body instanceof Blob)) body = JSON.stringify(body);
  const response = await reach(path, { method, headers, body, signal, cache: "no-store", redirect: "error" }, again ? SENDS : 1);
  learnClock(response);
  if (response.ok) return response;
  throw await problem(response, method);
}

/** What a list is asked for where nothing but the metadata of its objects matters. */
export const AS_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

export const getJSON = (path, options) => readJSON("GET", path, options);

/** readJSON is send for an object, read for a text; they repeat a request also if the connection breaks within the response. */
export const readJSON = (method, path, options) => read(method, path, options, "json");

export async function read(method, path, options = {}, as = "text") {
  for (let turn = 1; ; turn++) {
    const response = await send(method, path, options);
    try {
      return await response[as]();
    } catch (err) {
      if (options.signal?.aborted || !(err instanceof TypeError)) throw err;
      if (turn === SENDS) throw new ApiError(t`The connection to Monopod broke off.`);
    }
  }
}

/** The field manager of what the page changes. */
export const MANAGER = "monopod-page";
export const patch = (path, body, type = "application/merge-patch+json") => send("PATCH", `${path}?fieldManager=${MANAGER}`, { body, type });

/**
 * reach repeats a request without a response, as after the connection broke while the
 * machine slept, unless it would create something twice.
 */
async function reach(path, options, times) {
  for (let turn = 1; ; turn++) {
    try {
      return await fetch(path, options);
    } catch (err) {
      if (options.signal?.aborted) throw err;
      if (turn === times) throw new ApiError(t`Monopod does not answer. Is it running?`);
      await new Promise((resolve) => setTimeout(resolve, SECOND_TRY * turn));
    }
  }
}

async function problem(response, method) {
  const text = await response.text().catch(() => "");
  const err = fromStatus(parse(text)) ?? new ApiError(text.trim().slice(0, 500) || response.statusText || `HTTP ${response.status}`, response.status);
  if (response.status === 401) session.dispatchEvent(new CustomEvent("ended", { detail: err }));
  if (response.status === 403 && method !== "GET") session.dispatchEvent(new CustomEvent("refused", { detail: err }));
  return err;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The ApiError of a metav1.Status; null for anything else. */
export function fromStatus(status) {
  if (status?.kind !== "Status") return null;
  return new ApiError(status.message || status.reason || t`The request failed.`, status.code ?? 0, status);
}

const LOADS = 5;

/**
 * Loads another file of the page. It tries again if the connection breaks, under another
 * address, because a browser remembers that a module did not load.
 */
export async function load(file) {
  for (let turn = 0; ; turn++) {
    try {
      return await import(`./${file}${turn ? `?${turn}` : ""}`);
    } catch (err) {
      if (turn === LOADS || !(err instanceof TypeError)) throw err;
      await new Promise((resolve) => setTimeout(resolve, SECOND_TRY * 2 ** turn));
    }
  }
}

/** A WebSocket of the API: the token is a subprotocol, because a browser sends no header. */
export function socket(path, protocol) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(token));
  const bearer = `base64url.bearer.authorization.k8s.io.${btoa(bytes).replaceAll("=", "").replaceAll("+", "-").replaceAll("/", "_")}`;
  return new WebSocket(new URL(path, location.href.replace(/^http/, "ws")), token ? [bearer, protocol] : [protocol]);
}

const review = async (group, kind, spec = {}) => {
  const path = `/apis/${group}/v1/${kind.toLowerCase()}s`;
  return (await readJSON("POST", path, { body: { apiVersion: `${group}/v1`, kind, spec }, again: true })).status;
};

let groups = []; // of the user

/** The authenticated user, as a UserInfo; throws a 401 without one. */
export async function whoAmI() {
  const { userInfo } = await review("authentication.k8s.io", "SelfSubjectReview");
  groups = userInfo.groups ?? [];
  return userInfo;
}

/** Whether the user may see the process: its database, certificates and snapshots. */
export const isAdmin = () => groups.includes("system:masters");

/** Signs in with a token, which is kept if the API accepts it. */
export async function signIn(given) {
  token = given;
  try {
    const user = await whoAmI();
    sessionStorage.setItem(KEPT, given);
    return user;
  } catch (err) {
    signOut();
    throw err.code === 401 ? new ApiError(t`Monopod does not know this token.`, 401) : err;
  }
}

/** Exchanges the code of `monopod dashboard` for a token and signs in with it. */
export async function redeem(code) {
  const response = await send("POST", "/monopod/session", { body: { code } });
  return signIn((await response.json()).token);
}

export function signOut() {
  token = "";
  sessionStorage.removeItem(KEPT);
  forget();
}

// --- permissions: the rules of a namespace, requested once ---

// No namespace can have this name, so that its rules are those that hold everywhere.
const EVERYWHERE = "every.where";
let learned = new Map(); // by namespace: a promise of rules, then the rules

export function forget() {
  learned = new Map();
}

/** learn requests what the user may do in a namespace ("": everywhere); may answers afterwards. */
export async function learn(namespace = "") {
  if (!learned.has(namespace)) {
    const asked = learned;
    asked.set(namespace, review("authorization.k8s.io", "SelfSubjectRulesReview", { namespace: namespace || EVERYWHERE })
      .then((status) => asked.set(namespace, status))
      .catch((err) => {
        asked.delete(namespace);
        throw err;
      }));
  }
  await learned.get(namespace);
}

const matches = (list, wanted) => list?.includes("*") || list?.includes(wanted);

/** allows reports whether a rule allows an action; resource: pods, or pods/log. */
export function allows(rule, { verb, group, resource, name }) {
  const [, subresource] = resource.split("/");
  return Boolean(matches(rule.verbs, verb) && matches(rule.apiGroups, group) &&
    (matches(rule.resources, resource) || (subresource && rule.resources?.includes(`*/${subresource}`))) &&
    (!rule.resourceNames?.length || rule.resourceNames.includes(name)));
}

/** Whether the user may do it, by the rules learned for all namespaces and for this one. */
export function may(verb, kind, { namespace = "", subresource = "", name = "" } = {}) {
  const resource = subresource ? `${kind.name}/${subresource}` : kind.name;
  return [learned.get(""), learned.get(namespace)].some((rules) => rules?.resourceRules?.some((rule) => allows(rule, { verb, group: kind.group, resource, name })));
}

/** Whether the user may send a request to a path that is no resource. */
export const mayPath = (verb, path) => (learned.get("")?.nonResourceRules ?? []).some((rule) =>
  matches(rule.verbs, verb) && rule.nonResourceURLs?.some((url) => url === path || (url.endsWith("*") && path.startsWith(url.slice(0, -1)))));

// --- the kinds of the API, from discovery ---

const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
export let kinds = [];

/** discover lists the kinds in their preferred versions. */
export async function discover() {
  const lists = await Promise.all(["/api", "/apis"].map((path) => getJSON(path, { accept: DISCOVERY })));
  const found = new Map();
  for (const group of lists.flatMap((list) => list.items)) {
    for (const { version, resources } of group.versions ?? []) {
      for (const r of resources ?? []) {
        const key = `${r.resource}.${group.metadata.name ?? ""}`;
        if (!found.has(key)) found.set(key, kindOf(group.metadata.name ?? "", version, r));
      }
    }
  }
  kinds = [...found.values()];
}

function kindOf(group, version, r) {
  return {
    group, version, name: r.resource, kind: r.responseKind?.kind || r.resource, namespaced: r.scope === "Namespaced",
    verbs: r.verbs ?? [], short: r.shortNames ?? [], single: r.singularResource ?? "",
    subresources: (r.subresources ?? []).map((s) => s.subresource),
    base: group ? `/apis/${group}/${version}` : `/api/${version}`,
  };
}

/** The kind that a word means, as kubectl understands it: po, pod, pods, deployments.apps, Pod. */
export function findKind(word) {
  const [name, ...rest] = word.toLowerCase().split("."), group = rest.join(".");
  const named = (k) => k.name === name || k.single === name || k.short.includes(name) || k.kind.toLowerCase() === name;
  const all = kinds.filter((k) => named(k) && (group === "" || k.group === group || k.group.startsWith(`${group}.`)));
  return all.find((k) => k.group === "") ?? all.find((k) => k.name === name) ?? all[0];
}

/** A kind's name for people: Pods, NetworkPolicies. */
export function plural(kind) {
  const { kind: one, name } = kind, lower = one.toLowerCase();
  if (name.startsWith(lower)) return one + name.slice(lower.length);
  return name.endsWith("ies") && lower.endsWith("y") ? `${one.slice(0, -1)}ies` : one;
}

/** The kind of an owner reference or of an involved object. */
export const kindFor = (apiVersion, kind) => {
  const group = (apiVersion ?? "").includes("/") ? apiVersion.split("/")[0] : "";
  return kinds.find((k) => k.kind === kind && k.group === group && k.verbs.length > 0);
};

/**
 * What makes an object from its template, as { kind, name }, or null: its controller, or the Deployment of a ReplicaSet that
 * is its controller, whose name ends in the hash of the template.
 */
export function maker({ metadata: { ownerReferences = [], labels = {} } }) {
  const ref = ownerReferences.find((r) => r.controller), hash = `-${labels["pod-template-hash"]}`, deployments = inGroup("apps", "deployments");
  if (!ref || ref.kind === "Node") return null;
  if (ref.kind === "ReplicaSet" && deployments && ref.name.endsWith(hash)) return { kind: deployments, name: ref.name.slice(0, -hash.length) };
  const kind = kindFor(ref.apiVersion, ref.kind);
  return kind ? { kind, name: ref.name } : null;
}

/** Whether the kind is Kubernetes' own. */
export const builtIn = (kind) => /^$|^(apps|batch|autoscaling|policy)$|\.k8s\.io$/.test(kind.group);

export const core = (name) => kinds.find((k) => k.name === name && k.group === "");
export const inGroup = (group, name) => kinds.find((k) => k.name === name && k.group === group);

const seg = encodeURIComponent;

/** The API's path of a list, an object or a subresource. */
export function apiPath(kind, namespace, name, subresource, query) {
  let path = kind.base + (kind.namespaced && namespace ? `/namespaces/${seg(namespace)}` : "") + `/${kind.name}`;
  if (name) path += `/${seg(name)}`;
  if (subresource) path += `/${subresource}`;
  const text = query ? new URLSearchParams(query).toString() : "";
  return text ? `${path}?${text}` : path;
}

/** The page's address of a list, an object or a part of it. */
export function address(kind, namespace, name, part, query) {
  let path = `#/${kind.name}${kind.group ? `.${kind.group}` : ""}`;
  if (name) path += `/${kind.namespaced ? seg(namespace) : "-"}/${seg(name)}`;
  if (part) path += `/${part}`;
  const given = Object.entries(query ?? {}).filter(([, v]) => v !== "" && v !== undefined);
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

/** The page's address of what an event is about, pod/web-1; "" for anything else. */
export function addressOf(text, namespace) {
  const [, word, name] = /^([a-z.]+)\/(.+)$/.exec(text) ?? [], kind = word && findKind(word);
  return kind ? address(kind, namespace, name) : "";
}

// --- elements: text only, never markup ---

/** An element. props: attributes; on*: listeners; data-*, aria-*; null and false are left out. */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/** dropsOn passes the files that are dropped on a node to take, and the DataTransfer that has them. */
export function dropsOn(node, take) {
  node.addEventListener("dragover", (ev) => {
    ev.preventDefault();
    node.classList.add("over");
  });
  for (const ended of ["dragleave", "drop"]) node.addEventListener(ended, () => node.classList.remove("over"));
  node.addEventListener("drop", (ev) => {
    if (!ev.dataTransfer.files.length) return;
    ev.preventDefault();
    take(ev.dataTransfer.files, ev.dataTransfer);
  });
}

/** Writes text where it differs; never markup. */
export function write(node, text) {
  text = String(text);
  if (node.textContent !== text) node.textContent = text;
}

export const id = (name) => document.getElementById(name);
export const say = (text) => write(id("said"), text);
export const compare = (x, y) => (x < y ? -1 : x > y ? 1 : 0);

const SVG = "http://www.w3.org/2000/svg";
/** An SVG element. */
export function svg(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Returns a function that schedules draw for the next frame, once however often it is called. */
export function framed(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/** A state in a word, with a dot whose shape says the same as its colour. */
export const moodly = (mood, text, title) =>
  h("span", { class: "mood", "data-mood": mood, title }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", {}, text));

// --- words ---

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, YEAR = 365 * DAY;

/** Milliseconds of an API time, or NaN. */
export const millis = (time) => Date.parse(time ?? "");

/** A duration as kubectl prints it: 95s, 5m12s, 3h4m, 2d, 1y20d. */
export function duration(ms) {
  if (Number.isNaN(ms)) return t`unknown`;
  const s = Math.max(0, Math.floor(ms / SECOND));
  if (s < 120) return `${s}s`;
  if (ms < 10 * MINUTE) return pair(ms, MINUTE, "m", SECOND, "s");
  if (ms < 3 * HOUR) return `${Math.floor(ms / MINUTE)}m`;
  if (ms < 8 * HOUR) return pair(ms, HOUR, "h", MINUTE, "m");
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)}h`;
  if (ms < 8 * DAY) return pair(ms, DAY, "d", HOUR, "h");
  if (ms < 2 * YEAR) return `${Math.floor(ms / DAY)}d`;
  if (ms < 8 * YEAR) return pair(ms, YEAR, "y", DAY, "d");
  return `${Math.floor(ms / YEAR)}y`;
}

function pair(ms, big, bigName, small, smallName) {
  const n = Math.floor(ms / big), rest = Math.floor((ms % big) / small);
  return rest === 0 ? `${n}${bigName}` : `${n}${bigName}${rest}${smallName}`;
}

const UNITS = { y: YEAR, d: DAY, h: HOUR, m: MINUTE, s: SECOND };

/** Milliseconds of a duration as kubectl prints it, or NaN. */
export function undoDuration(text) {
  if (!/^(\d+[ydhms])+$/.test(text ?? "")) return NaN;
  return [...text.matchAll(/(\d+)([ydhms])/g)].reduce((sum, [, n, unit]) => sum + n * UNITS[unit], 0);
}

const FACTORS = {
  "": 1, m: 1e-3, u: 1e-6, n: 1e-9, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** The value of a Quantity, or NaN. */
export function quantity(text) {
  const m = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$/.exec(text ?? "");
  return m && m[2] in FACTORS ? Number(m[1]) * FACTORS[m[2]] : NaN;
}

/** A number of bytes for people. */
export function bytes(n) {
  for (const unit of ["Ti", "Gi", "Mi", "Ki"]) {
    if (n >= FACTORS[unit]) return `${(n / FACTORS[unit]).toFixed(n / FACTORS[unit] < 10 ? 1 : 0)} ${unit}B`;
  }
  return `${Math.round(n)} B`;
}

/** An amount of a resource for people: bytes in binary units, the rest as a plain number. */
export function readable(resource, n) {
  if (typeof n === "string") n = quantity(n);
  if (n === undefined || Number.isNaN(n)) return "–";
  return /memory|storage|hugepages|filesystem/.test(resource) ? bytes(n) : String(Math.round(n * 1000) / 1000);
}

/** A moment as date and time. */
export const moment = (ms) => MOMENT.format(ms);
const MOMENT = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" });

/** How a <time> says the milliseconds since its moment. */
const SPOKEN = { age: (ms) => duration(ms), past: (ms) => t`${duration(ms)} ago`, coming: (ms) => t`due in ${duration(-ms)}` };

const time = (ms, how) => h("time", { datetime: new Date(ms).toISOString(), title: MOMENT.format(ms), "data-how": how }, SPOKEN[how](now() - ms));

/** A <time> with the time since a moment, ticked every second by tickAges. past: with the word ago. */
export const ago = (ms, past = false) => (Number.isNaN(ms) ? h("span", {}, "–") : time(ms, past ? "past" : "age"));

/** A <time> that says how long it is until a moment; ticked as well. */
export const until = (ms) => time(ms, "coming");

export function tickAges(root) {
  const at = now();
  for (const node of root.querySelectorAll("time")) write(node, SPOKEN[node.dataset.how](at - millis(node.dateTime)));
}

/** The condition of a type, or undefined. */
export const condition = (obj, type) => obj.status?.conditions?.find((c) => c.type === type);

/** The progress of a deletion: the rest of the grace period in seconds; null if it is not being deleted. */
export function grace(meta) {
  const end = millis(meta.deletionTimestamp), total = meta.deletionGracePeriodSeconds ?? 0;
  if (Number.isNaN(end)) return null;
  return { total, left: Math.min(total, Math.max(0, Math.ceil((end - now()) / SECOND))) };
}

const OK = /^(Running|Ready|Active|Bound|Complete|Available|True|Approved,Issued|Established|Deployed|Succeeded)$/;
const WAIT = /^(Pending|ContainerCreating|PodInitializing|NotReady,SchedulingDisabled|Ready,SchedulingDisabled|SchedulingGated|Init:\d+\/\d+|Warning|Suspended|Released|Progressing|Unknown|Approved)$/;
const DONE = /^(Completed|Succeeded|Complete|Normal|<none>|<unset>|-|)$/;

/** Whether a column of the kind says how an object is. The type of an Event does, that of a Secret or a Service does not. */
export const isMoody = (kind, column) => /^(Status|Phase|Condition|State)$/.test(column) || (column === "Type" && kind.name === "events");

/** moodOfReady is the mood of "2/3", where nothing but the number of ready replicas says how an object is; "" for other texts. */
export function moodOfReady(text) {
  const [, n, of] = /^(\d+)\/(\d+)$/.exec(text) ?? [];
  return n === undefined ? "" : Number(of) === 0 ? "done" : Number(n) >= Number(of) ? "ok" : "wait";
}

/** moodOfCondition is the mood of a column of a custom kind with the status of a condition; "" for other columns. */
export function moodOfCondition(column, value) {
  if (!/^(Ready|Available|Synced|Healthy|Established|Accepted|Programmed|Succeeded|Approved)$/i.test(column)) return "";
  return { True: "ok", False: "bad", Unknown: "wait" }[value] ?? "";
}

const SOON = 14 * DAY;

/** The mood of something that is valid for so many milliseconds more. */
export const moodOfEnd = (left) => (left < 0 ? "bad" : left < SOON ? "wait" : "ok");

/** The mood of a state in a word: ok, wait, bad, done or ending. ready: 1/2, if the kind has it. */
export function moodOf(status, ready = "") {
  status = String(status);
  if (/^Terminating/.test(status)) return "ending";
  if (DONE.test(status)) return "done";
  if (OK.test(status)) {
    const [n, of] = String(ready).split("/");
    return of === undefined || n === of ? "ok" : "wait";
  }
  return WAIT.test(status) ? "wait" : "bad";
}
