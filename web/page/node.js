// The sections of a node: what it has, what pods asked for, what they use, its disk, its
// images and who uses them.

import { address, ago, apiPath, bytes, core, getJSON, h, inGroup, may, millis, moodly, quantity, readable } from "./core.js";
import { graphs, record } from "./graph.js";
import { facts } from "./sections.js";

const POLL = 15; // seconds
const SHOWN = ["cpu", "memory", "ephemeral-storage", "pods"];

export function sections(s, node) {
  const pods = core("pods"), metrics = inGroup("metrics.k8s.io", "nodes");
  let latest = node, feed = null;
  s.add("Conditions", conditions, (n) => [n.status?.conditions?.map((c) => [c.type, c.status, c.reason, c.message]), n.spec.unschedulable]);
  const amounts = (f) => {
    feed = f;
    return h("div", {}, table(latest, f), images(latest, f));
  };
  if (may("list", pods)) s.live("Capacity", { kind: pods, fields: `spec.nodeName=${node.metadata.name}`, full: true }, amounts);
  else s.add("Capacity", (n) => table(n, null), (n) => n.status?.capacity);
  if (metrics && may("get", metrics)) s.poll("Use", POLL, () => use(metrics, latest));
  s.add("System", system, (n) => [n.status?.nodeInfo, n.status?.addresses]);
  s.add("", (n) => {
    latest = n;
    feed?.touch();
    return null;
  }, (n) => [n.status?.images, n.status?.allocatable]);
}

function conditions(node) {
  const all = (node.status?.conditions ?? []).map((c) => {
    const good = (c.type === "Ready") === (c.status === "True");
    return h("li", {}, moodly(good ? "ok" : "bad", `${c.type}: ${c.status}`), h("span", { class: "muted" }, " ", ago(millis(c.lastTransitionTime), " ago")), good || !c.message ? null : h("p", {}, c.message));
  });
  if (node.spec.unschedulable) all.unshift(h("li", {}, moodly("wait", "Cordoned: no new pods are placed here.")));
  return all.length ? h("ul", { class: "conditions" }, all) : null;
}

/** table compares what the node has with what its pods asked for. */
function table(node, feed) {
  const { capacity = {}, allocatable = {} } = node.status ?? {};
  const living = (feed?.items ?? []).map((r) => r.obj).filter((p) => !/^(Succeeded|Failed)$/.test(p.status?.phase));
  const asked = (name) => (name === "pods" ? living.length : living.reduce((sum, p) => sum + request(p, name), 0));
  const names = [...SHOWN.filter((n) => n in capacity), ...Object.keys(capacity).filter((n) => !SHOWN.includes(n) && quantity(capacity[n]) > 0)];
  const share = (name) => Math.min(100, Math.round(100 * asked(name) / (quantity(allocatable[name]) || 1)));
  return h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, ["Resource", "Capacity", "For pods", feed ? "Requested" : null].filter(Boolean).map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, names.map((n) => h("tr", {}, h("th", { scope: "row" }, n), h("td", { "data-label": "capacity" }, readable(n, capacity[n])), h("td", { "data-label": "for pods" }, readable(n, allocatable[n])),
      feed ? h("td", { "data-label": "requested" }, `${readable(n, asked(n))} (${share(n)} %) `, h("meter", { min: 0, max: 100, value: share(n), "aria-label": `${n} requested` })) : null))));
}

/** request is what a pod asks for, as the scheduler counts it: its containers, or a larger init container. */
function request(pod, name) {
  const of = (c) => quantity(c.resources?.requests?.[name] ?? "0") || 0, { containers, initContainers = [], overhead } = pod.spec;
  const sidecars = initContainers.filter((c) => c.restartPolicy === "Always");
  const sum = [...containers, ...sidecars].reduce((total, c) => total + of(c), 0);
  return Math.max(sum, ...initContainers.map(of)) + (quantity(overhead?.[name] ?? "0") || 0);
}

async function use(kind, node) {
  const { usage } = await getJSON(apiPath(kind, "", node.metadata.name)), { allocatable = {} } = node.status ?? {};
  const nodes = core("nodes"), summary = may("get", nodes, { subresource: "proxy" })
    ? await getJSON(apiPath(nodes, "", node.metadata.name, "proxy/stats/summary", { only_cpu_and_memory: "false" })).catch(() => null) : null;
  record(node.metadata.uid, { cpu: quantity(usage.cpu), memory: quantity(usage.memory) });
  const fs = summary?.node?.fs, image = summary?.node?.runtime?.imageFs;
  return h("div", {}, graphs(node.metadata.uid, {
    cpu: { title: "CPU", unit: "cpu", limit: quantity(allocatable.cpu) }, memory: { title: "Memory", unit: "memory", limit: quantity(allocatable.memory) },
  }), fs ? facts([["Disk", `${bytes(fs.usedBytes)} of ${bytes(fs.capacityBytes)} used, ${bytes(fs.availableBytes)} free`], ["Images' disk", image ? `${bytes(image.usedBytes)} used` : ""]]) : null);
}

function system(node) {
  const info = node.status?.nodeInfo ?? {};
  return facts([["Version", info.kubeletVersion], ["Runtime", info.containerRuntimeVersion], ["System", [info.osImage, info.architecture].filter(Boolean).join(", ")], ["Kernel", info.kernelVersion],
    ["Addresses", (node.status?.addresses ?? []).map((a) => `${a.address} (${a.type})`).join(", ")]]);
}

/** images are those that the node reports, with the pods that use them. */
function images(node, feed) {
  const list = node.status?.images ?? [];
  if (!list.length) return null;
  const users = (names) => feed.items.map((r) => r.obj).filter((p) => [...(p.status?.containerStatuses ?? []), ...p.spec.containers].some((c) => names.includes(c.image) || names.includes(c.imageID)));
  const pods = core("pods");
  return h("div", { class: "images" }, h("h3", {}, "Images"), h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, ["Image", "Size", "Used by"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, list.slice(0, 200).map(({ names = [], sizeBytes }) => {
      const by = users(names);
      return h("tr", {}, h("th", { scope: "row", title: names.join(" ") }, names.find((n) => !n.includes("@")) ?? names[0] ?? "?"), h("td", {}, bytes(sizeBytes ?? 0)),
        h("td", { class: "c-message" }, by.slice(0, 5).flatMap((p, i) => [i ? ", " : "", h("a", { href: address(pods, p.metadata.namespace, p.metadata.name) }, p.metadata.name)]), by.length > 5 ? `, ${by.length - 5} more` : ""));
    }))));
}
