// Starts the page: the session, the addresses (#/…) and what they show, the menu of
// kinds, and the keyboard. Parts that the first screen does not need are loaded when
// they are opened.

import { address, apiPath, AS_METADATA, builtIn, core, discover, findKind, forget, getJSON, h, id, kinds, learn, load, may, now, plural, redeem, session, signIn, signOut, whoAmI, write } from "./core.js";
import { List } from "./list.js";
import { CONNECTING, home, links, pause } from "./live.js";
import { t, translate } from "./text.js";

let user = null; // signed in
let view = null; // what main shows: { close(), tick?(), filter?(text), move?(by), target? }
let shown = ""; // the address it was made for, without its query
let chosen = ""; // the namespace; "": all of them
let discovered = 0; // when

translate(document.body);

const tools = id("tools"), main = id("main");
tools.remove(); // lists put it below their title

// --- signed in or not ---

async function enter(info) {
  if (user) return;
  user = info;
  write(id("user"), user.username);
  const [, account] = /^system:serviceaccount:([^:]+):/.exec(user.username) ?? [];
  home.namespace = account ?? "default"; // a service account starts in its own namespace
  try {
    await Promise.all([discover(), learn()]);
  } catch (err) {
    user = null;
    if (err.code !== 401) throw err;
    return;
  }
  discovered = now();
  document.body.dataset.view = "in";
  drawNav();
  route();
}

/** cancel closes the open dialogs. */
function cancel() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

function leave(why = "") {
  user = null;
  view?.close();
  view = null;
  shown = "";
  signOut();
  write(id("sign-in-error"), why);
  cancel();
  main.replaceChildren();
  document.body.dataset.view = "out";
  id("token").focus();
}

links.addEventListener("change", () => {
  id("link").dataset.state = !links.trouble ? "live" : links.trouble === CONNECTING ? "connecting" : "waiting";
  write(id("link-text"), links.trouble || t`Live`);
});

session.addEventListener("ended", () => {
  if (user) leave(t`The session has ended: Monopod does not know this token any more.`);
});

session.addEventListener("refused", forget);

id("sign-in").addEventListener("submit", async (ev) => {
  ev.preventDefault();
  const button = ev.target.querySelector("button");
  button.disabled = true;
  write(id("sign-in-error"), "");
  try {
    const info = await signIn(id("token").value.trim());
    ev.target.reset();
    await enter(info);
  } catch (err) {
    write(id("sign-in-error"), err.message);
    id("token").select();
  }
  button.disabled = false;
});

id("sign-out").addEventListener("click", () => leave());

/**
 * Tries the earlier token first, or the browser's client certificate. Nothing is
 * shown until the API has authenticated the user.
 */
