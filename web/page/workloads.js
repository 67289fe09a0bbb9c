// The table of workloads, and scaling.

import { scale } from "./api.js";
import { duration, millis } from "./kube.js";
import { Table, byName, clone, setMoment, write } from "./table.js";

const SET = {
  scales: true,
  desired: ({ spec }) => spec.replicas ?? 1,
  current: ({ status }) => status?.replicas ?? 0,
  ready: ({ status }) => status?.readyReplicas ?? 0,
};

/** The kinds by resource: what their numbers of pods are, and whether users set them. */
const KINDS = {
  deployments: { ...SET, kind: "Deployment" },
  statefulsets: { ...SET, kind: "StatefulSet" },
  replicasets: { ...SET, kind: "ReplicaSet" },
  daemonsets: {
    kind: "DaemonSet",
    scales: false, // one pod for each node
    desired: ({ status }) => status?.desiredNumberScheduled ?? 0,
    current: ({ status }) => status?.currentNumberScheduled ?? 0,
    ready: ({ status }) => status?.numberReady ?? 0,
  },
};

export const RESOURCES = Object.keys(KINDS);

const scaling = (resource) => ({ verb: "patch", group: "apps", resource, subresource: "scale" });
const owner = ({ metadata }) => metadata.ownerReferences?.find((ref) => ref.controller);

/** Whether it is a ReplicaSet that a Deployment keeps only to be able to return to it. */
export function isRetired({ obj, resource }) {
  const { desired, current } = KINDS[resource];
  return owner(obj) !== undefined && desired(obj) === 0 && current(obj) === 0;
}

/**
 * say(text) announces results to screen readers; may is that of Permissions.
 */
export function workloadTable(section, workloads, say, may) {
  return new Table(section, workloads, {
    row: (item) => workloadRow(item, say, may),
    order: byName,
    text: ({ obj, resource }) => `${obj.metadata.name} ${obj.metadata.namespace} ${KINDS[resource].kind}`,
  });
}

function workloadRow(first, say, may) {
  const { root, parts } = clone("workload-row");
  const { kind, scales, desired, current, ready } = KINDS[first.resource];
  const { name, namespace, creationTimestamp } = first.obj.metadata;
  write(parts.name, name);
  write(parts.kind, kind);
  write(parts.namespace, namespace);
  setMoment(parts.age, millis(creationTimestamp));
  const scaler = scales ? new Scaler(parts, first, say) : null;
  return {
    root,
    item: first,
    update({ obj }) {
      write(parts.current, current(obj));
      write(parts.ready, ready(obj));
      parts.ready.classList.toggle("short", ready(obj) < desired(obj));
      const ref = owner(obj); // it would set the number again
      const fixed = !scales || ref !== undefined || !may(scaling(first.resource), namespace);
      parts.form.hidden = fixed;
      parts.fixed.hidden = !fixed;
      parts.fixed.title = ref ? `Set by ${ref.kind} ${ref.name}` : scales ? "" : "One pod for each node that it selects";
      write(parts.fixed, desired(obj));
      scaler?.show(obj);
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
  #resource;
  #say;
  #asked = null; // not confirmed yet
  #busy = false;

  constructor(parts, { obj, resource }, say) {
    const { name } = obj.metadata;
    this.#parts = parts;
    this.#name = name;
    this.#resource = resource;
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
    return this.#asked ?? SET.desired(this.#set);
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
        await scale(this.#resource, this.#set, replicas);
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
