// The sections of a pod: its containers in words, its life, its use, its volumes and its
// environment.

import { address, ago, apiPath, compare, condition, core, getJSON, grace, h, may, millis, moodly, readable } from "./core.js";
import { decoded, proxyLink } from "./object.js";
import { facts } from "./sections.js";
import { t } from "./text.js";
import { POLL, ofPod, shows } from "./use.js";

const SIGNALS = { 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM" };
const MEANT = { 4: t`it ran an instruction that this processor does not have`, 6: t`it aborted itself`, 7: t`it used memory that is not there`, 8: t`it calculated something impossible`, 9: t`it was killed`, 11: t`it used memory that is not its own`, 15: t`it was asked to stop` };
const CODES = { 0: t`it finished`, 1: t`it reported an error`, 2: t`it was called wrongly`, 126: t`its command cannot be executed`, 127: t`its command was not found` };

/** How a container ended, in words. */
export function ending({ reason, exitCode: code, signal: sent }) {
  if (reason === "OOMKilled") return t`exit code ${code}, SIGKILL: it used more memory than its limit (OOMKilled)`;
  const signal = sent || (code > 128 && code < 160 ? code - 128 : 0), name = SIGNALS[signal] ?? t`signal ${signal}`;
  if (signal) return MEANT[signal] ? t`exit code ${code}, ${name}: ${MEANT[signal]}` : t`exit code ${code}, ${name}`;
  return CODES[code] ? t`exit code ${code}: ${CODES[code]}` : t`exit code ${code}`;
}

const all = (pod) => {
  const status = (list, name) => list?.find((s) => s.name === name);
  const { spec, status: st = {} } = pod;
  return [
    ...(spec.initContainers ?? []).map((c) => ({ c, s: status(st.initContainerStatuses, c.name), what: c.restartPolicy === "Always" ? t`sidecar` : t`init` })),
    ...spec.containers.map((c) => ({ c, s: status(st.containerStatuses, c.name), what: "" })),
    ...(spec.ephemeralContainers ?? []).map((c) => ({ c, s: status(st.ephemeralContainerStatuses, c.name), what: t`debug` })),
  ];
};

export function sections(s, pod) {
  const where = { namespace: pod.metadata.namespace }, events = core("events");
  s.add(t`Containers`, containers, (p) => [p.spec, p.status]);
  let latest = pod;
  if (events && may("list", events, where)) {
    const feed = s.live(t`Timeline`, { kind: events, namespace: where.namespace, fields: `involvedObject.uid=${pod.metadata.uid}`, full: true }, (f) => timeline(latest, f));
    s.add("", (p) => {
      latest = p;
      feed.touch();
      return null;
    }, (p) => [p.status, p.metadata.deletionTimestamp]);
  } else s.add(t`Timeline`, (p) => timeline(p, null), (p) => [p.status, p.metadata.deletionTimestamp]);
  if (shows("pods", where)) s.poll(t`Use`, POLL, () => ofPod(latest));
  s.add(t`Ports`, ports, (p) => p.spec.containers.map((c) => c.ports));
  s.add(t`Environment`, environment, (p) => p.spec);
  s.add(t`Volumes`, volumes, (p) => [p.spec.volumes, p.spec.containers.map((c) => c.volumeMounts)]);
}

// --- containers ---

function state({ state: s, ready } = {}) {
  if (s?.running) return [moodly(ready ? "ok" : "wait", ready ? t`Running` : t`Running, not ready`), h("span", { class: "muted" }, " ", t`for ${ago(millis(s.running.startedAt))}`)];
  if (s?.terminated) return [moodly(s.terminated.exitCode === 0 ? "done" : "bad", s.terminated.reason ?? t`Ended`), h("span", { class: "muted" }, " ", ending(s.terminated), ", ", ago(millis(s.terminated.finishedAt), true))];
  return [moodly(/BackOff|Err|Invalid|Failed/.test(s?.waiting?.reason) ? "bad" : "wait", s?.waiting?.reason ?? t`Waiting`)];
}

function containers(pod) {
  const where = { namespace: pod.metadata.namespace }, pods = core("pods");
  const link = (part, text, label, c) => h("a", { class: "button", href: address(pods, where.namespace, pod.metadata.name, part, { c: c.name }), "aria-label": label }, text);
  return h("div", { class: "cards" }, all(pod).map(({ c, s, what }) => h("article", { class: "card", "data-container": c.name },
    h("header", {}, h("h4", { class: "name" }, c.name), what ? h("span", { class: "muted" }, what) : null, h("p", {}, state(s)),
      h("span", { class: "push" },
        may("get", pods, { ...where, subresource: "log" }) ? link("logs", t`Logs`, t`Logs of ${c.name}`, c) : null,
        s?.state?.running && may("create", pods, { ...where, subresource: "exec" }) ? link("shell", t`Terminal`, t`Terminal of ${c.name}`, c) : null)),
    facts([
      [t`Image`, h("span", { class: "name" }, c.image)],
      [t`Restarts`, s?.restartCount ? String(s.restartCount) : ""],
      [t`Message`, (s?.state?.waiting ?? s?.state?.terminated)?.message],
      [t`Last end`, s?.lastState?.terminated ? [ending(s.lastState.terminated), ", ", ago(millis(s.lastState.terminated.finishedAt), true)] : ""],
      [t`Its message`, s?.lastState?.terminated?.message],
      [t`Command`, [...(c.command ?? []), ...(c.args ?? [])].join(" ")],
      [t`Requests`, amounts(c.resources?.requests)], [t`Limits`, amounts(c.resources?.limits)],
      [t`Startup probe`, probe(c.startupProbe)], [t`Readiness probe`, probe(c.readinessProbe)], [t`Liveness probe`, probe(c.livenessProbe)],
    ]))));
}

const amounts = (list) => Object.entries(list ?? {}).map(([name, v]) => `${name} ${readable(name, v)}`).join(", ");

function probe(p) {
  if (!p) return "";
  const what = p.httpGet ? t`GET ${p.httpGet.path ?? "/"} at ${p.httpGet.port}` : p.tcpSocket ? `TCP ${p.tcpSocket.port}` : p.grpc ? `gRPC ${p.grpc.port}` : (p.exec?.command ?? []).join(" ");
  return t`${what}, every ${p.periodSeconds ?? 10} s, ${p.failureThreshold ?? 3} failures`;
}

// --- timeline ---

const LIFE = [t`Pod created`, "FailedScheduling", "Scheduled", "Pulling", "Pulled", "Created", t`Container started`, "Started", t`Ready`];
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
  add(millis(pod.metadata.creationTimestamp), t`Pod created`, "");
  const scheduled = condition(pod, "PodScheduled");
  if (scheduled?.status === "True" && !told.has("Scheduled")) add(millis(scheduled.lastTransitionTime), "Scheduled", t`to ${pod.spec.nodeName}`);
  const ready = condition(pod, "Ready");
  if (ready) add(millis(ready.lastTransitionTime), ready.status === "True" ? t`Ready` : t`Not ready`, ready.message ?? "", ready.status === "True" ? "ok" : "wait");
  for (const { c, s } of all(pod)) {
    const last = s?.lastState?.terminated, { running, terminated } = s?.state ?? {};
    if (last) add(millis(last.finishedAt), t`Container ended`, `${c.name}: ${ending(last)}`, last.exitCode ? "bad" : "done");
    if (terminated) add(millis(terminated.finishedAt), t`Container ended`, `${c.name}: ${ending(terminated)}`, terminated.exitCode ? "bad" : "done");
    if (running && (!told.has("Started") || s.restartCount > 0)) add(millis(running.startedAt), s.restartCount ? t`Container restarted (${s.restartCount})` : t`Container started`, c.name, "ok");
  }
  const ends = grace(pod.metadata);
  if (ends) add(millis(pod.metadata.deletionTimestamp) - ends.total * 1000, t`Deletion asked`, t`${ends.total} s of grace; then its containers are killed, and the object goes when they are dead`, "ending");
  items.sort((a, b) => compare(b.at, a.at) || rank(b) - rank(a));
  return h("ol", { class: "timeline" }, items.slice(0, 100).map((it) => h("li", { "data-mood": it.mood }, h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "when" }, ago(it.at)), h("div", {}, h("strong", {}, it.what), it.times > 1 ? h("span", { class: "muted" }, " ", t`${it.times} times`) : null, it.text ? h("p", {}, it.text.trim()) : null))));
}

