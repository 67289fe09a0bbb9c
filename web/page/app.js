// Starts the page: the session, the watches, the tables.

import { now, session, signIn, signOut, whoAmI } from "./api.js";
import { Collection, framed } from "./collection.js";
import { deleteDialog } from "./delete.js";
import { eventTable } from "./events.js";
import { NodeCards } from "./nodes.js";
import { Permissions } from "./permissions.js";
import { podTable } from "./pods.js";
import { setTable } from "./replicasets.js";
import { write } from "./table.js";
import { follow, pause } from "./watch.js";

// Pods come as the server prints them, so that their status reads as in kubectl.
const AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";
const RESOURCES = {
  nodes: { path: "/api/v1/nodes", accept: "application/json" },
  pods: { path: "/api/v1/pods?includeObject=Object", accept: AS_TABLE },
  replicasets: { path: "/apis/apps/v1/replicasets", accept: "application/json" },
  events: { path: "/api/v1/events", accept: "application/json" },
};

const id = (name) => document.getElementById(name);
const say = (text) => write(id("said"), text);
const collections = Object.fromEntries(Object.keys(RESOURCES).map((name) => [name, new Collection()]));

const permissions = new Permissions(() => tables.forEach((t) => t.renew()));
const may = (what, namespace) => permissions.may(what, namespace);

const tables = [
  podTable(id("pods"), collections.pods, deleteDialog(say), may),
  setTable(id("replicasets"), collections.replicasets, say, may),
  eventTable(id("events"), collections.events),
];
const nodes = new NodeCards(id("nodes"), collections.nodes, collections.pods);

// --- signed in or not ---

let following = null; // ends the watches

function enter(user) {
  if (following) return;
  write(id("user"), user.username);
  following = new AbortController();
  const { signal } = following;
  const troubles = new Map();
  for (const [name, resource] of Object.entries(RESOURCES)) {
    troubles.set(name, "Connecting…");
    follow(resource, collections[name], (err) => {
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
id("namespace").addEventListener("change", filter);
id("filter").addEventListener("input", filter);

document.addEventListener("keydown", (ev) => {
  const typing = ev.target.closest?.("input, select, textarea, dialog");
  if (ev.key !== "/" || typing || ev.ctrlKey || ev.metaKey || ev.altKey || !following) return;
  ev.preventDefault();
  id("filter").focus();
});

/** The list contains the namespaces with objects; the selected one stays. */
const namespaces = framed(() => {
  const select = id("namespace");
  const names = new Set(["default", select.value]);
  for (const name of ["pods", "replicasets", "events"]) {
    for (const { obj } of collections[name].items.values()) names.add(obj.metadata.namespace);
  }
  names.delete("");
  const sorted = [...names].sort();
  if (sorted.join() === [...select.options].slice(1).map((o) => o.value).join()) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...sorted.map((n) => new Option(n, n)));
  select.value = chosen;
});
for (const name of ["pods", "replicasets", "events"]) {
  collections[name].listen((uid, was, is) => {
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
