// The table of ReplicaSets, and scaling.

import { scale } from "./api.js";
import { duration, millis } from "./kube.js";
import { Table, byName, clone, setMoment, write } from "./table.js";

export const desired = (set) => set.spec.replicas ?? 1;

const SCALE = { verb: "patch", group: "apps", resource: "replicasets", subresource: "scale" };

/**
 * say(text) announces results to screen readers; may is that of Permissions.
 */
export function setTable(section, sets, say, may) {
  return new Table(section, sets, {
    row: (item) => setRow(item, say, may),
    order: byName,
    text: ({ obj }) => `${obj.metadata.name} ${obj.metadata.namespace}`,
  });
}

function setRow(first, say, may) {
  const { root, parts } = clone("set-row");
  const { name, namespace, creationTimestamp } = first.obj.metadata;
  write(parts.name, name);
  write(parts.namespace, namespace);
  setMoment(parts.age, millis(creationTimestamp));
  const scaler = new Scaler(parts, name, say);
  return {
    root,
    item: first,
    update({ obj }) {
      const { replicas = 0, readyReplicas = 0 } = obj.status ?? {};
      write(parts.current, replicas);
      write(parts.ready, readyReplicas);
      parts.ready.classList.toggle("short", readyReplicas < desired(obj));
      const owner = obj.metadata.ownerReferences?.find((ref) => ref.controller); // it would set its size again
      const fixed = owner !== undefined || !may(SCALE, namespace);
      parts.form.hidden = fixed;
      parts.fixed.hidden = !fixed;
      parts.fixed.title = owner ? `Set by ${owner.kind} ${owner.name}` : "";
      write(parts.fixed, desired(obj));
      scaler.show(obj);
    },
    tick: (_, at) => write(parts.age, duration(at - millis(creationTimestamp))),
  };
}

/**
 * Scaler is the control in a row: − and + act at once, a typed number with Enter
 * or Set. One request is in flight at a time; of the numbers chosen meanwhile only
 * the last is sent.
 */
class Scaler {
  #set;
  #parts;
  #name;
  #say;
  #asked = null; // not confirmed yet
  #busy = false;

  constructor(parts, name, say) {
    this.#parts = parts;
    this.#name = name;
    this.#say = say;
    const { less, more, want, form } = parts;
    less.setAttribute("aria-label", `One pod less for ${name}`);
    more.setAttribute("aria-label", `One pod more for ${name}`);
    want.setAttribute("aria-label", `Pods wanted for ${name}`);
    less.addEventListener("click", () => this.#goal() > 0 && this.#ask(this.#goal() - 1));
    more.addEventListener("click", () => this.#ask(this.#goal() + 1));
    want.addEventListener("input", () => this.#mark());
    want.addEventListener("keydown", (ev) => ev.key === "Escape" && this.#fill());
    form.addEventListener("submit", (ev) => {
      ev.preventDefault();
      this.#submit();
    });
  }

  /** show shows the server's value; a number being typed stays. */
  show(set) {
    const typing = this.#set !== undefined && this.#typed();
    this.#set = set;
    if (!typing && this.#asked === null) this.#fill();
    this.#mark();
  }

  #goal() {
    return this.#asked ?? desired(this.#set);
  }

  #typed() {
    return this.#parts.want.value !== String(this.#goal());
  }

  #fill() {
    this.#parts.want.value = this.#goal();
    this.#mark();
  }

  #mark() {
    const { set, less } = this.#parts;
    set.disabled = !this.#typed();
    less.setAttribute("aria-disabled", this.#goal() === 0); // and not disabled: it would lose the focus
  }

  #submit() {
    const { want, error } = this.#parts;
    want.focus();
    if (/^\d{1,9}$/.test(want.value)) this.#ask(Number(want.value));
    else write(error, "A whole number of pods, 0 or more.");
  }

  async #ask(replicas) {
    this.#asked = replicas;
    write(this.#parts.error, "");
    this.#fill();
    if (this.#busy) return;
    this.#busy = true;
    this.#parts.form.setAttribute("aria-busy", "true");
    await this.#settle();
    this.#busy = false;
    this.#parts.form.removeAttribute("aria-busy");
  }

  /** settle sends the chosen number until there is no newer one. */
  async #settle() {
    while (this.#asked !== null) {
      const replicas = this.#asked;
      try {
        await scale(this.#set, replicas);
        this.#set = { ...this.#set, spec: { ...this.#set.spec, replicas } };
        this.#say(`${this.#name} is scaled to ${replicas}`);
        if (this.#asked === replicas) this.#asked = null;
      } catch (err) {
        write(this.#parts.error, err.message);
        this.#asked = null;
      }
      this.#fill();
    }
  }
}
