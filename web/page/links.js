// What belongs together in a namespace, by owners, selectors and references: pure functions
// of objects. The map draws the answer.

/** Whether a LabelSelector, or the plain labels of a Service's selector, matches labels. */
export function selects(selector, labels = {}) {
  if (!selector) return false;
  const { matchLabels, matchExpressions } = selector, plain = matchLabels || matchExpressions ? matchLabels ?? {} : selector;
  return Object.entries(plain).every(([k, v]) => labels[k] === v) && (matchExpressions ?? []).every(({ key, operator, values = [] }) => {
    const has = Object.hasOwn(labels, key), is = has && values.includes(labels[key]);
    return { In: is, NotIn: !is, Exists: has, DoesNotExist: !has }[operator];
  });
}

/** Routes of the Gateway API. */
export const ROUTES = ["httproutes", "grpcroutes", "tlsroutes", "tcproutes"].map((name) => `${name}.gateway.networking.k8s.io`);

/** The columns of the map, from left to right: what leads to pods, what runs them, the pods, what they use. Other kinds run pods. */
const COLUMNS = {
  "gateways.gateway.networking.k8s.io": 0, "ingresses.networking.k8s.io": 1, ...Object.fromEntries(ROUTES.map((kind) => [kind, 1])),
  "services.": 2, "cronjobs.batch": 2, "horizontalpodautoscalers.autoscaling": 2, "poddisruptionbudgets.policy": 2, "networkpolicies.networking.k8s.io": 2,
  "pods.": 4, "persistentvolumeclaims.": 5, "configmaps.": 5, "secrets.": 5, "serviceaccounts.": 5,
};
export const WORKLOADS = 3, PODS = 4;
const COLUMN_ORDER = Object.keys(COLUMNS);
const SCALED = { Deployment: "deployments.apps", StatefulSet: "statefulsets.apps", ReplicaSet: "replicasets.apps", ReplicationController: "replicationcontrollers." };

/** More pods of a workload, or claims of its pods, than this are one box. */
const MOST_ALONE = 6;
/** The most boxes of a map. */
export const MOST_BOXES = 150;

const column = (kind) => COLUMNS[kind] ?? WORKLOADS;
const templateOf = ({ spec = {} }) => spec.jobTemplate?.spec.template ?? spec.template;

/** uses lists what a pod's spec refers to, as [id, optional]. Every namespace has its CA and its service account default. */
function uses(spec, pod = "") {
  const found = new Map(), add = (kind, name, optional) => name && found.set(`${kind}/${name}`, Boolean(optional) && (found.get(`${kind}/${name}`) ?? true));
  for (const v of spec.volumes ?? []) {
    add("persistentvolumeclaims.", v.persistentVolumeClaim?.claimName ?? (v.ephemeral && pod && `${pod}-${v.name}`));
    for (const { configMap, secret } of [v, ...(v.projected?.sources ?? [])]) {
      if (configMap && configMap.name !== "kube-root-ca.crt") add("configmaps.", configMap.name, configMap.optional);
      if (secret) add("secrets.", secret.secretName ?? secret.name, secret.optional);
    }
  }
  for (const c of [...(spec.initContainers ?? []), ...(spec.containers ?? [])]) {
    for (const { configMapRef, secretRef } of [...(c.envFrom ?? []), ...(c.env ?? []).map(({ valueFrom: v }) => ({ configMapRef: v?.configMapKeyRef, secretRef: v?.secretKeyRef }))]) {
      add("configmaps.", configMapRef?.name, configMapRef?.optional);
      add("secrets.", secretRef?.name, secretRef?.optional);
    }
  }
  for (const { name } of spec.imagePullSecrets ?? []) add("secrets.", name, true);
  if (spec.serviceAccountName !== "default") add("serviceaccounts.", spec.serviceAccountName);
  return [...found];
}

/**
 * linked returns { boxes, lines, more } of objects, as { kind, obj, owner, mood, text }: kind and owner as in
 * "deployments.apps" and "deployments.apps/web". Boxes are { id, kind, name, column, band, mood, text, missing, of }; of: the
 * objects of a box that stands for many. Lines are { from, to, shared }; shared: all pods of from use to. listed: the kinds
 * that were listed, so that what is referred to and not there is missing. about: the ids of what the map is about; without
 * any, all of the namespace. more is the number of boxes that are left out.
 */
