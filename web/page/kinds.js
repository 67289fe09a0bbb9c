// What objects of some kinds say besides their conditions: where an Ingress leads, what a
// Role allows, which volume a claim has, how much of a quota is used.

import { address, apiPath, core, findKind, getJSON, h, inGroup, kindFor, may, millis, now, quantity, until } from "./core.js";
import { graphs, known, record, seed } from "./graph.js";
import { proxyLink } from "./object.js";
import { policy } from "./policy.js";
import { holders, permissions, roleRules } from "./rights.js";
import { facts, link, table } from "./sections.js";
import { locale, t } from "./text.js";
import { POLL, ofClaim } from "./use.js";

function rules({ metadata: { namespace }, spec = {} }) {
  const services = core("services"), tries = may("get", services, { namespace, subresource: "proxy" });
  const row = (at, path, type, backend) => {
    const { service, resource } = backend, port = service?.port?.number ?? service?.port?.name;
    return [at, type ?? "", service ? [link(services, namespace, service.name), `:${port}`] : `${resource?.kind ?? ""} ${resource?.name ?? ""}`,
      service && tries ? proxyLink(apiPath(services, namespace, `${service.name}:${port}`, "proxy") + path.replace(/[^\w/.-].*/, "")) : ""];
  };
  return table([t`Address`, t`Match`, "Service", t`Try`], [
    ...(spec.rules ?? []).flatMap(({ host, http }) => (http?.paths ?? []).map((p) => row(`${host || t`any host`}${p.path ?? "/"}`, p.path ?? "/", p.pathType, p.backend))),
    ...(spec.defaultBackend ? [row(t`everything else`, "/", "", spec.defaultBackend)] : []),
  ]);
}

const tls = ({ metadata: { namespace }, spec }) => (spec?.tls?.length ? facts(spec.tls.map(({ hosts, secretName }) => [(hosts ?? [t`any host`]).join(", "), link(core("secrets"), namespace, secretName)])) : null);

function binding({ metadata: { namespace = "" }, roleRef, subjects = [] }) {
  return h("div", {}, facts([[t`Role`, link(kindFor(`${roleRef.apiGroup}/v1`, roleRef.kind), namespace, roleRef.name, `${roleRef.kind} ${roleRef.name}`)]]),
    table([t`Subject`, t`Kind`, t`Namespace`], subjects.map((s) => [s.kind === "ServiceAccount" ? link(core("serviceaccounts"), s.namespace, s.name) : s.name, s.kind, s.namespace ?? ""])));
}

const ofSubjects = ({ metadata: { namespace }, subjects = [] }) => permissions(subjects, namespace);

const storageClass = (name) => (name ? link(inGroup("storage.k8s.io", "storageclasses"), "", name) : "");

const claim = ({ spec, status = {} }) => facts([[t`Volume`, spec.volumeName ? link(core("persistentvolumes"), "", spec.volumeName) : t`none yet`], [t`Class`, storageClass(spec.storageClassName)],
  [t`Size`, [status.capacity?.storage, spec.resources?.requests?.storage && t`requested ${spec.resources.requests.storage}`].filter(Boolean).join(", ")], [t`Access modes`, (spec.accessModes ?? []).join(", ")]]);

function volume({ spec }) {
  const { claimRef, local, hostPath, nfs, csi } = spec;
  const where = local?.path ?? hostPath?.path ?? (nfs ? `${nfs.server}:${nfs.path}` : csi ? `${csi.driver} ${csi.volumeHandle}` : "");
  const nodes = (spec.nodeAffinity?.required?.nodeSelectorTerms ?? []).flatMap((term) => (term.matchExpressions ?? []).flatMap((e) => e.values ?? []));
  return facts([[t`Claim`, claimRef ? [link(core("persistentvolumeclaims"), claimRef.namespace, claimRef.name), " ", t`in ${claimRef.namespace}`] : t`none`], [t`Where`, h("span", { class: "name" }, where)],
    [t`Nodes`, nodes.flatMap((n, i) => [i ? ", " : "", link(core("nodes"), "", n)])], [t`Class`, storageClass(spec.storageClassName)], [t`Size`, spec.capacity?.storage], [t`Afterwards`, spec.persistentVolumeReclaimPolicy]]);
}

function quota({ spec, status = {} }) {
  const share = (name) => Math.min(100, Math.round(100 * quantity(status.used?.[name] ?? "0") / quantity(spec.hard[name]))) || 0;
  return table([t`Resource`, t`Used`, t`Limit`, t`Share`], Object.keys(spec.hard ?? {}).sort().map((name) => [name, status.used?.[name] ?? "", spec.hard[name],
    [h("meter", { min: 0, max: 100, value: share(name), "aria-label": t`${name} used` }), ` ${share(name)} %`]]));
}

