// One resource, followed by list and watch as the server prints it: a Feed keeps its
// rows equal to the server's until it is closed.

import { ApiError, apiPath, framed, fromStatus, now, send, undoDuration } from "./core.js";
import { t } from "./text.js";

/** The media type of a list as a table. */
export const AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io";
/** What a link says before the first answer. */
export const CONNECTING = t`Connecting…`;

const FIRST_WAIT = 300, LONGEST_WAIT = 20_000;
// A list that the user may not see is requested again now and then, because roles change.
const DENIED_WAIT = 60_000;
// A watch gets a bookmark every minute; one without events for longer is dead.
const SILENCE = 150_000;
// The first page of a list is small, so that there is something to see.
const FIRST_PAGE = "500", NEXT_PAGE = "4000";

/** What the live connections of the page say about themselves; fires "change". */
class Links extends EventTarget {
  #troubles = new Map();

  tell(feed, trouble) {
    this.#troubles.set(feed, trouble);
    this.dispatchEvent(new Event("change"));
  }

  end(feed) {
    this.#troubles.delete(feed);
    this.dispatchEvent(new Event("change"));
  }

  get trouble() {
    return [...this.#troubles.values()].find(Boolean) ?? "";
  }
}
export const links = new Links();

/** The namespace for users who may list objects in one namespace only. */
export const home = { namespace: "default" };

/**
 * A Feed follows what query describes: { kind, namespace, labels, fields, full }. full:
 * whole objects instead of their metadata. changed() is called at most once a frame.
 *
 *   rows    by UID: { uid, obj, cells, born }, born: when the row arrived
 *   columns as the server defines them
 *   state   "loading" (error says what went wrong meanwhile), "live", "denied", "gone" (no such kind) or "bad" (see error)
 */
export class Feed {
  rows = new Map();
  columns = [];
  state = "loading";
  error = "";
  complete = false; // every page of the list has arrived
  namespace; // the one whose objects it has; "": all
  #query;
  #changed;
  #end = new AbortController();
  #version = "";
  #wait = FIRST_WAIT;

  constructor(query, changed) {
    this.#query = query;
    this.namespace = query.namespace ?? "";
    this.#changed = framed(() => this.#end.signal.aborted || changed(this));
    links.tell(this, CONNECTING);
    this.#run();
  }

  close() {
    this.#end.abort();
    links.end(this);
  }

  /** touch calls changed again. */
  touch() {
    this.#changed();
  }

  get items() {
    return [...this.rows.values()];
  }

  async #run() {
    const { signal } = this.#end;
    while (!signal.aborted) {
      try {
        if (!this.#version) await this.#list(signal);
        await this.#watch(signal);
      } catch (err) {
        if (signal.aborted) return;
        if (err.code === 401) {
          this.close();
          return;
        }
        await this.#failed(err, signal);
      }
    }
  }

  async #failed(err, signal) {
    const denied = err.code === 403 && !this.#version;
    if ([403, 404, 410].includes(err.code)) this.#version = "";
    if (err.code === 410) return;
    if (denied && this.#query.kind.namespaced && !this.namespace) {
      this.namespace = home.namespace;
      return;
    }
    if (denied || err.code === 404 || err.code === 400) {
      this.rows.clear();
      this.state = denied ? "denied" : err.code === 404 ? "gone" : "bad";
      this.error = err.message;
      links.tell(this, "");
      this.#changed();
      await pause(DENIED_WAIT, signal);
      this.namespace = this.#query.namespace ?? "";
      return;
    }
    // A watch that breaks once is followed again at once, and only a second failure is shown: a browser aborts
    // requests when the machine's network changes, which it does with each pod that starts.
    if (!this.#version || this.#wait > FIRST_WAIT) links.tell(this, err.message);
    if (this.state === "loading") {
      this.error = err.message;
      this.#changed();
    }
    await pause(this.#wait * (0.75 + Math.random() / 2), signal);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
  }

  #path(more) {
    const { kind, labels, fields, full } = this.#query, query = { ...more };
    if (labels) query.labelSelector = labels;
    if (fields) query.fieldSelector = fields;
    if (full) query.includeObject = "Object";
    return apiPath(kind, this.namespace, "", "", query);
  }

  /** list reads the pages of a list; rows that are the same stay the same. */
  async #list(signal) {
    const seen = new Set();
    for (let more = { limit: FIRST_PAGE }; more;) {
      const body = await (await send("GET", this.#path(more), { accept: AS_TABLE, signal })).json();
      if (body.columnDefinitions?.length) this.columns = body.columnDefinitions;
      for (const row of body.rows ?? []) seen.add(this.#put(row));
      this.#version = body.metadata.continue ? "" : body.metadata.resourceVersion;
      more = body.metadata.continue && { limit: NEXT_PAGE, continue: body.metadata.continue };
      [this.state, this.error] = ["live", ""];
      this.complete = !more;
      this.#changed();
    }
    for (const uid of [...this.rows.keys()]) if (!seen.has(uid)) this.rows.delete(uid);
    this.#changed();
  }

  #put({ cells, object: obj }) {
    const { uid, resourceVersion } = obj.metadata;
    const was = this.rows.get(uid);
    if (was?.obj.metadata.resourceVersion !== resourceVersion) {
      const at = now();
      this.rows.set(uid, { uid, obj, cells, since: cells.map((c, i) => this.#since(i, c, at, obj)) });
    }
    return uid;
  }

  /** since is the moment from which a column counts; undefined for one that does not count. */
  #since(i, cell, at, obj) {
    const { name } = this.columns[i] ?? {};
    if (name === "Age") return Date.parse(obj.metadata.creationTimestamp);
    if (!/^Last (Seen|Schedule)$/i.test(name)) return undefined;
    const ms = undoDuration(String(cell));
    return Number.isNaN(ms) ? undefined : at - ms;
  }

  async #watch(signal) {
    const silent = new AbortController();
    let timer;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE);
    };
    heard();
    try {
      const query = { watch: "1", allowWatchBookmarks: "1", resourceVersion: this.#version };
      const response = await send("GET", this.#path(query), { accept: AS_TABLE, signal: AbortSignal.any([signal, silent.signal]) });
      links.tell(this, "");
      for await (const line of lines(response.body)) {
        heard();
        this.#wait = FIRST_WAIT;
        this.#apply(JSON.parse(line));
      }
    } catch (err) {
      if (err instanceof ApiError || signal.aborted) throw err;
      throw new ApiError(silent.signal.aborted ? t`The connection went silent.` : t`The connection to Monopod broke off.`);
    } finally {
      clearTimeout(timer);
    }
  }

  #apply({ type, object }) {
    if (type === "ERROR") throw fromStatus(object) ?? new ApiError(t`The watch failed.`);
    this.#version = object.metadata?.resourceVersion || object.rows?.[0]?.object.metadata.resourceVersion || this.#version;
    if (type === "BOOKMARK") return;
    if (object.columnDefinitions?.length) this.columns = object.columnDefinitions;
    for (const row of object.rows ?? []) {
      if (type === "DELETED") this.rows.delete(row.object.metadata.uid);
      else this.#put(row);
    }
    this.#changed();
  }
}

/** lines yields a stream's lines as they come. */
export async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts.filter((p) => p !== "");
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {}); // it may have failed already
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
