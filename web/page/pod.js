// The sections of a pod: its containers in words, its life, its use, its volumes and its
// environment.

import { address, ago, apiPath, compare, condition, core, getJSON, grace, h, may, millis, moodly, readable } from "./core.js";
import { decoded, proxyLink } from "./object.js";
import { facts } from "./sections.js";
import { POLL, ofPod, shows } from "./use.js";

const SIGNALS = { 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM" };
const MEANT = { 4: "it ran an instruction that this processor does not have", 6: "it aborted itself", 7: "it used memory that is not there", 8: "it calculated something impossible", 9: "it was killed", 11: "it used memory that is not its own", 15: "it was asked to stop" };
const CODES = { 0: "it finished", 1: "it reported an error", 2: "it was called wrongly", 126: "its command cannot be executed", 127: "its command was not found" };

/** How a container ended, in words. */
export function ending(t) {
  if (t.reason === "OOMKilled") return `exit code ${t.exitCode}, SIGKILL: it used more memory than its limit (OOMKilled)`;
  const signal = t.signal || (t.exitCode > 128 && t.exitCode < 160 ? t.exitCode - 128 : 0);
  if (signal) return `exit code ${t.exitCode}, ${SIGNALS[signal] ?? `signal ${signal}`}${MEANT[signal] ? `: ${MEANT[signal]}` : ""}`;
  return `exit code ${t.exitCode}${CODES[t.exitCode] ? `: ${CODES[t.exitCode]}` : ""}`;
}

const all = (pod) => {
  const status = (list, name) => list?.find((s) => s.name === name);
  const { spec, status: st = {} } = pod;
  return [
    ...(spec.initContainers ?? []).map((c) => ({ c, s: status(st.initContainerStatuses, c.name), what: c.restartPolicy === "Always" ? "sidecar" : "init" })),
    ...spec.containers.map((c) => ({ c, s: status(st.containerStatuses, c.name), what: "" })),
    ...(spec.ephemeralContainers ?? []).map((c) => ({ c, s: status(st.ephemeralContainerStatuses, c.name), what: "debug" })),
  ];
};

export function sections(s, pod) {
  const where = { namespace: pod.metadata.namespace }, events = core("events");
  s.add("Containers", containers, (p) => [p.spec, p.status]);
  let latest = pod;
  if (events && may("list", events, where)) {
    const feed = s.live("Timeline", { kind: events, namespace: where.namespace, fields: `involvedObject.uid=${pod.metadata.uid}`, full: true }, (f) => timeline(latest, f));
    s.add("", (p) => {
      latest = p;
      feed.touch();
      return null;
    }, (p) => [p.status, p.metadata.deletionTimestamp]);
  } else s.add("Timeline", (p) => timeline(p, null), (p) => [p.status, p.metadata.deletionTimestamp]);
  if (shows("pods", where)) s.poll("Use", POLL, () => ofPod(latest));
  s.add("Ports", ports, (p) => p.spec.containers.map((c) => c.ports));
  s.add("Environment", environment, (p) => p.spec);
  s.add("Volumes", volumes, (p) => [p.spec.volumes, p.spec.containers.map((c) => c.volumeMounts)]);
}

// --- containers ---

function state({ state: s, ready } = {}) {
  if (s?.running) return [moodly(ready ? "ok" : "wait", ready ? "Running" : "Running, not ready"), h("span", { class: "muted" }, " for ", ago(millis(s.running.startedAt)))];
  if (s?.terminated) return [moodly(s.terminated.exitCode === 0 ? "done" : "bad", s.terminated.reason ?? "Ended"), h("span", { class: "muted" }, " ", ending(s.terminated), ", ", ago(millis(s.terminated.finishedAt), " ago"))];
  return [moodly(/BackOff|Err|Invalid|Failed/.test(s?.waiting?.reason) ? "bad" : "wait", s?.waiting?.reason ?? "Waiting")];
}

function containers(pod) {
  const where = { namespace: pod.metadata.namespace }, pods = core("pods");
  const link = (part, text, c) => h("a", { class: "button", href: address(pods, where.namespace, pod.metadata.name, part, { c: c.name }), "aria-label": `${text} of ${c.name}` }, text);
  return h("div", { class: "cards" }, all(pod).map(({ c, s, what }) => h("article", { class: "card", "data-container": c.name },
    h("header", {}, h("h4", { class: "name" }, c.name), what ? h("span", { class: "muted" }, what) : null, h("p", {}, state(s)),
      h("span", { class: "push" },
        may("get", pods, { ...where, subresource: "log" }) ? link("logs", "Logs", c) : null,
        s?.state?.running && may("create", pods, { ...where, subresource: "exec" }) ? link("shell", "Terminal", c) : null)),
    facts([
      ["Image", h("span", { class: "name" }, c.image)],
      ["Restarts", s?.restartCount ? String(s.restartCount) : ""],
      ["Message", (s?.state?.waiting ?? s?.state?.terminated)?.message],
      ["Last end", s?.lastState?.terminated ? [ending(s.lastState.terminated), ", ", ago(millis(s.lastState.terminated.finishedAt), " ago")] : ""],
      ["Its message", s?.lastState?.terminated?.message],
      ["Command", [...(c.command ?? []), ...(c.args ?? [])].join(" ")],
      ["Requests", amounts(c.resources?.requests)], ["Limits", amounts(c.resources?.limits)],
      ...["startupProbe", "readinessProbe", "livenessProbe"].map((p) => [p.replace("Probe", " probe").replace(/^./, (x) => x.toUpperCase()), c[p] ? probe(c[p]) : ""]),
    ]))));
}

const amounts = (list) => Object.entries(list ?? {}).map(([name, v]) => `${name} ${readable(name, v)}`).join(", ");

function probe(p) {
  const what = p.httpGet ? `GET ${p.httpGet.path ?? "/"} at ${p.httpGet.port}` : p.tcpSocket ? `TCP ${p.tcpSocket.port}` : p.grpc ? `gRPC ${p.grpc.port}` : (p.exec?.command ?? []).join(" ");
  return `${what}, every ${p.periodSeconds ?? 10} s, ${p.failureThreshold ?? 3} failures`;
}

// --- timeline ---

const LIFE = ["Pod created", "FailedScheduling", "Scheduled", "Pulling", "Pulled", "Created", "Container started", "Started", "Ready"];
const rank = ({ what }) => (LIFE.includes(what) ? LIFE.indexOf(what) : LIFE.length);

/** timeline is what happened to the pod, newest first: from its events, and from its status for what has none. */
function timeline(pod, feed) {
  const items = []; // most times have whole seconds: all are shown so, and their order is that of a life
  const add = (at, what, text, mood = "done", times = 1) => Number.isNaN(at) || items.push({ at: at - at % 1000, what, text, mood, times });
  const told = new Set();
  for (const { obj: ev } of feed?.items ?? []) {
    told.add(ev.reason);
    const at = millis(ev.series?.lastObservedTime ?? ev.lastTimestamp ?? ev.eventTime ?? ev.metadata.creationTimestamp);
    const field = /\{(.+)\}/.exec(ev.involvedObject?.fieldPath ?? "")?.[1];
    add(at, ev.reason, (field ? `${field}: ` : "") + (ev.message ?? ""), ev.type === "Warning" ? "bad" : "done", ev.series?.count ?? ev.count ?? 1);
  }
  add(millis(pod.metadata.creationTimestamp), "Pod created", "");
  const scheduled = condition(pod, "PodScheduled");
  if (scheduled?.status === "True" && !told.has("Scheduled")) add(millis(scheduled.lastTransitionTime), "Scheduled", `to ${pod.spec.nodeName}`);
  const ready = condition(pod, "Ready");
  if (ready) add(millis(ready.lastTransitionTime), ready.status === "True" ? "Ready" : "Not ready", ready.message ?? "", ready.status === "True" ? "ok" : "wait");
  for (const { c, s } of all(pod)) {
    const last = s?.lastState?.terminated, { running, terminated } = s?.state ?? {};
    if (last) add(millis(last.finishedAt), "Container ended", `${c.name}: ${ending(last)}`, last.exitCode ? "bad" : "done");
    if (terminated) add(millis(terminated.finishedAt), "Container ended", `${c.name}: ${ending(terminated)}`, terminated.exitCode ? "bad" : "done");
    if (running && (!told.has("Started") || s.restartCount > 0)) add(millis(running.startedAt), s.restartCount ? `Container restarted (${s.restartCount})` : "Container started", c.name, "ok");
  }
  const ends = grace(pod.metadata);
  if (ends) add(millis(pod.metadata.deletionTimestamp) - ends.total * 1000, "Deletion asked", `${ends.total} s of grace; then its containers are killed, and the object goes when they are dead`, "ending");
  items.sort((a, b) => compare(b.at, a.at) || rank(b) - rank(a));
  return h("ol", { class: "timeline" }, items.slice(0, 100).map((it) => h("li", { "data-mood": it.mood }, h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "when" }, ago(it.at)), h("div", {}, h("strong", {}, it.what), it.times > 1 ? h("span", { class: "muted" }, ` ${it.times} times`) : null, it.text ? h("p", {}, it.text.trim()) : null))));
}

