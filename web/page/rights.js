// Who can what: what a role allows, who has it, and what a subject may do altogether.

import { apiPath, AS_METADATA, core, getJSON, h, inGroup, may, readJSON } from "./core.js";
import { link, table } from "./sections.js";
import { t } from "./text.js";

export const roleRules = ({ rules: list }) => table([t`What`, t`Groups`, t`Verbs`, t`Only`], (list ?? []).map((r) => [(r.resources ?? r.nonResourceURLs ?? []).join(", "),
  (r.apiGroups ?? []).map((g) => g || "core").join(", "), (r.verbs ?? []).join(", "), (r.resourceNames ?? []).join(", ")]));

const PAGE = "page.monopod.io"; // a user who stands for the members of a group, and has no rights of its own

/** headers let a request act as a subject. A header carries bytes: those of the name in UTF-8. */
function headers({ kind, name, namespace }) {
  const raw = (text) => String.fromCharCode(...new TextEncoder().encode(text));
  if (kind === "ServiceAccount") return { "Impersonate-User": raw(`system:serviceaccount:${namespace}:${name}`) };
  return kind === "Group" ? { "Impersonate-User": PAGE, "Impersonate-Group": raw(name) } : { "Impersonate-User": raw(name) };
}

/** Whether the user may act as a subject. */
function acts({ kind, name, namespace }) {
  const as = (resource, who) => may("impersonate", { group: "", name: resource }, { namespace: who.namespace ?? "", name: who.name });
  if (kind === "ServiceAccount") return as("serviceaccounts", { namespace, name });
  return kind === "Group" ? as("groups", { name }) && as("users", { name: PAGE }) : as("users", { name });
}

/** permissions asks, as one of the subjects of a binding, what it may do in a namespace; null if the user may act as none of them. */
export function permissions(subjects, namespace = "default") {
  const all = subjects.filter(acts), spaces = core("namespaces");
  if (!all.length) return null;
  const out = h("div", {}), names = h("datalist", { id: "places" });
  const who = h("select", {}, all.map((s, i) => h("option", { value: i }, `${s.kind} ${s.name}`)));
  const where = h("input", { type: "text", list: "places", value: namespace, required: true, autocomplete: "off", onfocus: async () => {
    if (names.firstChild || !spaces || !may("list", spaces)) return;
    const list = await getJSON(apiPath(spaces), { accept: AS_METADATA }).catch(() => ({ items: [] }));
    names.replaceChildren(...list.items.map((it) => h("option", { value: it.metadata.name })));
  } });
  const ask = h("button", { class: "quiet" }, t`Show what it may do`);
  const form = h("form", { class: "bar", onsubmit: async (ev) => {
    ev.preventDefault();
    ask.disabled = true;
    try {
      const { status } = await readJSON("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", { again: true, headers: headers(all[who.value]),
        body: { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace: where.value.trim() } } });
      out.replaceChildren(roleRules({ rules: [...status.resourceRules, ...status.nonResourceRules] }) ?? h("p", {}, t`Nothing.`));
      if (status.incomplete) out.append(h("p", { class: "hint" }, t`This is not all: ${status.evaluationError}`));
    } catch (err) {
      out.replaceChildren(h("p", { class: "error" }, err.message));
    }
    ask.disabled = false;
  } }, all.length > 1 ? h("label", {}, t`Subject`, " ", who) : null, h("label", {}, t`Namespace`, " ", where), names, ask);
  return h("div", {}, form, out);
}

/** holders adds who has a role: the subjects of the bindings that refer to it. */
export function holders(s, { metadata: { namespace = "", name } }, role) {
  for (const kind of ["clusterrolebindings", "rolebindings"].map((n) => inGroup("rbac.authorization.k8s.io", n))) {
    if (!kind || (role.namespaced && !kind.namespaced) || !may("list", kind, { namespace })) continue;
    s.live(kind.namespaced ? t`Who has it in a namespace` : t`Who has it everywhere`, { kind, namespace, full: true }, (feed) => {
      const bindings = feed.items.map((row) => row.obj).filter(({ roleRef }) => roleRef.kind === role.kind && roleRef.name === name);
      if (feed.state !== "live") return null;
      return table([t`Subject`, t`Kind`, t`Namespace`, t`Binding`], bindings.flatMap((b) => (b.subjects ?? []).map((u) => [u.kind === "ServiceAccount" ? [link(core("serviceaccounts"), u.namespace, u.name), ` (${u.namespace})`] : u.name,
        u.kind, b.metadata.namespace ?? t`all`, link(kind, b.metadata.namespace, b.metadata.name)]))) ?? h("p", { class: "muted" }, t`Nobody.`);
    });
  }
}
