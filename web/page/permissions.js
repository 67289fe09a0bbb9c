// The user's permissions, from the API. Each review is requested once for a session,
// for all namespaces first and then for the namespace of the row.

import { mayI } from "./api.js";
import { framed } from "./collection.js";

const MOST_ANSWERS = 2000;
const ASK_AGAIN = 10_000; // milliseconds, after a review that failed

export class Permissions {
  #answers = new Map(); // by review: true, false, or undefined while it is requested
  #asking = Promise.resolve(); // one review after the other
  #session = 0;
  #changed;

  /** changed() is called, at most once a frame, when there are new results. */
  constructor(changed) {
    this.#changed = framed(changed);
  }

  /** Whether the user may; false while it is not known. what: { verb, group, resource, subresource }. */
  may(what, namespace) {
    const everywhere = this.#answer(what, "");
    if (everywhere !== false) return everywhere === true;
    return this.#answer(what, namespace) === true;
  }

  /** forget is for another user, or after a permission turned out to be wrong. */
  forget() {
    this.#session++;
    this.#answers.clear();
    this.#changed();
  }

  #answer(what, namespace) {
    const key = JSON.stringify([what.verb, what.group, what.resource, what.subresource, namespace]);
    if (!this.#answers.has(key) && this.#answers.size < MOST_ANSWERS) {
      this.#answers.set(key, undefined);
      this.#asking = this.#asking.then(() => this.#ask(key, { ...what, namespace }, this.#session));
    }
    return this.#answers.get(key);
  }

  async #ask(key, attributes, session) {
    if (session !== this.#session) return;
    try {
      const allowed = await mayI(attributes);
      if (session === this.#session) this.#answers.set(key, allowed);
    } catch {
      setTimeout(() => {
        if (session !== this.#session) return;
        this.#answers.delete(key);
        this.#changed();
      }, ASK_AGAIN);
    }
    this.#changed();
  }
}