// --- ports, environment, volumes ---

function ports(pod) {
  const list = pod.spec.containers.flatMap((c) => (c.ports ?? []).map((p) => ({ ...p, container: c.name })));
  if (!list.length) return null;
  const { namespace, name } = pod.metadata, pods = core("pods"), ok = may("get", pods, { namespace, subresource: "proxy" });
  return h("ul", { class: "plainly" }, list.map((p) => h("li", {}, h("span", { class: "name" }, `${p.containerPort}/${p.protocol ?? "TCP"}`), ` ${p.name ?? ""} of ${p.container}`, p.hostPort ? `, host port ${p.hostPort}` : "", " ",
    ok && (p.protocol ?? "TCP") === "TCP" ? proxyLink(apiPath(pods, namespace, `${name}:${p.containerPort}`, "proxy/")) : null)));
}

function environment(pod) {
  const rows = all(pod).flatMap(({ c }) => [
    ...(c.envFrom ?? []).map((e) => [c.name, e.prefix ? `${e.prefix}*` : "*", reference(pod, e.configMapRef ? ["configmaps", e.configMapRef.name] : ["secrets", e.secretRef?.name])]),
    ...(c.env ?? []).map((e) => [c.name, e.name, value(pod, e)]),
  ]);
  if (!rows.length) return null;
  return h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, ["Name", "Value", "Container"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, rows.map(([container, name, v]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "long" }, v), h("td", { "data-label": "container" }, container)))));
}

