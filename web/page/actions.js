// What a user can do to an object, and the buttons for what the token may do.

import { address, apiPath, builtIn, compare, core, getJSON, h, inGroup, may, millis, patch, plural, say, send } from "./core.js";
import { dialog, named } from "./dialogs.js";
import { t } from "./text.js";

const at = (kind, obj, subresource, query) => apiPath(kind, obj.metadata.namespace, obj.metadata.name, subresource, query);
const allowed = (verb, kind, obj, subresource = "") =>
  may(verb, kind, { namespace: obj.metadata.namespace ?? "", name: obj.metadata.name, subresource });
const key = (kind) => `${kind.name}.${kind.group}`;
const ROLLS = ["deployments.apps", "statefulsets.apps", "daemonsets.apps"];

/** Namespaces that the server does not delete. */
const LASTING = ["default", "kube-system", "kube-public"];

/** The actions for an object as { name, label, danger?, act() }, in their order. */
export function actions(kind, obj) {
  const all = [];
  const add = (name, label, ok, act, danger = false) => ok && all.push({ name, label, act, danger });
  const patches = allowed("patch", kind, obj), { spec = {} } = obj;
  const set = (body) => patch(at(kind, obj), body);
  const owned = obj.metadata.ownerReferences?.find((ref) => ref.controller);
  add("scale", t`Scale`, kind.subresources.includes("scale") && !(owned && kind.name === "replicasets") && allowed("patch", kind, obj, "scale"), () => scale(kind, obj));
  add("restart", t`Restart`, ROLLS.includes(key(kind)) && patches, () => restart(kind, obj));
  if (key(kind) === "deployments.apps") {
    add("pause", spec.paused ? t`Resume` : t`Pause`, patches, async () => {
      await set({ spec: { paused: !spec.paused } });
      say(spec.paused ? t`The rollout continues` : t`The rollout is paused`);
    });
  }
  if (key(kind) === "cronjobs.batch") {
    add("suspend", spec.suspend ? t`Resume` : t`Suspend`, patches, () => set({ spec: { suspend: !spec.suspend } }));
    const jobs = inGroup("batch", "jobs");
    add("trigger", t`Run now`, jobs && may("create", jobs, { namespace: obj.metadata.namespace }), () => trigger(jobs, obj));
  }
  if (key(kind) === "nodes.") {
    add("cordon", spec.unschedulable ? t`Uncordon` : t`Cordon`, patches, () => set({ spec: { unschedulable: spec.unschedulable ? null : true } }));
    add("drain", t`Drain`, patches && may("create", core("pods"), { namespace: "", subresource: "eviction" }), () => drain(kind, obj), true);
  }
  if (kind.name === "certificatesigningrequests" && !(obj.status?.conditions ?? []).some((c) => /^(Approved|Denied)$/.test(c.type))) {
    const ok = allowed("update", kind, obj, "approval");
    add("approve", t`Approve`, ok, () => judge(kind, obj, "Approved"));
    add("deny", t`Deny`, ok, () => judge(kind, obj, "Denied"), true);
  }
  add("delete", t`Delete`, allowed("delete", kind, obj) && !(kind === core("namespaces") && LASTING.includes(obj.metadata.name)), () => remove(kind, obj), true);
  return all;
}

/** The buttons of the actions; errors are shown beside them. */
export function buttons(kind, obj) {
  const error = h("p", { class: "error", role: "alert" });
  return [...actions(kind, obj).map(({ name, label, act, danger }) => h("button", {
    type: "button", class: danger ? "quiet risky" : "quiet", "data-action": name,
    onclick: async (ev) => {
      ev.target.disabled = true;
      error.replaceChildren();
      try {
        await act();
      } catch (err) {
        error.append(err.message);
      }
      ev.target.disabled = false;
    },
  }, label)), error];
}

// --- several objects of a list ---

const MOST_NAMED = 10;

/** some are the first of a list as text, and how many more there are. */
const some = (list, most, between) => {
  const first = list.slice(0, most).join(between);
  return list.length > most ? t`${first} and ${list.length - most} more` : first;
};

