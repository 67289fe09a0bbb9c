// The objects of one resource by UID, and who wants to know of changes.

export class Collection {
  items = new Map();
  loaded = false;
  denied = false; // the user may not list it
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

  /** replace makes this the list; what did not change is left alone. */
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

  /** clear forgets everything, also that there ever was a list. */
  clear() {
    this.replace([]);
    this.loaded = false;
    this.#tell(undefined, undefined, undefined);
  }

  /** deny forgets everything: the user may not see it. */
  deny() {
    this.replace([]);
    this.denied = true;
    this.#tell(undefined, undefined, undefined);
  }

  #tell(uid, was, is) {
    for (const listener of this.#listeners) listener(uid, was, is);
  }
}

/** A function that asks for draw to run once with the next frame, however often it is called. */
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
