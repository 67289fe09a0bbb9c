// What nodes and pods use, as graphs: now as metrics.k8s.io says, and before as the nodes
// remember.

import { apiPath, bytes, core, getJSON, h, inGroup, may, millis, now, quantity } from "./core.js";
import { graphs, known, record, seed } from "./graph.js";
import { facts, link } from "./sections.js";
import { t } from "./text.js";

export const POLL = 15; // seconds between two questions
const SLOW = 300; // seconds, for what changes slowly: each answer brings more of the server's program into memory

/** Whether the user may see what the resource, nodes or pods, uses. */
export const shows = (resource, where) => {
  const kind = inGroup("metrics.k8s.io", resource);
  return kind && may("get", kind, where);
};

const proxies = (name) => may("get", core("nodes"), { name, subresource: "proxy" });
const ask = (name, path, query) => getJSON(apiPath(core("nodes"), "", name, `proxy/stats/${path}`, query));

let answers = new Map(); // by what was asked: { at, answer }

/** rarely is ask's answer, at most as old as so many seconds. */
async function rarely(what, seconds, ask) {
  const last = answers.get(what);
  if (last && now() - last.at < seconds * 1000) return last.answer;
  const answer = await ask();
  answers = new Map([...answers].filter(([, a]) => now() - a.at < SLOW * 1000)).set(what, { at: now(), answer });
  return answer;
}

/** history is what a node kept, in points. query: of what, as pairs; none: of itself. Nodes add a point a minute. */
const history = (name, query = []) => rarely(`history/${name}/${query.join()}`, 60, () => ask(name, "history", query).catch(() => []));

/** remember adds, once, what nodes kept of an object. */
async function remember(uid, nodes, query) {
  if (known(uid)) return;
  seed(uid, []);
  const lists = await Promise.all(nodes.filter(proxies).map((name) => history(name, query)));
  if (lists.length === 1) seed(uid, lists[0].map((p) => ({ ...p, at: millis(p.time) })));
  if (lists.length < 2) return;
  const sums = new Map(), step = 600_000; // nodes measure at different times, pods every ten minutes
  for (const p of lists.flat()) {
    const at = Math.floor(millis(p.time) / step) * step, sum = sums.get(at) ?? { at, cpu: 0, memory: 0 };
    sums.set(at, { at, cpu: sum.cpu + p.cpu, memory: sum.memory + p.memory });
  }
  seed(uid, [...sums.values()].sort((a, b) => a.at - b.at));
}

/** ofNode is what a node uses. brief: without the sentence about its disk. */
export async function ofNode(node, brief = false) {
  const { uid, name } = node.metadata, { allocatable = {} } = node.status ?? {}, sees = proxies(name);
  await remember(uid, [name]);
  const { usage = {} } = await getJSON(apiPath(inGroup("metrics.k8s.io", "nodes"), "", name)).catch(() => ({})); // not every runtime has statistics
  const summary = sees ? await rarely(`summary/${name}`, SLOW - POLL, () => ask(name, "summary", { only_cpu_and_memory: "false" }).catch(() => null)) : null;
  const fs = summary?.node?.fs, image = fs && summary.node.runtime?.imageFs, { received, sent } = (sees && (await history(name)).at(-1)) || {};
  record(uid, { cpu: quantity(usage.cpu), memory: usage.memory ? quantity(usage.memory) : summary?.node?.memory?.workingSetBytes, disk: fs?.usedBytes, received, sent });
  return h("div", {}, graphs(uid, {
    cpu: { title: t`CPU`, unit: "cpu", limit: quantity(allocatable.cpu) }, memory: { title: t`Memory`, unit: "memory", limit: quantity(allocatable.memory) },
    disk: { title: t`Disk`, unit: "storage", limit: fs?.capacityBytes },
    received: { title: t`Received`, unit: "storage", suffix: "/s" }, sent: { title: t`Sent`, unit: "storage", suffix: "/s" },
  }), fs && !brief ? facts([[t`Disk`, t`${bytes(fs.usedBytes)} of ${bytes(fs.capacityBytes)} used, ${bytes(fs.availableBytes)} free`], [t`Images' disk`, image ? t`${bytes(image.usedBytes)} used` : ""]]) : null);
}

const total = (pods, name) => pods.reduce((sum, m) => sum + m.containers.reduce((s, c) => s + (quantity(c.usage?.[name]) || 0), 0), 0);
const both = (limit) => ({ cpu: { title: t`CPU`, unit: "cpu", limit: limit("cpu") }, memory: { title: t`Memory`, unit: "memory", limit: limit("memory") } });

/** ofPod is what a pod uses. */
export async function ofPod(pod) {
  const { uid, namespace, name } = pod.metadata;
  await remember(uid, pod.spec.nodeName ? [pod.spec.nodeName] : [], [["pod", uid]]);
  const m = await getJSON(apiPath(inGroup("metrics.k8s.io", "pods"), namespace, name)).catch(() => null);
  if (m) record(uid, { cpu: total([m], "cpu"), memory: total([m], "memory") });
  return graphs(uid, both((resource) => pod.spec.containers.reduce((sum, c) => sum + quantity(c.resources?.limits?.[resource] ?? ""), 0) || NaN));
}