function autoscaler({ metadata: { namespace }, spec, status = {} }) {
  const target = spec.scaleTargetRef, amount = (v = {}) => (v.averageUtilization !== undefined ? `${v.averageUtilization} %` : v.averageValue ?? v.value ?? t`unknown`);
  const name = (m) => (m.resource ?? m.containerResource)?.name ?? (m.pods ?? m.object ?? m.external)?.metric?.name ?? m.type;
  const part = (m) => m.resource ?? m.containerResource ?? m.pods ?? m.object ?? m.external ?? {};
  const current = (m) => (status.currentMetrics ?? []).find((c) => c.type === m.type && name(c) === name(m));
  return h("div", {}, facts([[t`Scales`, link(kindFor(target.apiVersion, target.kind), namespace, target.name, `${target.kind} ${target.name}`)],
    [t`Replicas`, t`${status.currentReplicas ?? 0} now, ${status.desiredReplicas ?? 0} wanted, between ${spec.minReplicas ?? 1} and ${spec.maxReplicas}`]]),
  table([t`Metric`, t`Now`, t`Target`], (spec.metrics ?? []).map((m) => [name(m), amount(current(m) && part(current(m)).current), amount(part(m).target)])));
}

const DEEP = 8;

/** schema is a field with its type, its description and its fields. */
function schema(name, is, required, depth = 0) {
  const inner = is.items ?? (typeof is.additionalProperties === "object" ? is.additionalProperties : is), fields = Object.entries(inner.properties ?? {});
  const type = is.items ? t`list of ${inner.type ?? t`values`}` : is["x-kubernetes-int-or-string"] ? t`number or text` : is.type ?? "";
  const head = [h("strong", { class: "name" }, name), h("span", { class: "muted" }, ` ${[type, required && t`required`].filter(Boolean).join(", ")}${is.enum ? `: ${is.enum.join(", ")}` : ""}`), is.description ? ` ${is.description}` : ""];
  if (!fields.length || depth === DEEP) return h("li", {}, head);
  return h("li", {}, h("details", { open: depth < 1, "aria-label": name }, h("summary", {}, head), h("ul", { class: "plainly schema" }, fields.map(([k, v]) => schema(k, v, inner.required?.includes(k), depth + 1)))));
}

function version({ name, storage, served }) {
  const text = storage ? t`${name} (stored)` : name;
  return served ? text : t`${text} (not served)`;
}

function definition({ spec }) {
  const kind = findKind(`${spec.names.plural}.${spec.group}`), stored = spec.versions.find((v) => v.storage) ?? spec.versions[0], is = stored.schema?.openAPIV3Schema ?? {};
  const fields = Object.entries(is.properties ?? {}).filter(([name]) => !/^(apiVersion|kind|metadata)$/.test(name));
  return h("div", {}, facts([[t`Objects`, kind ? h("a", { href: address(kind) }, spec.names.kind) : spec.names.kind], [t`Group`, spec.group], [t`Scope`, spec.scope],
    [t`Versions`, spec.versions.map(version).join(", ")]]),
  fields.length ? h("ul", { class: "plainly schema" }, fields.map(([name, v]) => schema(name, v, is.required?.includes(name)))) : null);
}

const DAY = 86_400_000; // milliseconds

/** starts are the next runs of a CronJob, as its controller finds them. */
function starts({ metadata: { namespace, name }, spec: { suspend, timeZone } }) {
  if (suspend) return h("p", { class: "muted" }, t`It is suspended: it starts no Jobs until it is resumed.`);
  const out = h("ul", { class: "plainly" }), moment = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long", timeZone });
  const ask = async () => {
    try {
      const a = await getJSON(`/monopod/why?${new URLSearchParams({ kind: "cronjobs.batch", namespace, name })}`), next = (a.starts ?? []).map(millis), wait = next[0] - now() + 1000;
      out.replaceChildren(...(next.length ? next.map((at) => h("li", {}, moment.format(at), " · ", until(at))) : [h("li", {}, a.sentence)]));
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
  s.add(t`Scaling`, (obj) => {
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
  "ingresses.networking.k8s.io": { [t`Rules`]: rules, TLS: tls },
  "roles.rbac.authorization.k8s.io": { [t`Rules`]: roleRules }, "clusterroles.rbac.authorization.k8s.io": { [t`Rules`]: roleRules },
  "rolebindings.rbac.authorization.k8s.io": { [t`Binding`]: binding, [t`Permissions`]: ofSubjects }, "clusterrolebindings.rbac.authorization.k8s.io": { [t`Binding`]: binding, [t`Permissions`]: ofSubjects },
  "serviceaccounts.": { [t`Permissions`]: ({ metadata: { namespace, name } }) => permissions([{ kind: "ServiceAccount", namespace, name }], namespace) },
  "persistentvolumeclaims.": { [t`Claim`]: claim }, "persistentvolumes.": { [t`Volume`]: volume }, "resourcequotas.": { [t`Quota`]: quota },
  "customresourcedefinitions.apiextensions.k8s.io": { [t`Definition`]: definition }, "cronjobs.batch": { [t`Next runs`]: starts },
};

/** By kind: what adds sections that need other objects. */
const MORE = {
  "networkpolicies.networking.k8s.io": policy, "horizontalpodautoscalers.autoscaling": scaling,
  "roles.rbac.authorization.k8s.io": holders, "clusterroles.rbac.authorization.k8s.io": holders,
  "persistentvolumeclaims.": (s, obj) => may("list", core("pods"), obj.metadata) && s.poll(t`Use`, 60, () => ofClaim(obj)),
};

/** sections adds those of a kind. */
export function sections(s, kind, obj) {
  for (const [title, build] of Object.entries(KINDS[`${kind.name}.${kind.group}`] ?? {})) s.add(title, build, all);
  MORE[`${kind.name}.${kind.group}`]?.(s, obj, kind);
}
