// Why an object is as it is: the server's answer, the same as that of `monopod why`.

import { getJSON, h } from "./core.js";

/** why adds the section with the answer for the object of a page; kinds without a status have none. */
export function why(sections, kind) {
  sections.add("Why", (obj) => (obj.status ? answer(kind, obj.metadata) : null), (obj) => [obj.status, obj.metadata.deletionTimestamp]);
}

function answer(kind, { namespace = "", name }) {
  const box = h("div", { class: "why" });
  const query = new URLSearchParams({ kind: `${kind.name}${kind.group ? `.${kind.group}` : ""}`, namespace, name });
  getJSON(`/monopod/why?${query}`).then((a) => {
    const parts = [h("p", { class: "sentence" }, a.sentence)];
    if (a.do) parts.push(h("p", { class: "todo" }, h("strong", {}, "What to do: "), commands(a.do)));
    if (a.evidence.length) parts.push(h("details", {}, h("summary", {}, "Evidence"), h("ul", {}, a.evidence.map((line) => h("li", {}, line)))));
    box.replaceChildren(...parts);
  }).catch(() => {
    if (box.parentElement) box.parentElement.hidden = true; // the user may not read it, or it is gone
  });
  return box;
}

/** commands sets the command at the end of a text off from the words before it, and breaks it only between its arguments. */
function commands(text) {
  const [, before, command] = /^(.*: )((?:kubectl|monopod) [^:]+)$/s.exec(text) ?? [];
  if (!command) return text;
  return [before, h("code", {}, command.split(" ").flatMap((word, i) => [i ? " " : "", h("span", { class: "word" }, word)]))];
}
