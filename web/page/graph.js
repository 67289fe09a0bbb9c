// Small graphs of the last day: of what this page has seen, and of what the nodes kept
// before. In memory only, and of the objects looked at last.

import { duration, h, now, readable, svg } from "./core.js";
import { t } from "./text.js";

const HOUR = 3_600_000, DAY = 24 * HOUR, MOST_POINTS = 480, MOST_SERIES = 32; // 32 objects of 480 points with 5 numbers: 600 KB
const series = new Map(); // by UID, the one used last at the end

/** record keeps a point: numbers by name. Of older points, every second one goes when there are too many. */
export function record(uid, point) {
  const points = series.get(uid) ?? [], at = now();
  series.delete(uid);
  points.push({ at, ...point });
  const kept = points.filter((p, i) => p.at > at - DAY && (points.length <= MOST_POINTS || i % 2 || i > MOST_POINTS / 2));
  series.set(uid, kept);
  while (series.size > MOST_SERIES) series.delete(series.keys().next().value);
}

/** Whether there are points of an object. */
export const known = (uid) => series.has(uid);

/** seed adds points that the nodes kept, [{ at, … }] with the oldest first, before those of this page. */
export function seed(uid, older) {
  const points = series.get(uid) ?? [], first = points[0]?.at ?? Infinity;
  series.set(uid, [...older.filter((p) => p.at < first && p.at > now() - DAY), ...points]);
}

const WIDTH = 240, HEIGHT = 56;
let span = HOUR; // what the graphs show; the same for all

/** graphs are drawn of the points: by name { title, unit, limit, suffix }. unit: a resource's name. */
export function graphs(uid, wanted) {
  const box = h("div", { class: "graphs" });
  const draw = () => {
    const all = series.get(uid) ?? [], points = all.filter((p) => p.at > now() - span);
    const shown = Object.entries(wanted).map(([name, what]) => graph(points.filter((p) => Number.isFinite(p[name])), name, what)).filter(Boolean);
    const more = shown.length && all[0]?.at < now() - HOUR;
    box.replaceChildren(...shown, ...(more ? [h("button", { type: "button", class: "quiet", onclick: () => {
      span = span === HOUR ? DAY : HOUR;
      draw();
      box.querySelector("button").focus();
    } }, span === HOUR ? t`Show the last day` : t`Show the last hour`)] : []));
  };
  draw();
  return box;
}

function graph(points, name, { title, unit, limit = NaN, suffix = "" }) {
  if (!points.length) return null;
  const last = points.at(-1), most = Math.max(...points.map((p) => p[name]), 1e-9), top = limit > 0 && limit < most * 5 ? limit : most * 1.2;
  const from = points[0].at, width = Math.max(last.at - from, 60_000);
  const spot = (p) => `${((p.at - last.at + width) / width * WIDTH).toFixed(1)},${(HEIGHT - 2 - Math.min(1, p[name] / top) * (HEIGHT - 6)).toFixed(1)}`;
  const time = duration(width), text = `${readable(unit, last[name])}${suffix}`;
  const words = t`${title}: ${text} now, at most ${readable(unit, most)}${suffix} in ${time}`;
  if (points.length === 1) points = [{ ...last, at: last.at - 3000 }, last]; // a mark that can be seen
  const line = points.map(spot).join(" "), start = spot(points[0]).split(",")[0], end = spot(last).split(",")[0];
  return h("figure", { class: "graph" }, h("figcaption", {}, title, " ", h("strong", {}, text), limit > 0 ? h("span", { class: "muted" }, " ", t`of ${readable(unit, limit)}`) : null),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words, preserveAspectRatio: "none" },
      svg("polygon", { points: `${start},${HEIGHT} ${line} ${end},${HEIGHT}` }), svg("polyline", { points: line })),
    h("p", { class: "hint" }, t`last ${time}`));
}
