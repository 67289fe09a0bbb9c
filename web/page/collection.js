// The objects of one resource by UID, and the listeners for changes; a Union shows
// several as one.

export class Collection {
  items = new Map();
  loaded = false;
  denied = false; // the user may not list it
  namespace = ""; // the only one whose objects it contains; empty: it contains all
  #listeners = [];

  /** listener(uid, was, is): was is undefined for a new one, is for a gone one. */
  listen(listener) {
    this.#listeners.push(listener);
  }

  put(item) {
    const uid = item.obj.metadata.uid, was = this.items.get(uid);
    this.items.set(uid, item);
    this.#tell(uid, was, item);
  }

  drop(uid) {
    const was = this.items.get(uid);
    if (this.items.delete(uid)) this.#tell(uid, was, undefined);
  }

  /** replace sets the list; unchanged objects are kept. */
  replace(list) {
    this.loaded = true;
    this.denied = false;
    const keep = new Set(list.map((it) => it.obj.metadata.uid));
    for (const uid of [...this.items.keys()]) if (!keep.has(uid)) this.drop(uid);
    for (const item of list) {
      const old = this.items.get(item.obj.metadata.uid);
      if (old?.obj.metadata.resourceVersion !== item.obj.metadata.resourceVersion) this.put(item);
    }
    this.#tell(undefined, undefined, undefined);
  }

  /** clear removes everything, and the state is as before the first list. */
  clear() {
    this.replace([]);
    this.loaded = false;
    this.#tell(undefined, undefined, undefined);
  }

  /** deny removes everything: the user may not list it. */
  deny() {
    this.replace([]);
    this.denied = true;
    this.#tell(undefined, undefined, undefined);
  }

  #tell(uid, was, is) {
    for (const listener of this.#listeners) listener(uid, was, is);
  }
}

/** Several collections as one, without those items that hides(item) names. */
export class Union {
  #parts;
  #hides;

  constructor(parts, hides) {
    this.#parts = parts;
    this.#hides = hides;
  }

  get items() {
    return new Map(this.#parts.flatMap((p) => [...p.items].filter(([, item]) => !this.#hides(item))));
  }

  get loaded() {
    return this.#parts.every((p) => p.loaded);
  }

  get denied() {
    return this.#parts.every((p) => p.denied);
  }

  get namespace() {
    return this.#parts.find((p) => p.namespace)?.namespace ?? "";
  }

  listen(listener) {
    for (const part of this.#parts) part.listen(listener);
  }
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
