// What objects of some kinds say besides their conditions: where an Ingress leads, what a
// Role allows, which volume a claim has, how much of a quota is used.

import { address, apiPath, core, findKind, getJSON, h, inGroup, kindFor, may, millis, now, quantity, until } from "./core.js";
import { graphs, known, record, seed } from "./graph.js";
import { proxyLink } from "./object.js";
import { policy } from "./policy.js";
import { holders, permissions, roleRules } from "./rights.js";
import { facts, link, table } from "./sections.js";
import { t } from "./text.js";
import { POLL, ofClaim } from "./use.js";

function rules({ metadata: { namespace }, spec = {} }) {
  const services = core("services"), tries = may("get", services, { namespace, subresource: "proxy" });
  const row = (at, path, type, backend) => {
    const { service, resource } = backend, port = service?.port?.number ?? service?.port?.name;
    return [at, type ?? "", service ? [link(services, namespace, service.name), `:${port}`] : `${resource?.kind ?? ""} ${resource?.name ?? ""}`,
      service && tries ? proxyLink(apiPath(services, namespace, `${service.name}:${port}`, "proxy") + path.replace(/[^\w/.-].*/, "")) : ""];
  };
  return table(["Address", "Match", "Service", "Try"], [
    ...(spec.rules ?? []).flatMap(({ host, http }) => (http?.paths ?? []).map((p) => row(`${host || "any host"}${p.path ?? "/"}`, p.path ?? "/", p.pathType, p.backend))),
    ...(spec.defaultBackend ? [row("everything else", "/", "", spec.defaultBackend)] : []),
  ]);
}

const tls = ({ metadata: { namespace }, spec }) => (spec?.tls?.length ? facts(spec.tls.map((t) => [(t.hosts ?? ["any host"]).join(", "), link(core("secrets"), namespace, t.secretName)])) : null);

function binding({ metadata: { namespace = "" }, roleRef, subjects = [] }) {
  return h("div", {}, facts([["Role", link(kindFor(`${roleRef.apiGroup}/v1`, roleRef.kind), namespace, roleRef.name, `${roleRef.kind} ${roleRef.name}`)]]),
    table(["Subject", "Kind", "Namespace"], subjects.map((s) => [s.kind === "ServiceAccount" ? link(core("serviceaccounts"), s.namespace, s.name) : s.name, s.kind, s.namespace ?? ""])));
}

const ofSubjects = ({ metadata: { namespace }, subjects = [] }) => permissions(subjects, namespace);

const storageClass = (name) => (name ? link(inGroup("storage.k8s.io", "storageclasses"), "", name) : "");

const claim = ({ spec, status = {} }) => facts([["Volume", spec.volumeName ? link(core("persistentvolumes"), "", spec.volumeName) : "none yet"], ["Class", storageClass(spec.storageClassName)],
  ["Size", [status.capacity?.storage, spec.resources?.requests?.storage && `requested ${spec.resources.requests.storage}`].filter(Boolean).join(", ")], ["Access", (spec.accessModes ?? []).join(", ")]]);

function volume({ spec }) {
  const { claimRef, local, hostPath, nfs, csi } = spec;
  const where = local?.path ?? hostPath?.path ?? (nfs ? `${nfs.server}:${nfs.path}` : csi ? `${csi.driver} ${csi.volumeHandle}` : "");
  const nodes = (spec.nodeAffinity?.required?.nodeSelectorTerms ?? []).flatMap((t) => (t.matchExpressions ?? []).flatMap((e) => e.values ?? []));
  return facts([["Claim", claimRef ? [link(core("persistentvolumeclaims"), claimRef.namespace, claimRef.name), ` in ${claimRef.namespace}`] : "none"], ["Where", h("span", { class: "name" }, where)],
    ["Nodes", nodes.flatMap((n, i) => [i ? ", " : "", link(core("nodes"), "", n)])], ["Class", storageClass(spec.storageClassName)], ["Size", spec.capacity?.storage], ["Afterwards", spec.persistentVolumeReclaimPolicy]]);
}

