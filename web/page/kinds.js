// What objects of some kinds say besides their conditions: where an Ingress leads, what a
// Role allows, which volume a claim has, how much of a quota is used.

import { address, apiPath, core, findKind, h, inGroup, kindFor, may, quantity, readJSON } from "./core.js";
import { proxyLink } from "./object.js";
import { facts, table } from "./sections.js";

const link = (kind, namespace, name, text = name) => (kind && name ? h("a", { class: "name", href: address(kind, namespace, name) }, text) : h("span", { class: "name" }, text ?? ""));

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

const roleRules = ({ rules: list }) => table(["What", "Groups", "Verbs", "Only"], (list ?? []).map((r) => [(r.resources ?? r.nonResourceURLs ?? []).join(", "),
  (r.apiGroups ?? []).map((g) => g || "core").join(", "), (r.verbs ?? []).join(", "), (r.resourceNames ?? []).join(", ")]));

function binding({ metadata: { namespace = "" }, roleRef, subjects = [] }) {
  return h("div", {}, facts([["Role", link(kindFor(`${roleRef.apiGroup}/v1`, roleRef.kind), namespace, roleRef.name, `${roleRef.kind} ${roleRef.name}`)]]),
    table(["Subject", "Kind", "Namespace"], subjects.map((s) => [s.kind === "ServiceAccount" ? link(core("serviceaccounts"), s.namespace, s.name) : s.name, s.kind, s.namespace ?? ""])));
}

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

/** allowed asks, as the service account, what it may do in its namespace. */
function allowed({ metadata: { namespace, name } }) {
  const out = h("div", {}), ask = h("button", { type: "button", class: "quiet", onclick: async () => {
    ask.disabled = true;
    try {
      const { status } = await readJSON("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", { again: true, headers: { "Impersonate-User": `system:serviceaccount:${namespace}:${name}` },
        body: { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } } });
      out.replaceChildren(roleRules({ rules: [...status.resourceRules, ...status.nonResourceRules] }));
    } catch (err) {
      out.replaceChildren(h("p", { class: "error" }, err.message));
    }
    ask.disabled = false;
  } }, `Show what it may do in ${namespace}`);
  return h("div", { class: "cards" }, h("div", {}, ask), out);
}

const all = (obj) => [obj.spec, obj.status, obj.rules, obj.subjects];

/** By kind: the sections, as title and what builds them. */
const KINDS = {
  "ingresses.networking.k8s.io": { Rules: rules, TLS: tls },
  "roles.rbac.authorization.k8s.io": { Rules: roleRules }, "clusterroles.rbac.authorization.k8s.io": { Rules: roleRules },
  "rolebindings.rbac.authorization.k8s.io": { Binding: binding }, "clusterrolebindings.rbac.authorization.k8s.io": { Binding: binding },
  "serviceaccounts.": { Permissions: allowed },
  "persistentvolumeclaims.": { Claim: claim }, "persistentvolumes.": { Volume: volume }, "resourcequotas.": { Quota: quota },
  "horizontalpodautoscalers.autoscaling": { Scaling: autoscaler }, "customresourcedefinitions.apiextensions.k8s.io": { Definition: definition },
};

/** sections adds those of a kind. */
export function sections(s, kind) {
  for (const [title, build] of Object.entries(KINDS[`${kind.name}.${kind.group}`] ?? {})) s.add(title, build, all);
}
