// The documents of this version, as the server has them: read when they are searched first, and shown as text, tables
// and blocks of commands.

import { h, send } from "./core.js";
import { t } from "./text.js";

/** The character before each document in the server's answer. */
const NEXT = "\f";
// A longer table shows only the rows that were searched for.
const LONG_TABLE = 10;

let loaded = null;

/** The sections of all documents: a promise of { title, file, anchors, text }. */
export function documents() {
  loaded ??= send("GET", "/ui/documents.txt", { accept: "text/plain" }).then((response) => response.text()).then((text) => text.split(NEXT).filter(Boolean).flatMap(sections)).catch((err) => {
    loaded = null;
    throw err;
  });
  return loaded;
}

/** sections cuts a document at its headings, whose words its sections carry. */
function sections(text) {
  const [file, ...lines] = text.split("\n"), all = [], above = [];
  let fenced = false;
  for (const line of lines) {
    if (line.startsWith("```")) fenced = !fenced;
    const [, marks, title] = (!fenced && /^(#{1,4}) (.+)/.exec(line)) || [];
    if (!marks) {
      all.at(-1)?.lines.push(line);
      continue;
    }
    above.splice(marks.length - 1, Infinity, title.replaceAll("`", ""));
    all.push({ title: above.filter(Boolean).join(" › "), file, anchors: above.filter(Boolean).map(slug), lines: [] });
  }
  return all.map(({ lines: body, ...s }) => ({ ...s, text: body.join("\n").trim() })).filter((s) => s.text);
}

/** slug is the part of an address that leads to a heading. */
const slug = (title) => title.toLowerCase().replace(/[^\p{L}\p{N}\- _]/gu, "").replaceAll(" ", "-");

/** linked returns the sections that a link in a document leads to, with those below them; none if it leads elsewhere. */
export function linked(all, from, target) {
  const { pathname, hash } = new URL(target, new URL(`/${from}`, location.origin)), anchor = decodeURIComponent(hash.slice(1));
  return all.filter((s) => `/${s.file}` === decodeURIComponent(pathname) && (!anchor || s.anchors.includes(anchor)));
}

const MOST_FOUND = 25;

/** search returns the sections that have every word: first those with the most of them in their titles, then those where words begin so. */
export function search(all, words) {
  const begins = (text, w) => text.startsWith(w) || /[^a-z0-9]/.test(text[text.indexOf(w) - 1] ?? "");
  const score = ({ title, text }) => words.reduce((sum, w) => sum + (title.toLowerCase().includes(w) ? words.length + 1 : begins(text.toLowerCase(), w) ? 1 : 0), 0);
  return all.filter((s) => words.every((w) => `${s.title} ${s.file} ${s.text}`.toLowerCase().includes(w)))
    .map((s) => [score(s), s]).sort((a, b) => b[0] - a[0]).slice(0, MOST_FOUND).map(([, s]) => s);
}

/** snippet is the line of a section that has the most of the words. */
export function snippet({ text }, words) {
  const score = (line) => words.filter((w) => line.toLowerCase().includes(w)).length;
  const lines = text.split("\n").map(plain).filter((l) => l && !/^[-| `]+$/.test(l)), best = lines.reduce((a, b) => (score(b) > score(a) ? b : a), lines[0] ?? "");
  return best.replace(/^\||\|$/g, "").replaceAll("|", "·").trim();
}

/** plain is a line without the marks of links and emphasis. */
const plain = (line) => line.replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/\*\*|^>\s?|`/g, "");

const MARKS = /(`[^`]+`|\*\*[^*]+\*\*|!?\[[^\]]*\]\([^)\s]*\))/;

/** spoken is a text with its marks as elements: code, bold, and what link makes of links; a picture is its words. */
function spoken(text, link) {
  return text.split(MARKS).map((part) => {
    const [, picture, words, target] = /^(!?)\[([^\]]*)\]\(([^)]*)\)$/.exec(part) ?? [];
    if (target !== undefined) return picture ? words : link(spoken(words, link), target);
    return part.startsWith("`") && part.length > 2 ? h("code", {}, part.slice(1, -1)) : part.startsWith("**") ? h("strong", {}, spoken(part.slice(2, -2), link)) : part;
  });
}

/** body is a section as elements. link(words, target) makes an element of a link, or returns the words. */
export function body({ text }, words, link) {
  const out = [];
  for (const block of blocks(text)) {
    const [first] = block;
    if (first.startsWith("```")) out.push(h("pre", { tabindex: "0" }, block.slice(1).join("\n")));
    else if (first.startsWith("|")) out.push(table(block, words, link));
    else if (/^\s*(?:[-*]|\d+\.) /.test(first)) out.push(h("ul", {}, items(block).map((item) => h("li", {}, spoken(item, link)))));
    else if (!first.startsWith("<")) out.push(h("p", {}, spoken(block.join(" "), link)));
  }
  return out;
}

/** blocks are the lines of a section, together as they belong: a fence, a table, a list, a paragraph. */
function blocks(text) {
  const out = [];
  let kind = "";
  for (const line of text.split("\n")) {
    if (kind === "fence") {
      if (line.startsWith("```")) kind = "";
      else out.at(-1).push(line);
      continue;
    }
    const is = line.startsWith("```") ? "fence" : line.startsWith("|") ? "table" : /^\s*(?:[-*]|\d+\.) /.test(line) ? "list" : line.trim() === "" ? "" : kind === "list" ? "list" : "words";
    if (is && (is !== kind || is === "fence")) out.push([]);
    if (is) out.at(-1).push(line);
    kind = is;
  }
  return out;
}

/** items joins the lines of each item of a list. */
function items(lines) {
  const out = [];
  for (const line of lines) {
    const [, item] = /^\s*(?:[-*]|\d+\.) (.*)/.exec(line) ?? [];
    if (item !== undefined) out.push(item);
    else out.push(`${out.pop() ?? ""} ${line.trim()}`);
  }
  return out;
}

function table([head, , ...rows], words, link) {
  const cells = (line) => line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));
  const found = rows.length > LONG_TABLE ? rows.filter((r) => words.some((w) => r.toLowerCase().includes(w))) : rows;
  const names = cells(head);
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t`Table` }, h("table", {}, h("thead", {}, h("tr", {}, names.map((c) => h("th", { scope: "col" }, spoken(c, link))))),
    h("tbody", {}, (found.length ? found : rows).map((r) => h("tr", {}, cells(r).map((c) => h("td", {}, spoken(c, link))))))));
}