function quota({ spec, status = {} }) {
  const share = (name) => Math.min(100, Math.round(100 * quantity(status.used?.[name] ?? "0") / quantity(spec.hard[name]))) || 0;
  return table(["Resource", "Used", "Limit", "Share"], Object.keys(spec.hard ?? {}).sort().map((name) => [name, status.used?.[name] ?? "", spec.hard[name],
    [h("meter", { min: 0, max: 100, value: share(name), "aria-label": `${name} used` }), ` ${share(name)} %`]]));
}

function autoscaler({ metadata: { namespace }, spec, status = {} }) {
  const target = spec.scaleTargetRef, amount = (v = {}) => (v.averageUtilization !== undefined ? `${v.averageUtilization} %` : v.averageValue ?? v.value ?? "unknown");
  const name = (m) => (m.resource ?? m.containerResource)?.name ?? (m.pods ?? m.object ?? m.external)?.metric?.name ?? m.type;
  const part = (m) => m.resource ?? m.containerResource ?? m.pods ?? m.object ?? m.external ?? {};
  const current = (m) => (status.currentMetrics ?? []).find((c) => c.type === m.type && name(c) === name(m));
  return h("div", {}, facts([["Scales", link(kindFor(target.apiVersion, target.kind), namespace, target.name, `${target.kind} ${target.name}`)],
    ["Replicas", `${status.currentReplicas ?? 0} now, ${status.desiredReplicas ?? 0} wanted, between ${spec.minReplicas ?? 1} and ${spec.maxReplicas}`]]),
  table(["Metric", "Now", "Target"], (spec.metrics ?? []).map((m) => [name(m), amount(current(m) && part(current(m)).current), amount(part(m).target)])));
}

const DEEP = 8;

/** schema is a field with its type, its description and its fields. */
function schema(name, is, required, depth = 0) {
  const inner = is.items ?? (typeof is.additionalProperties === "object" ? is.additionalProperties : is), fields = Object.entries(inner.properties ?? {});
  const type = is.items ? `list of ${inner.type ?? "values"}` : is["x-kubernetes-int-or-string"] ? "number or text" : is.type ?? "";
  const head = [h("strong", { class: "name" }, name), h("span", { class: "muted" }, ` ${type}${required ? ", required" : ""}${is.enum ? `: ${is.enum.join(", ")}` : ""}`), is.description ? ` ${is.description}` : ""];
  if (!fields.length || depth === DEEP) return h("li", {}, head);
  return h("li", {}, h("details", { open: depth < 1, "aria-label": name }, h("summary", {}, head), h("ul", { class: "plainly schema" }, fields.map(([k, v]) => schema(k, v, inner.required?.includes(k), depth + 1)))));
}

function definition({ spec }) {
  const kind = findKind(`${spec.names.plural}.${spec.group}`), version = spec.versions.find((v) => v.storage) ?? spec.versions[0], is = version.schema?.openAPIV3Schema ?? {};
  const fields = Object.entries(is.properties ?? {}).filter(([name]) => !/^(apiVersion|kind|metadata)$/.test(name));
  return h("div", {}, facts([["Objects", kind ? h("a", { href: address(kind) }, spec.names.kind) : spec.names.kind], ["Group", spec.group], ["Scope", spec.scope],
    ["Versions", spec.versions.map((v) => `${v.name}${v.storage ? " (stored)" : ""}${v.served ? "" : " (not served)"}`).join(", ")]]),
  fields.length ? h("ul", { class: "plainly schema" }, fields.map(([name, v]) => schema(name, v, is.required?.includes(name)))) : null);
}

const DAY = 86_400_000; // milliseconds