export function linked(objects, { listed = [], about = null } = {}) {
  const known = new Map(objects.map((o) => [`${o.kind}/${o.obj.metadata.name}`, o])), boxes = new Map(), lines = new Map();
  const box = (id, optional) => {
    if (boxes.has(id)) return id;
    const at = id.indexOf("/"), kind = id.slice(0, at), o = known.get(id);
    boxes.set(id, { id, kind, name: id.slice(at + 1), column: column(kind), mood: o?.mood ?? "", text: o?.text ?? "", missing: !o && !optional && listed.includes(kind) });
    return id;
  };
  const line = (from, to, shared) => lines.set(`${from} ${to}`, { from, to, ...(shared ? { shared } : {}) });

  // Pods, by what runs them. A pod without an owner runs itself.
  const runs = new Map();
  for (const o of objects) {
    const id = `${o.kind}/${o.obj.metadata.name}`;
    if (o.kind === "pods.") {
      const by = o.owner || id;
      runs.set(by, [...(runs.get(by) ?? []), o]);
    } else if (column(o.kind) === WORKLOADS && !runs.has(id)) runs.set(id, []);
  }
  const finds = (selector) => [...runs].filter(([id, pods]) => {
    const labels = known.has(id) && templateOf(known.get(id).obj)?.metadata?.labels;
    return (labels && selects(selector, labels)) || pods.some((p) => selects(selector, p.obj.metadata.labels));
  }).map(([id]) => id);

  for (const [id, pods] of runs) {
    box(id);
    const owner = known.get(id)?.owner;
    if (owner && owner !== id) {
      line(box(owner), id);
      boxes.get(owner).column = Math.min(boxes.get(owner).column, WORKLOADS - 1);
    }
    const each = new Map(), optional = new Map(); // what is used: by which pods
    for (const p of pods) {
      for (const [ref, may] of uses(p.obj.spec ?? {}, p.obj.metadata.name)) {
        each.set(ref, [...(each.get(ref) ?? []), `pods./${p.obj.metadata.name}`]);
        optional.set(ref, may);
      }
    }
    const template = known.has(id) && templateOf(known.get(id).obj);
    if (!pods.length && template) for (const [ref, may] of uses(template.spec ?? {})) line(id, box(ref, may));
    const grouped = pods.length > MOST_ALONE, group = `pods./*${id}`;
    if (grouped) {
      boxes.set(group, { id: group, kind: "pods.", name: "", column: PODS, mood: worst(pods.map((p) => p.mood)), text: "", missing: false, of: pods.map((p) => ({ name: p.obj.metadata.name, mood: p.mood })) });
      line(id, group);
    } else for (const p of pods) if (`pods./${p.obj.metadata.name}` !== id) line(id, box(`pods./${p.obj.metadata.name}`));
    const own = grouped ? [...each].filter(([ref, by]) => by.length === 1 && ref.startsWith("persistentvolumeclaims.")).map(([ref]) => ref) : [];
    if (own.length > MOST_ALONE) {
      const claims = `persistentvolumeclaims./*${id}`, all = own.map((ref) => known.get(ref));
      boxes.set(claims, { id: claims, kind: "persistentvolumeclaims.", name: "", column: column("persistentvolumeclaims."), mood: worst(all.map((c) => c?.mood ?? "")), text: "", missing: false,
        of: own.map((ref, i) => ({ name: ref.slice(ref.indexOf("/") + 1), mood: all[i]?.mood ?? "" })) });
      line(group, claims);
    }
    for (const [ref, by] of each) {
      if (own.length > MOST_ALONE && own.includes(ref)) continue;
      box(ref, optional.get(ref));
      if (grouped) line(group, ref);
      else if (by.length === pods.length && by.length > 1) line(id, ref, true);
      else for (const pod of by) line(pod, ref);
    }
  }

  // What leads to pods, and what acts on what runs them.
  for (const { kind, obj: { metadata: { name }, spec = {} } } of objects) {
    const id = `${kind}/${name}`, to = (service) => service && line(id, box(`services./${service}`));
    switch (kind) {
      case "ingresses.networking.k8s.io":
        box(id);
        for (const p of [{ backend: spec.defaultBackend }, ...(spec.rules ?? []).flatMap((r) => r.http?.paths ?? [])]) to(p.backend?.service?.name);
        for (const { secretName } of spec.tls ?? []) if (secretName) line(id, box(`secrets./${secretName}`));
        break;
      case ROUTES[0]: case ROUTES[1]: case ROUTES[2]: case ROUTES[3]:
        box(id);
        for (const ref of (spec.rules ?? []).flatMap((r) => r.backendRefs ?? [])) if ((ref.kind ?? "Service") === "Service" && !ref.namespace) to(ref.name);
        for (const ref of spec.parentRefs ?? []) if ((ref.kind ?? "Gateway") === "Gateway" && !ref.namespace) line(box(`gateways.gateway.networking.k8s.io/${ref.name}`), id);
        break;
      case "services.": case "networkpolicies.networking.k8s.io": case "poddisruptionbudgets.policy": {
        box(id);
        const selector = spec.podSelector ?? spec.selector; // a Service without labels selects nothing, a policy everything
        if (kind !== "services." || Object.keys(selector ?? {}).length) for (const w of finds(selector)) line(id, w);
        break;
      }
      case "horizontalpodautoscalers.autoscaling": {
        const ref = spec.scaleTargetRef ?? {};
        box(id);
        if (SCALED[ref.kind]) line(id, box(`${SCALED[ref.kind]}/${ref.name}`));
        break;
      }
      case "cronjobs.batch": case "persistentvolumeclaims.": case "gateways.gateway.networking.k8s.io":
        if (!owned(boxes, id)) box(id);
    }
  }
  for (const { kind, obj } of objects) { // before its first Job
    const id = `${kind}/${obj.metadata.name}`;
    if (kind === "cronjobs.batch" && ![...lines.values()].some((l) => l.from === id)) for (const [ref, may] of uses(templateOf(obj)?.spec ?? {})) line(id, box(ref, may));
  }
  return banded(boxes, [...lines.values()], new Set([...runs.keys()]), about);
}

