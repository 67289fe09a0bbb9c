// Why an object is as it is: the server's answer, the same as that of `monopod why`.

import { address, findKind, getJSON, h } from "./core.js";
import { t } from "./text.js";

const PAUSE = 1000; // milliseconds between two questions

/**
 * why adds the section with the answer for the object of a page, and tells told whether something is wrong. It returns a function that asks again, for changes of
 * what belongs to the object: they may change the answer, and not the object.
 */
export function why(sections, kind, told) {
  let box = null, timer = 0;
  if (!kind.verbs.includes("watch")) return () => {}; // no object that is stored
  sections.add(t`Why`, (obj) => {
    box = h("div", { class: "why" });
    const ask = () => answer(box, kind, obj.metadata, told);
    ask();
    box.addEventListener("again", ask);
    return box;
  }, (obj) => [obj.status, obj.spec, obj.metadata.deletionTimestamp]);
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      if (box?.isConnected) box.dispatchEvent(new Event("again"));
    }, PAUSE);
  };
}

/** said is an answer as elements: a sentence, what to do, and the evidence, open where something is wrong if opens is set. */
export const said = (a, namespace, opens) => [
  h("p", { class: "sentence" }, a.sentence),
  a.do ? h("p", { class: "todo" }, h("strong", {}, t`What to do:`), " ", commands(a.do, namespace)) : null,
  a.evidence.length ? h("details", { open: opens && a.do !== undefined }, h("summary", {}, t`Evidence`), h("ul", {}, a.evidence.map((line) => h("li", {}, line)))) : null,
].filter(Boolean);

function answer(box, kind, { namespace = "", name }, told) {
  const query = new URLSearchParams({ kind: `${kind.name}${kind.group ? `.${kind.group}` : ""}`, namespace, name });
  getJSON(`/monopod/why?${query}`).then((a) => {
    const text = JSON.stringify(a);
    if (box.dataset.answer === text) return; // and what is open stays open
    box.dataset.answer = text;
    box.replaceChildren(...said(a, namespace, true));
    told(a.do !== undefined);
  }).catch((err) => {
    box.dataset.answer = "";
    box.replaceChildren(h("p", { class: "sentence" }, err.code === 404 ? t`It is gone.` : err.message));
  });
}

const COMMAND = /(?<=^|: )(?:kubectl|monopod) .+?(?=\.?$|[.,;] )/g;

/** commands sets the commands of a text off from its words, as links to where the page does the same. */
function commands(text, namespace) {
  const parts = [];
  let at = 0;
  for (const { 0: command, index } of text.matchAll(COMMAND)) {
    const code = h("code", {}, command.split(" ").flatMap((word, i) => [i ? " " : "", h("span", { class: "word" }, word)])), href = here(command.split(" "), namespace);
    parts.push(text.slice(at, index), href && href !== location.hash.split("?")[0] ? h("a", { href, title: t`Opens the part of the page that does this` }, code) : code);
    at = index + command.length;
  }
  return [...parts, text.slice(at)];
}

/** here is the page's address for what a command does; "" for one that the page does not know. */
function here([program, verb, ...args], namespace) {
  const to = (word, name, part, query) => {
    const kind = name && findKind(word);
    return kind ? address(kind, kind.namespaced ? namespace : "", name, part, query) : "";
  };
  const slashed = (text = "", part) => to(...text.split("/"), part);
  if (program === "monopod") return verb === "why" ? slashed(args[0]) : "";
  switch (verb) {
    case "logs": return to("pods", args[0], "logs", { c: args.includes("-c") ? args[args.indexOf("-c") + 1] : "", previous: args.includes("--previous") ? 1 : "" });
    case "rollout": return slashed(args[1], args[0] === "undo" ? "revisions" : "");
    case "scale": return slashed(args[0]);
    case "delete": case "patch": return to(args[0], args[1]);
    case "uncordon": return to("nodes", args[0]);
    case "get": return args.length === 1 && findKind(args[0]) ? address(findKind(args[0]), "", "", "", { ns: findKind(args[0]).namespaced ? namespace : "" }) : "";
  }
  return "";
}