/** starts are the next runs of a CronJob, as its controller finds them. */
function starts({ metadata: { namespace, name }, spec: { suspend, timeZone } }) {
  if (suspend) return h("p", { class: "muted" }, t`It is suspended: it starts no Jobs until it is resumed.`);
  const out = h("ul", { class: "plainly" }), moment = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long", timeZone });
  const ask = async () => {
    try {
      const a = await getJSON(`/monopod/why?${new URLSearchParams({ kind: "cronjobs.batch", namespace, name })}`), next = (a.starts ?? []).map(millis), wait = next[0] - now() + 1000;
      out.replaceChildren(...(next.length ? next.map((at) => h("li", {}, moment.format(at), " · ", until(at, t`in `))) : [h("li", {}, a.sentence)]));
      if (wait < DAY) setTimeout(() => out.isConnected && ask(), wait);
    } catch (err) {
      out.replaceChildren(h("li", { class: "error" }, err.message));
    }
  };
  ask();
  return out;
}

/** steps are the replicas that the events of an autoscaler tell, with the oldest first: each number holds until the next. */
export function steps(events) {
  const sizes = events.map((e) => ({ at: millis(e.lastTimestamp ?? e.eventTime), replicas: Number(/^New size: (\d+)/.exec(e.reason === "SuccessfulRescale" ? e.message : "")?.[1]) }))
    .filter((p) => Number.isFinite(p.at) && Number.isFinite(p.replicas)).sort((x, y) => x.at - y.at);
  return sizes.flatMap((p, i) => (i + 1 < sizes.length ? [p, { at: sizes[i + 1].at - 1, replicas: p.replicas }] : [p]));
}

/** scaling draws the replicas of an autoscaler: since its events, and while the page is open. */
function scaling(s, { metadata: { uid, namespace } }) {
  let is, ask = null;
  const events = core("events");
  s.add("Scaling", (obj) => {
    is = obj;
    ask?.();
    return autoscaler(obj);
  }, all);
  ask = s.poll(t`Replicas`, POLL, async () => {
    if (!known(uid)) {
      seed(uid, []);
      if (may("list", events, { namespace })) seed(uid, steps((await getJSON(apiPath(events, namespace, "", "", { fieldSelector: `involvedObject.uid=${uid}` }))).items));
    }
    if (is?.status) record(uid, { replicas: is.status.currentReplicas ?? 0 });
    return graphs(uid, { replicas: { title: t`Replicas`, unit: "count", limit: is?.spec.maxReplicas } });
  });
}

const all = (obj) => [obj.spec, obj.status, obj.rules, obj.subjects];

/** By kind: the sections, as title and what builds them. */
const KINDS = {
  "ingresses.networking.k8s.io": { Rules: rules, TLS: tls },
  "roles.rbac.authorization.k8s.io": { Rules: roleRules }, "clusterroles.rbac.authorization.k8s.io": { Rules: roleRules },
  "rolebindings.rbac.authorization.k8s.io": { Binding: binding, Permissions: ofSubjects }, "clusterrolebindings.rbac.authorization.k8s.io": { Binding: binding, Permissions: ofSubjects },
  "serviceaccounts.": { Permissions: ({ metadata: { namespace, name } }) => permissions([{ kind: "ServiceAccount", namespace, name }], namespace) },
  "persistentvolumeclaims.": { Claim: claim }, "persistentvolumes.": { Volume: volume }, "resourcequotas.": { Quota: quota },
  "customresourcedefinitions.apiextensions.k8s.io": { Definition: definition }, "cronjobs.batch": { "Next runs": starts },
};

/** By kind: what adds sections that need other objects. */
const MORE = {
  "networkpolicies.networking.k8s.io": policy, "horizontalpodautoscalers.autoscaling": scaling,
  "roles.rbac.authorization.k8s.io": holders, "clusterroles.rbac.authorization.k8s.io": holders,
  "persistentvolumeclaims.": (s, obj) => may("list", core("pods"), obj.metadata) && s.poll("Use", 60, () => ofClaim(obj)),
};

/** sections adds those of a kind. */
export function sections(s, kind, obj) {
  for (const [title, build] of Object.entries(KINDS[`${kind.name}.${kind.group}`] ?? {})) s.add(title, build, all);
  MORE[`${kind.name}.${kind.group}`]?.(s, obj, kind);
}