// --- ports, environment, volumes ---

function ports(pod) {
  const list = pod.spec.containers.flatMap((c) => (c.ports ?? []).map((p) => ({ ...p, container: c.name })));
  if (!list.length) return null;
  const { namespace, name } = pod.metadata, pods = core("pods"), ok = may("get", pods, { namespace, subresource: "proxy" });
  return h("ul", { class: "plainly" }, list.map((p) => h("li", {}, h("span", { class: "name" }, `${p.containerPort}/${p.protocol ?? "TCP"}`), " ", [p.name, t`container ${p.container}`, p.hostPort && t`host port ${p.hostPort}`].filter(Boolean).join(", "), " ",
    ok && (p.protocol ?? "TCP") === "TCP" ? proxyLink(apiPath(pods, namespace, `${name}:${p.containerPort}`, "proxy/")) : null)));
}

function environment(pod) {
  const rows = all(pod).flatMap(({ c }) => [
    ...(c.envFrom ?? []).map((e) => [c.name, e.prefix ? `${e.prefix}*` : "*", reference(pod, e.configMapRef ? ["configmaps", e.configMapRef.name] : ["secrets", e.secretRef?.name])]),
    ...(c.env ?? []).map((e) => [c.name, e.name, value(pod, e)]),
  ]);
  if (!rows.length) return null;
  return h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, [t`Name`, t`Value`, t`Container`].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map(([container, name, v]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "long" }, v), h("td", { "data-label": t`Container` }, container)))));
}