async function start() {
  const code = location.hash.match(/^#login=(\w+)$/)?.[1];
  if (code) { // which is worth nothing once it is used, also not in the history
    history.replaceState(null, "", location.pathname);
    try {
      await enter(await redeem(code));
    } catch (err) {
      leave(err.message);
    }
    return;
  }
  for (let wait = 500; ; wait = Math.min(2 * wait, 10_000)) {
    try {
      await enter(await whoAmI());
      return;
    } catch (err) {
      if (err.code === 401) {
        leave();
        return;
      }
      write(id("link-text"), err.message);
    }
    await pause(wait);
  }
}

// --- addresses ---

/** The word of the page that one lands on. */
const OVERVIEW = "overview";

/** place is what the address says: { word, namespace, name, part, query }. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [word = "", namespace = "", name = "", part = ""] = path.split("/").map(decode);
  return { path, word: word || OVERVIEW, namespace: namespace === "-" ? "" : namespace, name, part, query: new URLSearchParams(query ?? "") };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

let routes = 0;

async function route() {
  if (!user) return;
  const turn = ++routes, at = place();
  menu(false);
  if (at.word === OVERVIEW) return open(turn, at, t`Overview`, () => load("overview.js"), (m) => new m.Overview(main));
  if (at.word === "search") return open(turn, at, t`Search`, () => load("search.js"), (m) => new m.Search(main, at.query));
  if (at.word === "helm") return open(turn, at, at.name || t`Helm releases`, () => load("helm.js"), (m) => (at.name ? new m.Release(main, at) : new m.Releases(main)));
  if (at.word === "access") return open(turn, at, t`Who may do what`, () => load("access.js"), (m) => new m.Access(main, at.query));
  if (at.word === "create") return open(turn, at, t`Create`, () => load("yaml.js"), (m) => new m.Create(main, chosen, at.query));
  let kind = findKind(at.word);
  if (!kind && now() - discovered > 1000) { // it may be new
    await refresh();
    kind = findKind(at.word);
  }
  if (turn !== routes) return;
  if (!kind) return plain(t`This server has no kind "${at.word}", or you may not see it.`);
  if (at.name) return open(turn, at, at.name, () => load("object.js"), (m) => new m.ObjectPage(main, kind, at, target));
  showList(at, kind);
}

/** open loads a part of the page and shows it. */
async function open(turn, at, title, part, make) {
  try {
    const [module] = await Promise.all([part(), learn(at.namespace || home.namespace)]);
    if (turn === routes && user) show(at.path, title, () => make(module));
  } catch (err) {
    if (turn === routes && user) plain(t`This part of the page did not load: ${err.message}`);
  }
}

function show(path, title, make) {
  view?.close();
  cancel(); // what is about the object that was shown
  shown = path;
  document.title = `${title} · Monopod`;
  view = make();
  markNav();
  scrollTo(0, 0);
}

function plain(text) {
  show("", t`Not found`, () => {
    main.replaceChildren(h("h2", { tabindex: "-1" }, t`Not found`), h("p", { class: "empty" }, text));
    return { close() {} };
  });
}

function showList(at, kind) {
  if (kind.namespaced) chosen = at.query.get("ns") ?? "";
  const filter = at.query.get("q") ?? "", wide = at.query.get("wide") === "1", sort = at.query.get("sort") ?? "";
  tools.hidden = false;
  id2("namespace").closest("label").hidden = !kind.namespaced;
  fillNamespaces([]);
  id2("filter").value = filter;
  id2("wide").checked = wide;
  id2("warnings").closest("label").hidden = kind.name !== "events";
  id2("warnings").checked = filter.includes(WARNINGS);
  id2("create").hidden = !kinds.some((k) => k.verbs.includes("patch") && may("create", k, { namespace: chosen || home.namespace }));
  const namespace = kind.namespaced ? chosen : "";
  show(at.path, plural(kind), () => new List(main, kind, { namespace, filter, wide, sort, tools }));
  if (chosen) learn(chosen).catch(() => {});
}

/** What the filter says for events that are Warnings. */
const WARNINGS = "field:type=Warning";

const id2 = (name) => tools.querySelector(`#${name}`);

addEventListener("hashchange", () => (location.hash.startsWith("#login=") ? location.reload() : route()));

/** rewrite changes the address of the list that is shown, without a new entry in the history. */
function rewrite(changes) {
  const { path, query } = place();
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
}

addEventListener("sorted", (ev) => rewrite({ sort: ev.detail }));
addEventListener("searched", (ev) => rewrite({ q: ev.detail }));

id2("filter").addEventListener("input", debounced());
id2("warnings").addEventListener("change", (ev) => {
  const words = id2("filter").value.replace(WARNINGS, "").trim();
  id2("filter").value = ev.target.checked ? `${words} ${WARNINGS}`.trim() : words;
  id2("filter").dispatchEvent(new Event("input"));
});
id2("wide").addEventListener("change", (ev) => {
  rewrite({ wide: ev.target.checked ? "1" : "" });
  route();
});

/** debounced filters by words at once, and by selectors when the user pauses. */
function debounced() {
  let timer;
  return () => {
    clearTimeout(timer);
    const text = id2("filter").value;
    const apply = () => {
      rewrite({ q: text });
      view?.filter?.(text);
    };
    if (/(^|\s)(l|label|f|field):/.test(text)) timer = setTimeout(apply, 400);
    else apply();
  };
}

// --- namespaces: requested when the choice is opened ---

const OTHER = "…";

function fillNamespaces(names) {
  const select = id2("namespace");
  const all = [...new Set(["default", chosen, ...names, ...[...select.options].map((o) => o.value)])].filter((n) => n && n !== OTHER).sort();
  if (all.join() !== [...select.options].slice(1, -1).map((o) => o.value).join()) {
    select.replaceChildren(new Option(t`All namespaces`, ""), ...all.map((n) => new Option(n, n)), new Option(t`Other…`, OTHER));
  }
  select.value = chosen;
}

async function askNamespaces() {
  const kind = core("namespaces");
  if (!kind || !may("list", kind)) return;
  const list = await getJSON(apiPath(kind), { accept: AS_METADATA }).catch(() => null);
  if (list) fillNamespaces(list.items.map((it) => it.metadata.name));
}

for (const opened of ["focus", "pointerdown"]) id2("namespace").addEventListener(opened, askNamespaces);

id2("namespace").addEventListener("change", async () => {
  let name = id2("namespace").value;
  if (name === OTHER) {
    const { ask } = await load("dialogs.js");
    name = await ask({ title: t`Namespace`, label: t`Name`, submit: t`Show` }) ?? chosen;
  }
  choose(name);
});

function choose(namespace) {
  chosen = namespace;
  rewrite({ ns: namespace });
  drawNav();
  route();
}

// --- the menu of kinds ---

const GROUPS = {
  Workloads: "pods deployments statefulsets daemonsets replicasets jobs cronjobs horizontalpodautoscalers poddisruptionbudgets replicationcontrollers",
  Network: "services ingresses networkpolicies endpointslices endpoints ingressclasses",
  Configuration: "configmaps secrets resourcequotas limitranges priorityclasses runtimeclasses",
  Storage: "persistentvolumeclaims persistentvolumes storageclasses",
  Access: "serviceaccounts roles rolebindings clusterroles clusterrolebindings certificatesigningrequests",
  Cluster: "nodes namespaces events customresourcedefinitions",
};

/** The titles of the groups. */
const TITLES = { Workloads: t`Workloads`, Network: t`Network`, Configuration: t`Configuration`, Storage: t`Storage`, Access: t`Access`, Cluster: t`Cluster`, Custom: t`Custom`, More: t`More` };

const RBAC = "rbac.authorization.k8s.io";

/** home of a kind in the menu; a kind that two groups serve is shown in one. */
function groupOf(kind) {
  const named = Object.keys(GROUPS).find((g) => GROUPS[g].split(" ").includes(kind.name));
  if (!builtIn(kind)) return "Custom";
  if (kind.name === "events" && kind.group !== "") return "";
  return named ?? "More";
}

function drawNav() {
  const groups = new Map([...Object.keys(GROUPS), "Custom", "More"].map((g) => [g, []]));
  const where = { namespace: chosen || home.namespace };
  for (const kind of kinds) {
    if (kind.verbs.includes("list") && kind.verbs.includes("watch") && may("list", kind, where)) groups.get(groupOf(kind))?.push(kind);
  }
  const opened = new Set([...id("nav").querySelectorAll("details[open]")].map((d) => d.dataset.group));
  const rank = (g) => (kind) => (GROUPS[g] ?? "").split(" ").indexOf(kind.name);
  const link = (word, text) => h("a", { href: `#/${word}`, "data-word": word }, text);
  const extra = { // lists that are no kinds
    Workloads: may("list", core("secrets"), where) ? link("helm", t`Helm releases`) : null,
    Access: kinds.filter((k) => k.group === RBAC).every((k) => may("list", k)) ? link("access", t`Who may do what`) : null,
  };
  id("nav").replaceChildren(h("a", { href: "#/", "data-word": OVERVIEW }, t`Overview`), link("search", t`Search`), ...[...groups].filter(([, list]) => list.length > 0).map(([g, list]) =>
    h("details", { "data-group": g, open: opened.size ? opened.has(g) : ["Workloads", "Cluster", "Custom"].includes(g) },
      h("summary", {}, TITLES[g]),
      h("ul", {}, list.sort((a, b) => rank(g)(a) - rank(g)(b) || a.kind.localeCompare(b.kind)).map((kind) =>
        h("li", {}, h("a", { href: address(kind, "", "", "", { ns: kind.namespaced ? chosen : "" }), "data-kind": `${kind.name}.${kind.group}`, title: kind.group }, plural(kind)))), extra[g] ? h("li", {}, extra[g]) : null))));
  markNav();
}

function markNav() {
  const { word } = place(), named = [OVERVIEW, "search", "helm", "access"].includes(word), kind = named ? null : findKind(word);
  for (const a of id("nav").querySelectorAll("a")) {
    const is = kind ? a.dataset.kind === `${kind.name}.${kind.group}` : named && a.dataset.word === word;
    if (is) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
    if (!is || word === OVERVIEW || word === "search") continue;
    a.closest("details").open = true;
    if (!document.body.hasAttribute("data-menu")) a.scrollIntoView({ block: "nearest" });
  }
}

async function refresh() {
  discovered = now();
  await discover().catch(() => {});
  drawNav();
}

function menu(open) {
  id("menu").setAttribute("aria-expanded", open);
  document.body.toggleAttribute("data-menu", open);
}
id("menu").addEventListener("click", () => {
  const open = id("menu").getAttribute("aria-expanded") !== "true";
  menu(open);
  if (open) refresh();
});

// --- the keyboard ---

/** What the keys act on: the row with the focus, or the object that is shown. */
const target = () => view?.focused ?? view?.target;
const part = (name) => () => {
  const at = target();
  if (at) location.hash = address(at.kind, at.obj.metadata.namespace, at.obj.metadata.name, name);
};

const back = () => {
  const { word, namespace, name, part: sub } = place(), kind = findKind(word);
  if (name && kind) location.hash = sub ? address(kind, namespace, name) : address(kind, "", "", "", { ns: kind.namespaced ? chosen : "" });
  else if (id("filter")?.value) {
    id("filter").value = "";
    id("filter").dispatchEvent(new Event("input"));
  }
};

const KEYS = {
  "/": () => (id("filter") ? id("filter").focus() : (location.hash = "#/search")),
  ":": async () => (await load("help.js")).command(chosen),
  "?": async () => (await load("help.js")).help(),
  j: () => view?.move?.(1), ArrowDown: () => view?.move?.(1),
  k: () => view?.move?.(-1), ArrowUp: () => view?.move?.(-1),
  g: () => view?.move?.(-Infinity), G: () => view?.move?.(Infinity),
  d: part(""), l: part("logs"), s: part("shell"), e: part("yaml"), y: part("yaml"),
  Escape: back,
  o: () => (location.hash = "#/"),
  x: () => view?.select?.(),
  "0": () => choose(""),
};

document.addEventListener("keydown", async (ev) => {
  if (!user || ev.altKey || ev.metaKey || document.querySelector("dialog[open]")) return;
  if (ev.ctrlKey) {
    const at = ev.key === "d" && !ev.target.closest?.(".terminal, .editor") && target();
    if (!at?.obj.metadata.uid) return;
    ev.preventDefault();
    (await load("actions.js")).remove(at.kind, at.obj);
    return;
  }
  const typing = ev.target.closest?.("input:not([type=checkbox]), select, textarea, .terminal, .editor");
  if (typing) {
    if (ev.key === "Escape" && typing.id === "filter") main.focus();
    if (ev.key === "Enter" && typing.id === "filter") view?.move?.(1);
    return;
  }
  if (/^Arrow/.test(ev.key) && !view?.move) return;
  const act = KEYS[ev.key];
  if (!act) return;
  ev.preventDefault();
  act();
});

document.querySelector(".skip").addEventListener("click", (ev) => {
  ev.preventDefault();
  main.focus();
});
id("help").addEventListener("click", KEYS["?"]);

// --- time ---

let clock;

function tick() {
  clearTimeout(clock);
  if (document.hidden) return;
  view?.tick?.();
  clock = setTimeout(tick, 1000 - (now() % 1000));
}
document.addEventListener("visibilitychange", tick);

tick();
start();