/** The buttons for rows that are selected, of which only metadata is known. */
export function bulk(kind, objs) {
  const can = (verb, subresource) => objs.every((obj) => allowed(verb, kind, obj, subresource)), count = `${objs.length} ${objs.length === 1 ? kind.kind : plural(kind)}`;
  const names = some(objs.map((o) => o.metadata.name), MOST_NAMED, ", ");
  const ask = (submit, title, done, one, more = {}) => dialog({
    title, what: [h("span", { class: "name" }, names)], submit, ...more,
    act: async () => {
      const failed = [];
      for (const obj of objs) await one(obj).catch((err) => failed.push(`${obj.metadata.name}: ${err.message}`));
      if (failed.length) throw new Error(some(failed, 3, "; "));
      say(done);
      return true;
    },
  });
  const button = (label, act, danger) => h("button", { type: "button", class: danger ? "quiet risky" : "quiet", onclick: act }, label), all = [];
  if (kind.subresources.includes("scale") && can("patch", "scale")) {
    const input = h("input", { type: "number", name: "replicas", min: 0, step: 1, inputmode: "numeric", value: 1, required: true });
    all.push(button(t`Scale`, () => ask(t`Scale`, t`Scale ${count}`, t`${count} are scaled`, (obj) => patch(at(kind, obj, "scale"), { spec: { replicas: Number(input.value) } }),
      { body: [h("label", {}, t`Replicas`, " ", input)], ready: () => input.select() })));
  }
  if (ROLLS.includes(key(kind)) && can("patch")) all.push(button(t`Restart`, () => ask(t`Restart`, t`Restart ${count}`, t`${count} are restarted`, (obj) => restarts(kind, obj))));
  if (can("delete")) {
    all.push(button(t`Delete`, () => ask(t`Delete`, t`Delete ${count}`, t`${count} are deleted`, (obj) => send("DELETE", at(kind, obj), { body: { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid: obj.metadata.uid } } })
      .catch((err) => err.code === 404 || Promise.reject(err)), { danger: true, cancel: t`Keep them` }), true));
  }
  return all;
}

/** restarts replaces the pods of a workload, as kubectl rollout restart does. */
const restarts = (kind, obj) => patch(at(kind, obj), { spec: { template: { metadata: { annotations: { "kubectl.kubernetes.io/restartedAt": new Date().toISOString().replace(/\.\d+Z$/, "Z") } } } } });

// --- delete ---

const PROPAGATION = {
  Background: t`Delete what it owns afterwards`,
  Foreground: t`Delete what it owns first`,
  Orphan: t`Keep what it owns`,
};

const OWNERS = ["deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs", "replicationcontrollers"];

/** What the user should know before an object of the kind is deleted. */
async function warnings(kind) {
  if (kind === core("namespaces")) return [t`Everything in it is deleted, too.`];
  if (kind !== core("nodes")) return [];
  const { items } = await getJSON(apiPath(kind, "", "", "", { limit: 2 }));
  return [items.length < 2 ? t`This is the only node: all pods end.` : t`All pods on it end.`,
    t`While Monopod runs on the machine, the node registers again. Drain takes it out of use; monopod leave, on the machine, removes one that has joined.`];
}

/** Opens the dialog that deletes exactly this object, not a later one of the same name. */
export async function remove(kind, obj) {
  if (!allowed("delete", kind, obj)) return say(t`You are not allowed to delete ${kind.name}`);
  const { metadata } = obj, pod = kind === core("pods");
  const options = () => ({ apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid: metadata.uid } });
  if (pod) return removePod(kind, obj, options);
  return dialog({
    title: t`Delete ${kind.kind}`, what: named(kind, metadata), submit: t`Delete`, danger: true, cancel: t`Keep it`,
    body: [(await warnings(kind)).map((text) => h("p", { class: "warning" }, text)), !builtIn(kind) || OWNERS.includes(kind.name) ? h("fieldset", {}, h("legend", {}, t`What happens to the objects that it owns?`),
      Object.entries(PROPAGATION).map(([value, text], i) => h("div", { class: "choice" },
        h("label", {}, h("input", { type: "radio", name: "owned", value, checked: i === 0 }), ` ${text}`)))) : null,
    metadata.finalizers?.length ? h("p", { class: "hint" }, t`It stays until these finalizers are done: ${metadata.finalizers.join(", ")}`) : null],
    act: async (form) => {
      await send("DELETE", at(kind, obj), { body: { ...options(), propagationPolicy: form.elements.owned?.value ?? "Background" } });
      say(t`${metadata.name} is deleted`);
      return true;
    },
  });
}