function value(pod, e) {
  const from = e.valueFrom;
  if (!from) return h("span", { class: "name" }, e.value ?? "");
  if (from.fieldRef) return `field ${from.fieldRef.fieldPath}`;
  if (from.resourceFieldRef) return `resource ${from.resourceFieldRef.resource}`;
  if (from.configMapKeyRef) return reference(pod, ["configmaps", from.configMapKeyRef.name, from.configMapKeyRef.key]);
  if (from.secretKeyRef) return reference(pod, ["secrets", from.secretKeyRef.name, from.secretKeyRef.key]);
  return "from a file";
}

/** reference links to the object that a value comes from; a secret's value is shown when asked for. */
function reference(pod, [name, object, key]) {
  const kind = core(name), { namespace } = pod.metadata;
  if (!kind || !object) return object ?? "";
  const text = h("span", {}, `${kind.kind} `, h("a", { class: "name", href: address(kind, namespace, object) }, object), key ? `, key ${key} ` : " ");
  if (name !== "secrets" || !key || !may("get", kind, { namespace, name: object })) return text;
  const show = h("button", { type: "button", class: "quiet", "aria-label": `Show ${key} of ${object}`, onclick: async () => {
    const secret = await getJSON(apiPath(kind, namespace, object)).catch((err) => ({ data: { [key]: btoa(err.message) } }));
    show.replaceWith(h("span", { class: "name" }, key in (secret.data ?? {}) ? decoded(secret.data[key]) : "there is no such key"));
  } }, "Show");
  return [text, show];
}

const SOURCES = { configMap: ["configmaps", "name"], secret: ["secrets", "secretName"], persistentVolumeClaim: ["persistentvolumeclaims", "claimName"] };

function volumes(pod) {
  if (!pod.spec.volumes?.length) return null;
  const mounts = (name) => all(pod).flatMap(({ c }) => (c.volumeMounts ?? []).filter((m) => m.name === name).map((m) => `${c.name}:${m.mountPath}${m.readOnly ? " (read only)" : ""}`)).join(", ");
  return h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, ["Name", "Type", "Source", "Mounted at"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, pod.spec.volumes.map((v) => {
      const type = Object.keys(v).find((k) => k !== "name") ?? "emptyDir", [name, field] = SOURCES[type] ?? [], kind = name && core(name);
      const source = kind && v[type][field] ? h("a", { class: "name", href: address(kind, pod.metadata.namespace, v[type][field]) }, v[type][field])
        : v[type]?.path ?? v[type]?.medium ?? v[type]?.driver ?? (v[type]?.sources ?? []).map((x) => Object.keys(x)[0]).join(", ");
      return h("tr", {}, h("th", { scope: "row" }, v.name), h("td", { "data-label": "type" }, type), h("td", { "data-label": "source" }, source), h("td", { class: "long", "data-label": "mounted at" }, mounts(v.name)));
    })));
}