function value(pod, e) {
  const from = e.valueFrom;
  if (!from) return h("span", { class: "name" }, e.value ?? "");
  if (from.fieldRef) return t`field ${from.fieldRef.fieldPath}`;
  if (from.resourceFieldRef) return t`resource ${from.resourceFieldRef.resource}`;
  if (from.configMapKeyRef) return reference(pod, ["configmaps", from.configMapKeyRef.name, from.configMapKeyRef.key]);
  if (from.secretKeyRef) return reference(pod, ["secrets", from.secretKeyRef.name, from.secretKeyRef.key]);
  return t`from a file`;
}

/** reference links to the object that a value comes from; a secret's value is shown when asked for. */
function reference(pod, [name, object, key]) {
  const kind = core(name), { namespace } = pod.metadata;
  if (!kind || !object) return object ?? "";
  const text = h("span", {}, `${kind.kind} `, h("a", { class: "name", href: address(kind, namespace, object) }, object), key ? `, ${t`key ${key}`} ` : " ");
  if (name !== "secrets" || !key || !may("get", kind, { namespace, name: object })) return text;
  const show = h("button", { type: "button", class: "quiet", "aria-label": t`Show ${key} of ${object}`, onclick: async () => {
    const secret = await getJSON(apiPath(kind, namespace, object)).catch((err) => ({ data: { [key]: btoa(err.message) } }));
    show.replaceWith(h("span", { class: "name" }, key in (secret.data ?? {}) ? decoded(secret.data[key]) : t`there is no such key`));
  } }, t`Show`);
  return [text, show];
}

const SOURCES = { configMap: ["configmaps", "name"], secret: ["secrets", "secretName"], persistentVolumeClaim: ["persistentvolumeclaims", "claimName"] };

function volumes(pod) {
  if (!pod.spec.volumes?.length) return null;
  const mounts = (name) => all(pod).flatMap(({ c }) => (c.volumeMounts ?? []).filter((m) => m.name === name).map((m) => (m.readOnly ? t`${`${c.name}:${m.mountPath}`} (read only)` : `${c.name}:${m.mountPath}`))).join(", ");
  return h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, [t`Name`, t`Type`, t`Source`, t`Mounted at`].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, pod.spec.volumes.map((v) => {
      const type = Object.keys(v).find((k) => k !== "name") ?? "emptyDir", [name, field] = SOURCES[type] ?? [], kind = name && core(name);
      const source = kind && v[type][field] ? h("a", { class: "name", href: address(kind, pod.metadata.namespace, v[type][field]) }, v[type][field])
        : v[type]?.path ?? v[type]?.medium ?? v[type]?.driver ?? (v[type]?.sources ?? []).map((x) => Object.keys(x)[0]).join(", ");
      return h("tr", {}, h("th", { scope: "row" }, v.name), h("td", { "data-label": t`Type` }, type), h("td", { "data-label": t`Source` }, source), h("td", { class: "long", "data-label": t`Mounted at` }, mounts(v.name)));
    })));
}
