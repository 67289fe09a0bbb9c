// Who may do what: the subjects whose roles allow an action, from all roles and bindings.

import { allows, apiPath, compare, core, findKind, getJSON, h, inGroup, kinds, write } from "./core.js";
import { link, table } from "./sections.js";
import { t } from "./text.js";

const VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate", "approve", "sign"];

/** whoCan is who may do it, as { subject, binding, role, names }. roles and bindings: of both kinds. namespace "": everywhere. */
export function whoCan(action, namespace, roles, bindings) {
  return bindings.filter((b) => !b.metadata.namespace || b.metadata.namespace === namespace).flatMap((binding) => {
    const role = roles.find((r) => r.metadata.name === binding.roleRef.name && (binding.roleRef.kind === "Role" ? r.metadata.namespace === binding.metadata.namespace : !r.metadata.namespace));
    const rules = (role?.rules ?? []).filter((rule) => allows({ ...rule, resourceNames: [] }, action));
    const only = rules.every((rule) => rule.resourceNames?.length) ? [...new Set(rules.flatMap((rule) => rule.resourceNames))] : [];
    return rules.length && (!action.name || !only.length || only.includes(action.name)) ? (binding.subjects ?? []).map((subject) => ({ subject, binding, role, only })) : [];
  });
}

export class Access {
  #out = h("div", {});
  #error = h("p", { class: "error", role: "alert" });
  #form;
  #read = null; // a promise of { roles, bindings, namespaces }

  constructor(main, query) {
    const resources = kinds.flatMap((k) => [k, ...k.subresources.map((s) => ({ ...k, name: `${k.name}/${s}` }))]).map((k) => `${k.name}${k.group ? `.${k.group}` : ""}`).sort();
    const input = (name, label, value, list) => h("label", {}, h("span", {}, label), h("input", { name, value, list: list && `${name}s`, autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: name !== "namespace" && name !== "name",
      placeholder: { namespace: t`all namespaces`, name: t`any` }[name] }));
    const options = (name, list) => h("datalist", { id: `${name}s` }, list.map((v) => h("option", { value: v })));
    this.#form = h("form", { class: "tools", method: "dialog", onsubmit: (ev) => {
      ev.preventDefault();
      this.#ask();
    } },
    input("verb", t`May`, query.get("verb") || "get", true), input("resource", t`Resource`, query.get("resource") || "secrets", true), input("namespace", t`In namespace`, query.get("ns") ?? "default", true), input("name", t`Named`, "", false),
    h("button", { type: "submit", class: "main" }, t`Show who may`), options("verb", VERBS), options("resource", resources));
    main.replaceChildren(h("h2", { id: "title", tabindex: "-1" }, t`Who may do what`),
      h("p", { class: "hint" }, t`From all roles and bindings. What a subject may do is on the pages of service accounts and bindings.`), this.#form, this.#error, this.#out);
    this.#ask();
  }

  close() {}

  async #ask() {
    const { verb, resource, namespace, name } = Object.fromEntries([...new FormData(this.#form)].map(([k, v]) => [k, v.trim()]));
    write(this.#error, "");
    try {
      this.#read ??= rbac();
      const { roles, bindings } = await this.#read;
      const found = whoCan({ verb, name, ...resourceOf(resource) }, namespace, roles, bindings);
      found.sort((a, b) => compare(a.subject.kind, b.subject.kind) || compare(a.subject.name, b.subject.name));
      this.#out.replaceChildren(found.length ? table([t`Subject`, t`Kind`, t`Namespace`, t`Role`, t`Binding`, t`Only`], found.map((f) => [f.subject.kind === "ServiceAccount" ? link(core("serviceaccounts"), f.subject.namespace, f.subject.name) : link(null, "", f.subject.name), f.subject.kind, f.subject.namespace ?? "", object(f.role), object(f.binding), f.only.join(", ")]))
        : h("p", { class: "empty" }, t`Nobody, except members of system:masters.`));
    } catch (err) {
      this.#read = null;
      write(this.#error, err.message);
    }
  }
}

/** resourceOf reads deployments.apps, deployments/scale.apps, or deploy. */
function resourceOf(text) {
  const [plain, ...group] = text.split("."), [word, subresource] = plain.split("/");
  const kind = group.length ? null : findKind(word);
  return { resource: [kind?.name ?? word, subresource].filter(Boolean).join("/"), group: kind?.group ?? group.join(".") };
}

const kindOf = ({ metadata, roleRef }) => inGroup("rbac.authorization.k8s.io", `${metadata.namespace ? "" : "cluster"}role${roleRef ? "binding" : ""}s`);
const object = (obj) => link(kindOf(obj), obj.metadata.namespace, obj.metadata.name);

async function rbac() {
  const list = async (...names) => (await Promise.all(names.map((name) => getJSON(apiPath(inGroup("rbac.authorization.k8s.io", name)))))).flatMap((l) => l.items);
  const [roles, bindings] = await Promise.all([list("roles", "clusterroles"), list("rolebindings", "clusterrolebindings")]);
  return { roles, bindings };
}