/** Whether a box that stands for many contains the object. */
const owned = (boxes, id) => [...boxes.values()].some((b) => b.of?.some((o) => `${b.kind}/${o.name}` === id));

const MOODS = ["bad", "ending", "wait", "ok", "done", ""];
const worst = (moods) => MOODS.find((m) => moods.includes(m)) ?? "";

/** around adds to ids all that leads to them, and all that they lead to. */
function around(ids, lines) {
  const found = new Set(ids);
  for (const [a, b] of [["from", "to"], ["to", "from"]]) {
    const next = new Map();
    for (const l of lines) next.set(l[a], [...(next.get(l[a]) ?? []), l[b]]);
    for (const todo = [...ids], seen = new Set(ids); todo.length;) {
      for (const id of next.get(todo.pop()) ?? []) {
        if (seen.has(id)) continue;
        seen.add(id);
        found.add(id);
        todo.push(id);
      }
    }
  }
  for (const { from, to } of lines) if (found.has(from) && to.startsWith("secrets.")) found.add(to); // the certificate of an Ingress
  return found;
}

/** banded keeps what is about something, and puts what belongs to one workload into one band, so that lines are short. */
function banded(boxes, lines, workloads, about) {
  let shown = new Set(boxes.keys());
  if (about) {
    const start = [...boxes.values()].filter((b) => about.includes(b.id) || b.of?.some((o) => about.includes(`${b.kind}/${o.name}`))).map((b) => b.id);
    const near = around(start, lines), apps = [...near].filter((id) => workloads.has(id));
    shown = new Set([...near, ...around(apps, lines)]);
  }
  const order = (x, y) => compare(x.column, y.column) || compare(x.band ?? 0, y.band ?? 0) || compare(COLUMN_ORDER.indexOf(x.kind), COLUMN_ORDER.indexOf(y.kind)) || compare(x.kind, y.kind) || compare(x.name, y.name);
  const all = [...boxes.values()].filter((b) => shown.has(b.id)).sort(order), out = [];
  let band = 0;
  for (const w of [...all.filter((b) => workloads.has(b.id)), null]) {
    const near = w && around([w.id], lines), mine = all.filter((b) => b.band === undefined && (!near || near.has(b.id)) && (b === w || !workloads.has(b.id)));
    if (!mine.length) continue;
    for (const b of mine) b.band = band;
    band++;
    out.push(...mine);
  }
  const kept = out.slice(0, MOST_BOXES).sort(order), ids = new Set(kept.map((b) => b.id));
  return { boxes: kept, lines: lines.filter((l) => ids.has(l.from) && ids.has(l.to)), more: out.length - kept.length };
}

const compare = (x, y) => (x < y ? -1 : x > y ? 1 : 0);
