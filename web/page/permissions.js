// What the user may do, as the API says. Each question is asked once a session, for
// all namespaces first and then for the one at hand.

import { mayI } from "./api.js";
import { framed } from "./collection.js";

const MOST_ANSWERS = 2000;
const ASK_AGAIN = 10_000; // milliseconds, after a question that failed

export class Permissions {
  #answers = new Map(); // by question: true, false, or undefined while it is asked
  #asking = Promise.resolve(); // one question after the other
  #session = 0;
  #changed;

  /** changed() is called, at most once a frame, when there are new answers. */
  constructor(changed) {
    this.#changed = framed(changed);
  }

  /** Whether the user may; false as long as nobody knows. what: { verb, group, resource, subresource }. */
  may(what, namespace) {
    const everywhere = this.#answer(what, "");
    if (everywhere !== false) return everywhere === true;
    return this.#answer(what, namespace) === true;
  }

  /** forget is for another user, or when an answer turned out wrong. */
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