function removePod(kind, obj, options) {
  const { name, deletionTimestamp, deletionGracePeriodSeconds } = obj.metadata;
  const seconds = Math.max(1, deletionTimestamp ? deletionGracePeriodSeconds : obj.spec?.terminationGracePeriodSeconds ?? 30);
  const grace = h("input", { type: "number", name: "grace", min: 1, max: 86400, step: 1, inputmode: "numeric", "aria-label": t`Grace in seconds`, value: seconds, required: true });
  const sure = h("input", { type: "checkbox", name: "sure" });
  const warning = h("div", { class: "warning", hidden: true },
    h("p", {}, t`The API forgets the pod now and does not wait to hear that its containers are dead. They are killed soon after, without time to finish their work; on a node that is cut off they run on. Meanwhile a pod of the same name may start beside them and use the same data.`),
    h("label", {}, sure, " ", t`I know that it may still be running.`));
  return dialog({
    title: t`Delete pod`, what: named(kind, obj.metadata), submit: t`Delete`, danger: true, cancel: t`Keep it`,
    body: [h("fieldset", {},
      h("legend", {}, deletionTimestamp ? t`It is stopping, within ${deletionGracePeriodSeconds} seconds. That can only be made shorter.` : t`How long may it take to stop?`),
      h("div", { class: "choice" }, h("label", {}, h("input", { type: "radio", name: "how", value: "grace", checked: true }), " ", t`Gracefully, within this number of seconds:`), grace),
      h("p", { class: "hint" }, t`The containers are asked to stop, and killed when the grace is over. The pod goes once they are dead.`),
      h("div", { class: "choice" }, h("label", {}, h("input", { type: "radio", name: "how", value: "force" }), " ", t`By force, at once`)),
      h("p", { class: "hint" }, t`For a pod whose node does not answer any more.`)), warning],
    ready: (form, go) => {
      const mark = () => {
        const forced = form.elements.how.value === "force";
        warning.hidden = !forced;
        form.noValidate = forced;
        go.disabled = forced && !sure.checked;
        go.textContent = forced ? t`Delete by force` : t`Delete`;
      };
      form.addEventListener("change", mark);
      grace.addEventListener("input", () => {
        form.elements.how.value = "grace";
        mark();
      });
      grace.select();
    },
    act: async (form) => {
      const gracePeriodSeconds = form.elements.how.value === "force" ? 0 : Number(grace.value);
      await send("DELETE", at(kind, obj), { body: { ...options(), gracePeriodSeconds } });
      say(gracePeriodSeconds ? t`${name} is asked to stop within ${gracePeriodSeconds} seconds` : t`${name} is deleted by force`);
      return true;
    },
  });
}

// --- workloads ---

async function scale(kind, obj) {
  const path = at(kind, obj, "scale"), { spec, status } = await getJSON(path);
  const input = h("input", { type: "number", name: "replicas", min: 0, step: 1, inputmode: "numeric", value: spec.replicas ?? 0, required: true });
  return dialog({
    title: t`Scale ${kind.kind}`, what: named(kind, obj.metadata), submit: t`Scale`,
    body: [h("label", {}, t`Replicas`, " ", input), h("p", { class: "hint" }, t`It has ${status?.replicas ?? 0} now.`)],
    ready: () => input.select(),
    act: async () => {
      await patch(path, { spec: { replicas: Number(input.value) } });
      say(t`${obj.metadata.name} is scaled to ${input.value}`);
      return true;
    },
  });
}

const restart = (kind, obj) => dialog({
  title: t`Restart ${kind.kind}`, what: named(kind, obj.metadata), submit: t`Restart`,
  body: [h("p", {}, t`Its pods are replaced, as its update strategy says.`)],
  act: async () => {
    await restarts(kind, obj);
    say(t`${obj.metadata.name} is restarted`);
    return true;
  },
});

async function trigger(jobs, cron) {
  const { name, namespace, uid } = cron.metadata, { metadata = {}, spec } = cron.spec.jobTemplate;
  const job = {
    apiVersion: "batch/v1", kind: "Job",
    metadata: {
      name: `${name.slice(0, 40)}-manual-${Math.random().toString(36).slice(2, 7)}`, namespace, labels: metadata.labels,
      annotations: { ...metadata.annotations, "cronjob.kubernetes.io/instantiate": "manual" },
      ownerReferences: [{ apiVersion: "batch/v1", kind: "CronJob", name, uid, controller: true }],
    },
    spec,
  };
  await send("POST", apiPath(jobs, namespace), { body: job });
  location.hash = address(jobs, namespace, job.metadata.name);
}

/** The revisions of a workload, newest first: { number, at, template, name }. */
export async function revisions(kind, obj) {
  const { uid, namespace } = obj.metadata, deployment = kind.name === "deployments";
  const store = inGroup("apps", deployment ? "replicasets" : "controllerrevisions");
  const list = await getJSON(apiPath(store, namespace));
  return list.items.filter((it) => it.metadata.ownerReferences?.some((ref) => ref.uid === uid)).map((it) => ({
    name: it.metadata.name, at: millis(it.metadata.creationTimestamp),
    number: Number(deployment ? it.metadata.annotations?.["deployment.kubernetes.io/revision"] ?? 0 : it.revision),
    cause: it.metadata.annotations?.["kubernetes.io/change-cause"] ?? "",
    template: deployment ? withoutHash(it.spec.template) : it.data.spec.template,
  })).sort((a, b) => compare(b.number, a.number));
}

