// Differences of texts by line.

import { h } from "./core.js";
import { t } from "./text.js";

const MOST = 4_000_000; // comparisons

/** The lines of both texts in order: { was, is }, with undefined where one has no such line. */
export function diff(a, b) {
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const same = (text) => ({ was: text, is: text });
  return [...a.slice(0, head).map(same), ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)), ...a.slice(a.length - tail).map(same)];
}

/** middle finds the longest common subsequence. */
function middle(a, b) {
  const out = [], n = a.length, m = b.length;
  if (n * m > MOST) return [...a.map((was) => ({ was })), ...b.map((is) => ({ is }))];
  const longest = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  }
  let i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && a[i] === b[j]) out.push({ was: a[i++], is: b[j++] });
    else if (i < n && (j === m || longest[i + 1][j] >= longest[i][j + 1])) out.push({ was: a[i++] });
    else out.push({ is: b[j++] });
  }
  return out;
}

const CONTEXT = 3;

/** The changes with some lines around them, one below the other; null if there are none. */
export function changes(before, after) {
  const all = diff(before.split("\n"), after.split("\n")), changed = all.map((l) => l.was !== l.is);
  if (!changed.includes(true)) return null;
  const near = (i) => changed.slice(Math.max(0, i - CONTEXT), i + CONTEXT + 1).includes(true);
  const box = h("div", { class: "diff", role: "group", "aria-label": t`Changes`, tabindex: "0" });
  let skipped = false;
  all.forEach((l, i) => {
    if (!near(i)) {
      skipped = true;
      return;
    }
    if (skipped) box.append(h("div", { class: "skip-lines" }, "⋯"));
    skipped = false;
    if (!changed[i]) box.append(h("div", {}, `  ${l.was}`));
    else box.append(l.was !== undefined ? h("del", {}, `- ${l.was}`) : h("ins", {}, `+ ${l.is}`));
  });
  return box;
}

/** Both texts side by side; a line that was replaced stands beside its new one. */
export function beside(before, after, titles) {
  const rows = [];
  for (const line of diff(before.split("\n"), after.split("\n"))) {
    const free = line.was === undefined && rows.findIndex((r, i) => r.is === undefined && rows.slice(i).every((x) => x.was !== x.is));
    if (line.was === undefined && free >= 0) rows[free].is = line.is;
    else rows.push({ ...line });
  }
  const side = (text, other, tag) => h("td", {}, text === undefined ? "" : text === other ? text : h(tag, {}, text));
  return h("table", { class: "beside" }, h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map(({ was, is }) => h("tr", {}, side(was, is, "del"), side(is, was, "ins")))));
}
