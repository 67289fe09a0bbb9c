// Starts the page: the session, the watches, the tables.

import { now, session, signIn, signOut, whoAmI } from "./api.js";
import { Collection, Union, framed } from "./collection.js";
import { deleteDialog } from "./delete.js";
import { eventTable } from "./events.js";
import { NodeCards } from "./nodes.js";
import { Permissions } from "./permissions.js";
import { podTable } from "./pods.js";
import { write } from "./table.js";
import { Scope, follow, pause } from "./watch.js";
import { RESOURCES as WORKLOADS, isRetired, workloadTable } from "./workloads.js";

// Pods come as the server prints them, so that their status reads as in kubectl.
const AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";
const RESOURCES = [
  { base: "/api/v1", name: "nodes", accept: "application/json" },
  { base: "/api/v1", name: "pods", namespaced: true, query: { includeObject: "Object" }, accept: AS_TABLE },
  ...WORKLOADS.map((name) => ({ base: "/apis/apps/v1", name, namespaced: true, accept: "application/json" })),
  { base: "/api/v1", name: "events", namespaced: true, accept: "application/json" },
];

const id = (name) => document.getElementById(name);
const say = (text) => write(id("said"), text);
const collections = Object.fromEntries(RESOURCES.map(({ name }) => [name, new Collection()]));
const workloads = new Union(WORKLOADS.map((name) => collections[name]), isRetired);
const scope = new Scope();

const permissions = new Permissions(() => tables.forEach((t) => t.renew()));
const may = (what, namespace) => permissions.may(what, namespace);

const tables = [
  podTable(id("pods"), collections.pods, deleteDialog(say), may),
  workloadTable(id("workloads"), workloads, say, may),
  eventTable(id("events"), collections.events),
];
const nodes = new NodeCards(id("nodes"), collections.nodes, collections.pods);

// --- signed in or not ---

let following = null; // ends the watches

function enter(user) {
  if (following) return;
  write(id("user"), user.username);
  scope.enter(user.username);
  following = new AbortController();
  const { signal } = following;
  const troubles = new Map();
  for (const resource of RESOURCES) {
    const { name } = resource;
    troubles.set(name, "Connecting…");
    follow(resource, collections[name], scope, (err) => {
      troubles.set(name, err?.message ?? "");
      showLink(troubles);
    }, signal);
  }
  document.body.dataset.view = "in";
  for (const view of [...tables, nodes]) view.draw();
}

function leave(why = "") {
  following?.abort();
  following = null;
  signOut();
  permissions.forget();
  write(id("sign-in-error"), why);
  document.body.dataset.view = "out";
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  for (const collection of Object.values(collections)) collection.clear();
  id("token").focus();
}

function showLink(troubles) {
  const trouble = [...troubles.values()].find(Boolean);
  id("link").dataset.state = trouble ? "waiting" : "live";
  write(id("link-text"), trouble ?? "Live");
}

session.addEventListener("ended", () => {
  if (following) leave("The session has ended: Monopod does not know this token any more.");
});

session.addEventListener("refused", () => permissions.forget());

id("sign-in").addEventListener("submit", async (ev) => {
  ev.preventDefault();
  const button = ev.submitter ?? ev.target.querySelector("button");
  button.disabled = true;
  write(id("sign-in-error"), "");
  try {
    const user = await signIn(id("token").value.trim());
    ev.target.reset();
    enter(user);
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
  for (let wait = 500; ; wait = Math.min(2 * wait, 10_000)) {
    try {
      enter(await whoAmI());
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

// --- filters ---

const filter = () => tables.forEach((t) => t.filter(id("namespace").value, id("filter").value));
id("filter").addEventListener("input", filter);

// The last entry asks for the name of a namespace whose objects the page has not seen.
const OTHER = "…";
id("namespace").addEventListener("change", () => {
  const asks = id("namespace").value === OTHER;
  ask(asks);
  if (asks) id("other").focus();
  else choose(id("namespace").value);
});
id("other").addEventListener("keydown", (ev) => ev.key === "Enter" && id("other").blur());
id("other").addEventListener("blur", () => {
  const name = id("other").value.trim(), select = id("namespace");
  if (name && ![...select.options].some((o) => o.value === name)) select.options[select.length - 1].before(new Option(name, name));
  id("other").value = "";
  ask(false);
  choose(name);
});

function ask(name) {
  id("other").hidden = !name;
  id("namespace").hidden = name;
}

function choose(namespace) {
  id("namespace").value = namespace;
  scope.choose(namespace);
  filter();
}

document.addEventListener("keydown", (ev) => {
  const typing = ev.target.closest?.("input, select, textarea, dialog");
  if (ev.key !== "/" || typing || ev.ctrlKey || ev.metaKey || ev.altKey || !following) return;
  ev.preventDefault();
  id("filter").focus();
});

const NAMESPACED = RESOURCES.filter((r) => r.namespaced).map((r) => collections[r.name]);

/** The list contains the namespaces with objects; the selected one stays. */
const namespaces = framed(() => {
  const select = id("namespace"), chosen = select.value;
  const names = new Set(["default", chosen]);
  for (const { items } of NAMESPACED) {
    for (const { obj } of items.values()) names.add(obj.metadata.namespace);
  }
  names.delete("");
  names.delete(OTHER);
  const sorted = [...names].sort();
  if (sorted.join() === [...select.options].slice(1, -1).map((o) => o.value).join()) return;
  select.replaceChildren(select.options[0], ...sorted.map((n) => new Option(n, n)), select.options[select.length - 1]);
  select.value = chosen;
});
for (const collection of NAMESPACED) {
  collection.listen((uid, was, is) => {
    if (!was || !is) namespaces();
  });
}

// --- time ---

let clock;

function tick() {
  clearTimeout(clock);
  if (document.hidden) return;
  const at = now();
  if (following) for (const table of tables) table.tick(at);
  clock = setTimeout(tick, 1000 - (at % 1000));
}
document.addEventListener("visibilitychange", tick);

tick();
start();