/** ofPods is what the pods of a namespace use, or those of them that labels select. */
export async function ofPods(uid, namespace, labels = "") {
  const selected = labels ? { labelSelector: labels } : {};
  if (!known(uid)) {
    const pods = labels ? (await getJSON(apiPath(core("pods"), namespace, "", "", { ...selected, limit: "500" }))).items : [];
    const nodes = labels ? [...new Set(pods.map((p) => p.spec.nodeName).filter(Boolean))]
      : (await getJSON(apiPath(core("nodes"))).catch(() => ({ items: [] }))).items.map((n) => n.metadata.name);
    await remember(uid, nodes, labels ? pods.map((p) => ["pod", p.metadata.uid]) : [["namespace", namespace]]);
  }
  const { items } = await getJSON(apiPath(inGroup("metrics.k8s.io", "pods"), namespace, "", "", selected));
  if (!items.length) return null;
  record(uid, { cpu: total(items, "cpu"), memory: total(items, "memory") });
  return graphs(uid, both(() => NaN));
}

/** ofClaim is which pods use a claim, and how full its volume is, as the node of one of them measures it. */
export async function ofClaim({ metadata: { namespace, name }, status }) {
  const named = (pod, v) => v.persistentVolumeClaim?.claimName === name || (v.ephemeral && `${pod.metadata.name}-${v.name}` === name);
  const pods = (await getJSON(apiPath(core("pods"), namespace))).items.filter((pod) => (pod.spec.volumes ?? []).some((v) => named(pod, v)));
  if (!pods.length) return h("p", { class: "muted" }, t`No pod uses it.`);
  let fs = null;
  for (const node of new Set(pods.map((pod) => pod.spec.nodeName).filter(Boolean))) {
    if (fs || !proxies(node)) continue;
    const summary = await rarely(`summary/${node}`, 60, () => ask(node, "summary", { only_cpu_and_memory: "false" }).catch(() => null));
    fs = (summary?.pods ?? []).flatMap((p) => p.volume ?? []).find(({ pvcRef }) => pvcRef?.namespace === namespace && pvcRef.name === name);
  }
  const shared = fs && fs.capacityBytes > 1.1 * quantity(status?.capacity?.storage ?? "");
  return facts([["Pods", pods.flatMap((pod, i) => [i ? ", " : "", link(core("pods"), namespace, pod.metadata.name)])],
    [t`Used`, fs ? [h("meter", { min: 0, max: fs.capacityBytes, value: fs.usedBytes, "aria-label": t`Used` }), " ", t`${bytes(fs.usedBytes)} of ${bytes(fs.capacityBytes)}, ${bytes(fs.availableBytes)} free`,
      shared ? h("p", { class: "muted" }, t`These are figures of the whole file system: the volume is a folder of it, and has no size of its own.`) : ""] : ""]]);
}

const MOST_ASKED = 300; // rows whose requests and limits are read, too, when the number of rows changes

/** amounts is what pods or nodes use, by namespace/name: cpu and memory, each { n, text, of }. of: what they request and may use. */
export async function amounts(kind, namespace, rows) {
  const out = new Map();
  if (!shows(kind.name, { namespace })) return out;
  const [{ items }, objects] = await Promise.all([getJSON(apiPath(inGroup("metrics.k8s.io", kind.name), namespace)),
    rows > MOST_ASKED ? [] : rarely(`${kind.name}/${namespace}/${rows}`, SLOW, async () => (await getJSON(apiPath(kind, namespace))).items)]);
  const key = ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`, about = new Map(objects.map((o) => [key(o), kind.name === "pods" ? ofContainers(o) : ofAllocatable(o)]));
  for (const item of items) {
    const usage = item.usage ? (name) => quantity(item.usage[name]) : (name) => total([item], name), of = about.get(key(item));
    const cpu = usage("cpu"), memory = usage("memory");
    out.set(key(item), { cpu: { n: cpu, text: `${Math.round(cpu * 1000)}m`, of: of?.("cpu") }, memory: { n: memory, text: bytes(memory), of: of?.("memory") } });
  }
  return out;
}

const spell = (resource, n) => (resource === "cpu" ? `${Math.round(n * 1000)}m` : bytes(n));

function ofContainers(pod) {
  const sum = (what, resource) => pod.spec.containers.reduce((n, c) => n + (quantity(c.resources?.[what]?.[resource]) || 0), 0);
  return (resource) => {
    const requests = sum("requests", resource), limits = sum("limits", resource);
    return [requests ? t`requests ${spell(resource, requests)}` : t`requests nothing`, limits ? t`limits ${spell(resource, limits)}` : t`limits nothing`].join(", ");
  };
}

const ofAllocatable = (node) => (resource) => t`of ${spell(resource, quantity(node.status?.allocatable?.[resource]))} for pods`;
