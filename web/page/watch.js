// One resource, followed by list and watch: in all namespaces or, if the user may not
// list it there, in one.

import { ApiError, fromStatus, send } from "./api.js";

const FIRST_WAIT = 300, LONGEST_WAIT = 20_000;
// A list that the user may not see is requested again now and then, because roles change.
const DENIED_WAIT = 60_000;
// A watch gets a bookmark every minute; one without events for longer is dead.
const SILENCE = 150_000;

/** The namespace for users who may list objects in one namespace only; it fires "change". */
export class Scope extends EventTarget {
  #home = "default";
  #chosen = "";

  get namespace() {
    return this.#chosen || this.#home;
  }

  /** A service account starts in its own namespace. */
  enter(username) {
    const [, account, home] = /^system:(serviceaccount):([^:]+):/.exec(username) ?? [];
    this.#home = account ? home : "default";
  }

  choose(namespace) {
    this.#chosen = namespace;
    this.dispatchEvent(new Event("change"));
  }
}

/**
 * Keeps a collection equal to the server's objects until signal aborts or the
 * session ends. resource: { base, name, namespaced, query, accept }. tell(err) is
 * called with null when the collection is live and with the reason when it is not. A
 * list that the user may not see in all namespaces is limited to that of the scope;
 * one that the user may not see there either is not an error: the collection is denied.
 */
export async function follow(resource, collection, scope, tell, signal) {
  const at = { namespace: "", version: "", columns: [], wait: FIRST_WAIT };
  while (!signal.aborted) {
    const moved = new AbortController();
    const move = () => resource.namespaced && (at.namespace || collection.denied) && moved.abort();
    scope.addEventListener("change", move);
    await followOnce(resource, collection, at, scope, tell, AbortSignal.any([signal, moved.signal]));
    scope.removeEventListener("change", move);
    if (moved.signal.aborted) Object.assign(at, { namespace: scope.namespace, version: "" });
    if (at.ended) return;
  }
}

async function followOnce(resource, collection, at, scope, tell, signal) {
  let reason = null, denied = false;
  try {
    if (!at.version) await list(resource, collection, at, signal);
    await watch(resource, collection, at, tell, signal);
  } catch (err) {
    if (signal.aborted) return;
    at.ended = err.code === 401;
    denied = err.code === 403 && !at.version;
    if (err.code === 410 || err.code === 403) at.version = "";
    if (err.code !== 410 && !denied) reason = err;
  }
  if (at.ended) return;
  if (denied && resource.namespaced && !at.namespace) {
    at.namespace = scope.namespace;
    return;
  }
  if (denied) {
    collection.deny();
    tell(null);
    await pause(DENIED_WAIT, signal);
    at.namespace = "";
    return;
  }
  if (reason) tell(reason);
  await pause(at.wait * (0.75 + Math.random() / 2), signal);
  at.wait = Math.min(at.wait * 2, LONGEST_WAIT);
}

/** path is that of the resource, with its query and more. */
function path(resource, namespace, more = {}) {
  const query = new URLSearchParams({ ...resource.query, ...more }).toString();
  return resource.base + (namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "") + `/${resource.name}` + (query && `?${query}`);
}

async function list(resource, collection, at, signal) {
  const response = await send("GET", path(resource, at.namespace), { accept: resource.accept, signal });
  const body = await response.json();
  if (body.columnDefinitions) at.columns = body.columnDefinitions.map((c) => c.name);
  collection.namespace = at.namespace;
  collection.replace((body.rows ?? body.items).map((row) => item(row, resource, at.columns)));
  at.version = body.metadata.resourceVersion;
}

/** item is an object, with its printed columns if the server sent them. */
function item(row, { name }, columns) {
  if (!row.cells) return { resource: name, obj: row };
  return { resource: name, obj: row.object, printed: Object.fromEntries(row.cells.map((cell, i) => [columns[i], cell])) };
}

async function watch(resource, collection, at, tell, signal) {
  const query = { watch: "1", allowWatchBookmarks: "1", resourceVersion: at.version };
  const silent = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(new ApiError("The connection went silent.")), SILENCE);
  };
  heard();
  try {
    const response = await send("GET", path(resource, at.namespace, query), { accept: resource.accept, signal: AbortSignal.any([signal, silent.signal]) });
    tell(null);
    for await (const line of lines(response.body)) {
      heard();
      at.wait = FIRST_WAIT;
      apply(JSON.parse(line), resource, collection, at);
    }
  } catch (err) {
    throw err instanceof ApiError || signal.aborted ? err : new ApiError("The connection to Monopod broke off.");
  } finally {
    clearTimeout(timer);
  }
}

/** lines yields a stream's lines as they come. */
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts.filter((p) => p !== "");
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have failed already
  }
}

function apply({ type, object }, resource, collection, at) {
  if (type === "ERROR") throw fromStatus(object) ?? new ApiError("The watch failed.");
  at.version = object.metadata.resourceVersion;
  if (type === "BOOKMARK") return;
  for (const row of object.rows ?? [object]) {
    const it = item(row, resource, at.columns);
    if (type === "DELETED") collection.drop(it.obj.metadata.uid);
    else collection.put(it);
  }
}

/** pause ends early when the network comes back, or signal aborts. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = new AbortController();
    const end = () => {
      clearTimeout(timer);
      done.abort();
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end, { signal: done.signal });
    addEventListener("online", end, { signal: done.signal });
  });
}
