// The node: its conditions, versions and resources, and its rack of pods.

import { framed } from "./collection.js";
import { condition, mood, occupies, readable } from "./kube.js";
import { byName, clone, write } from "./table.js";

// More slots than this are not drawn as empty.
const MOST_SLOTS = 200;
// More pods than this are not drawn one by one: unhealthy ones come first.
const MOST_DRAWN = 400;
const WORST_FIRST = ["bad", "wait", "ending", "ok", "done"];
const RESOURCES = ["cpu", "memory", "ephemeral-storage", "pods"];

export class NodeCards {
  #nodes;
  #pods;
  #list;
  #empty;
  #cards = new Map(); // by UID
  draw = framed(() => this.#draw());

  constructor(section, nodes, pods) {
    this.#list = section.querySelector("#node-list");
    this.#empty = section.querySelector(".empty");
    this.#nodes = nodes;
    this.#pods = pods;
    nodes.listen(this.draw);
    pods.listen(this.draw);
  }

  #draw() {
    const { items, loaded, denied } = this.#nodes;
    for (const [uid, card] of this.#cards) {
      if (items.has(uid)) continue;
      card.root.remove();
      this.#cards.delete(uid);
    }
    const byNode = Map.groupBy(this.#pods.items.values(), (it) => it.obj.spec.nodeName ?? "");
    for (const { obj } of [...items.values()].sort(byName)) {
      this.#card(obj).update(obj, (byNode.get(obj.metadata.name) ?? []).sort(byName));
    }
    this.#empty.hidden = items.size > 0;
    write(this.#empty, denied ? this.#empty.dataset.denied : loaded ? "The node has not registered yet." : "Loading…");
  }

  #card(node) {
    const { uid } = node.metadata;
    if (!this.#cards.has(uid)) {
      const card = nodeCard();
      this.#cards.set(uid, card);
      this.#list.append(card.root);
    }
    return this.#cards.get(uid);
  }
}

function nodeCard() {
  const { root, parts } = clone("node-card");
  let drawn = "";
  return {
    root,
    update(node, pods) {
      if (drawn !== node.metadata.resourceVersion) describe(parts, node);
      drawn = node.metadata.resourceVersion;
      const living = pods.filter((it) => occupies(it.obj));
      const slots = Number(node.status?.allocatable?.pods ?? 0);
      write(parts.pods, living.length);
      const of = slots ? `of ${slots} pods` : living.length === 1 ? "pod" : "pods";
      write(parts.slots, living.length > MOST_DRAWN ? `${of}, ${MOST_DRAWN} drawn, those that are not well first` : of);
      fillRack(parts.rack, living, slots);
    },
  };
}

function describe(parts, node) {
  const { state, kind, why } = health(node);
  write(parts.name, node.metadata.name);
  write(parts.state, state);
  parts.mood.dataset.mood = kind;
  write(parts.why, why);
  replaceRows(parts.facts, facts(node), fact);
  replaceRows(parts.amounts, amounts(node), amount);
}

/** health returns the node's state in a word, and the reason. */
function health(node) {
  const ready = condition(node, "Ready");
  const why = (node.status?.conditions ?? [])
    .filter((c) => (c.type === "Ready" ? c.status !== "True" : c.status === "True"))
    .map((c) => [c.type === "Ready" ? c.reason : c.type, c.message].filter(Boolean).join(": "));
  if (node.spec.unschedulable) why.push("Cordoned: no new pods are placed here.");
  if (ready?.status === "True") return { state: "Ready", kind: why.length ? "wait" : "ok", why: why.join(" · ") };
  if (!ready) why.push("It has not said how it is.");
  return { state: ready?.status === "False" ? "Not ready" : "Unknown", kind: "bad", why: why.join(" · ") };
}

function facts(node) {
  const info = node.status?.nodeInfo ?? {};
  const addresses = (node.status?.addresses ?? []).map((a) => `${a.address} (${a.type})`);
  return [
    ["Version", info.kubeletVersion],
    ["Runtime", info.containerRuntimeVersion],
    ["System", [info.osImage, info.architecture].filter(Boolean).join(", ")],
    ["Kernel", info.kernelVersion],
    ["Addresses", addresses.join(", ")],
  ].filter(([, value]) => value);
}

function amounts(node) {
  const { capacity = {}, allocatable = {} } = node.status ?? {};
  const names = new Set([...RESOURCES, ...Object.keys(capacity)].filter((name) => name in capacity));
  return [...names].filter((n) => !(n.startsWith("hugepages-") && capacity[n] === "0"))
    .map((name) => [name, readable(name, capacity[name]), readable(name, allocatable[name])]);
}

function replaceRows(parent, rows, make) {
  parent.replaceChildren(...rows.map(make));
}

function element(name, text, className = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

function fact([term, value]) {
  const div = document.createElement("div");
  div.append(element("dt", term), element("dd", value, "name"));
  return div;
}

function amount([name, capacity, allocatable]) {
  const tr = document.createElement("tr");
  const head = element("th", name);
  head.scope = "row";
  tr.append(head, element("td", capacity, "num"), element("td", allocatable, "num"));
  return tr;
}

/** fillRack draws one slot for each pod and each pod that would fit. */
function fillRack(rack, living, slots) {
  const drawn = living.map((it) => ({ it, kind: mood(it.printed.Status, it.printed.Ready) }));
  if (drawn.length > MOST_DRAWN) drawn.sort((a, b) => WORST_FIRST.indexOf(a.kind) - WORST_FIRST.indexOf(b.kind));
  const total = Math.min(MOST_DRAWN, Math.max(living.length, slots <= MOST_SLOTS ? slots : 0));
  while (rack.childElementCount > total) rack.lastElementChild.remove();
  while (rack.childElementCount < total) rack.append(document.createElement("i"));
  let slot = rack.firstElementChild;
  for (let i = 0; i < total; i++, slot = slot.nextElementSibling) {
    const { it, kind } = drawn[i] ?? { it: null, kind: "" };
    if ((slot.dataset.mood ?? "") !== kind) slot.dataset.mood = kind;
    const title = it ? `${it.obj.metadata.name}: ${it.printed.Status}` : "";
    if (slot.title !== title) slot.title = title;
  }
}
