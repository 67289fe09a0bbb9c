// The revisions of a workload, two of them side by side, and the return to one.

import { revisions, undo } from "./actions.js";
import { ago, h, may } from "./core.js";
import { beside, changes } from "./diff.js";
import { dialog, named } from "./dialogs.js";
import { t } from "./text.js";

export class Part {
  #body;
  #kind;
  #obj;
  #generation;

  constructor(body, kind, obj) {
    this.#body = body;
    this.#kind = kind;
    this.#obj = obj;
    this.#draw();
  }

  close() {}

  update(obj) {
    const was = this.#obj;
    this.#obj = obj;
    if (was.metadata.generation !== obj.metadata.generation || JSON.stringify(was.metadata.annotations) !== JSON.stringify(obj.metadata.annotations)) this.#draw();
  }

  async #draw() {
    const turn = this.#generation = {};
    let all;
    try {
      all = await revisions(this.#kind, this.#obj);
    } catch (err) {
      this.#body.replaceChildren(h("p", { class: "error" }, err.message));
      return;
    }
    if (turn !== this.#generation) return;
    if (!all.length) {
      this.#body.replaceChildren(h("p", { class: "empty" }, t`There are no revisions.`));
      return;
    }
    const options = (chosen) => all.map((r, i) => h("option", { value: i, selected: i === chosen }, (i === 0 ? t`Revision ${r.number} (now)` : t`Revision ${r.number}`) + (r.cause ? `: ${r.cause}` : "")));
    const left = h("select", { "aria-label": t`Older revision` }, options(Math.min(1, all.length - 1))), right = h("select", { "aria-label": t`Newer revision` }, options(0));
    const out = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t`Comparison` }), narrow = h("div", { class: "narrow" }); // one of them is shown
    const back = h("button", { type: "button", class: "quiet", "data-action": "undo", onclick: () => this.#undo(all[left.value]) }, "");
    const show = () => {
      const [a, b] = [all[left.value], all[right.value]];
      const [was, is] = [text(a.template), text(b.template)];
      out.replaceChildren(beside(was, is, [t`Revision ${a.number}`, t`Revision ${b.number}`]));
      narrow.replaceChildren(changes(was, is) ?? h("p", { class: "hint" }, t`They are the same.`));
      back.textContent = t`Return to revision ${a.number}`;
      back.hidden = left.value === "0" || !may("patch", this.#kind, { namespace: this.#obj.metadata.namespace });
    };
    left.addEventListener("change", show);
    right.addEventListener("change", show);
    this.#body.replaceChildren(h("div", { class: "tools" }, t`${left} with ${right}`, back),
      h("ol", { class: "plainly" }, all.map((r) => h("li", {}, h("strong", {}, t`Revision ${r.number}`), " ", h("span", { class: "muted" }, ago(r.at, true)), " ", h("span", { class: "name" }, r.name)))), out, narrow);
    show();
  }

  #undo(revision) {
    return dialog({
      title: t`Return to revision ${revision.number}`, what: named(this.#kind, this.#obj.metadata), submit: t`Return`,
      body: [h("p", {}, t`Its template is written back, as the next revision, and the pods are replaced.`)],
      act: async () => {
        await undo(this.#kind, this.#obj, revision);
        return true;
      },
    });
  }
}

/** A value as YAML, to read. */
export function text(value, indent = "") {
  if (Array.isArray(value)) {
    return value.map((v) => (isTree(v) ? `${indent}- ${text(v, `${indent}  `).trimStart()}` : `${indent}- ${scalar(v)}`)).join("\n");
  }
  return Object.keys(value).sort().filter((k) => value[k] !== null).map((k) => {
    const v = value[k];
    if (!isTree(v)) return `${indent}${k}: ${scalar(v)}`;
    return `${indent}${k}:\n${text(v, Array.isArray(v) ? indent : `${indent}  `)}`;
  }).join("\n");
}

const isTree = (v) => typeof v === "object" && v !== null && Object.keys(v).length > 0;
const scalar = (v) => (typeof v === "string" && /^[\w./:@-][\w ./:@=,-]*$/.test(v) && Number.isNaN(Number(v)) ? v : JSON.stringify(v));