function withoutHash(template) {
  const { "pod-template-hash": _, ...labels } = template.metadata?.labels ?? {};
  return { ...template, metadata: { ...template.metadata, labels } };
}

/** Writes a revision's template back, unless the one that it replaces has changed since it was shown. */
export async function undo(kind, obj, revision) {
  const { $patch: _, ...template } = revision.template;
  await patch(at(kind, obj), [
    { op: "test", path: "/spec/template", value: obj.spec.template },
    { op: "replace", path: "/spec/template", value: template },
  ], "application/json-patch+json").catch((err) => {
    throw /testing value/.test(err.message) ? new Error(t`Its template has changed meanwhile. Look at the revisions again.`) : err;
  });
  say(t`${obj.metadata.name} returns to revision ${revision.number}`);
}

// --- the node ---

/** drain cordons the node and evicts its pods, except those of DaemonSets and static ones, also those
 * that were placed while it asked. */
async function drain(kind, node) {
  const pods = core("pods"), name = node.metadata.name;
  const placed = () => getJSON(apiPath(pods, "", "", "", { fieldSelector: `spec.nodeName=${name}` }));
  const list = await placed();
  const stays = (p) => p.metadata.ownerReferences?.some((r) => r.controller && r.kind === "DaemonSet") ||
    "kubernetes.io/config.mirror" in (p.metadata.annotations ?? {}) || /^(Succeeded|Failed)$/.test(p.status?.phase);
  const leave = list.items.filter((p) => !stays(p)), bare = leave.filter((p) => !p.metadata.ownerReferences?.length);
  const progress = h("p", { role: "status" });
  return dialog({
    title: t`Drain node`, what: named(kind, node.metadata), submit: t`Drain`, danger: true,
    body: [h("p", {}, t`No new pods are placed here, and ${leave.length} of ${list.items.length} pods are evicted. Pods of DaemonSets and static pods stay.`),
      bare.length ? h("p", { class: "warning" }, t`Nothing creates these again: ${some(bare.map((p) => p.metadata.name), MOST_NAMED, ", ")}`) : null, progress],
    act: async () => {
      await patch(at(kind, node), { spec: { unschedulable: true } });
      const refused = [], asked = new Set();
      let left = leave;
      do {
        for (const p of left) {
          progress.textContent = t`Evicting pod ${asked.add(p.metadata.uid).size}…`;
          const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: p.metadata.name, namespace: p.metadata.namespace } };
          await send("POST", at(pods, p, "eviction"), { body: eviction }).catch((err) => err.code === 404 || refused.push(`${p.metadata.name}: ${err.message}`));
        }
        left = (await placed()).items.filter((p) => !stays(p) && p.metadata.ownerReferences?.length && !p.metadata.deletionTimestamp && !asked.has(p.metadata.uid));
      } while (left.length);
      progress.textContent = "";
      if (refused.length) throw new Error(t`The node is cordoned. Not evicted: ${some(refused, 5, "; ")}. Try again later.`);
      say(t`${name} is drained`);
      return true;
    },
  });
}

/** judge approves or denies a request, whose subject and names the server knows to read. */
async function judge(kind, csr, type) {
  const query = new URLSearchParams({ kind: "certificatesigningrequests.certificates.k8s.io", name: csr.metadata.name });
  const { evidence } = await getJSON(`/monopod/why?${query}`).catch(() => ({ evidence: [] }));
  return decide(kind, csr, type, evidence.filter((line) => /^(subject|names): /.test(line)));
}

const decide = (kind, csr, type, asked) => dialog({
  title: type === "Approved" ? t`Approve request` : t`Deny request`, what: named(kind, csr.metadata), submit: type === "Approved" ? t`Approve` : t`Deny`, danger: type === "Denied",
  body: [h("p", {}, t`${csr.spec.username ?? t`Somebody`} asks for a certificate of ${csr.spec.signerName} for ${(csr.spec.usages ?? []).join(", ")}.`), asked.length ? h("ul", { class: "plainly" }, asked.map((line) => h("li", { class: "name" }, line))) : null],
  act: async () => {
    const fresh = await getJSON(at(kind, csr));
    fresh.status ??= {};
    fresh.status.conditions = [...(fresh.status.conditions ?? []), { type, status: "True", reason: "MonopodPage", message: `${type} on the page.` }];
    await send("PUT", at(kind, csr, "approval"), { body: fresh });
    return true;
  },
});
