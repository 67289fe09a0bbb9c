// Small graphs of what this page has seen, in memory only: at most an hour for each
// object, and of the objects looked at last.

import { h, now, readable, svg } from "./core.js";

const HOUR = 3_600_000, MOST_POINTS = 240, MOST_SERIES = 32; // 32 objects of 240 points with 4 numbers: 250 KB
const series = new Map(); // by UID, the one used last at the end

/** record keeps a point: numbers by name. */
export function record(uid, point) {
  const points = series.get(uid) ?? [], at = now();
  series.delete(uid);
  series.set(uid, points);
  points.push({ at, ...point });
  while (points.length > MOST_POINTS || points[0].at < at - HOUR) points.shift();
  while (series.size > MOST_SERIES) series.delete(series.keys().next().value);
  return points;
}

/** Whether there are points of an object. */
export const known = (uid) => series.has(uid);

/** seed adds points that the server kept, [{ at, … }] with the oldest first, before those of this page. */
export function seed(uid, older) {
  const points = series.get(uid) ?? [], first = points[0]?.at ?? Infinity;
  series.set(uid, [...older.filter((p) => p.at < first && p.at > now() - HOUR), ...points]);
}

const WIDTH = 240, HEIGHT = 56;

/** graphs are drawn of the points: by name { title, unit, limit }. unit: a resource's name. */
export function graphs(uid, wanted) {
  const points = series.get(uid) ?? [];
  return h("div", { class: "graphs" }, Object.entries(wanted).map(([name, what]) => graph(points.filter((p) => Number.isFinite(p[name])), name, what)));
}

function graph(points, name, { title, unit, limit = NaN, suffix = "" }) {
  if (!points.length) return null;
  const last = points.at(-1), most = Math.max(...points.map((p) => p[name]), 1e-9), top = limit > 0 && limit < most * 5 ? limit : most * 1.2;
  const from = points[0].at, span = Math.max(last.at - from, 60_000);
  const spot = (p) => `${((p.at - last.at + span) / span * WIDTH).toFixed(1)},${(HEIGHT - 2 - Math.min(1, p[name] / top) * (HEIGHT - 6)).toFixed(1)}`;
  const minutes = Math.round((last.at - from) / 60_000), text = `${readable(unit, last[name])}${suffix}`;
  const words = `${title}: ${text} now, at most ${readable(unit, most)}${suffix} in ${minutes || "less than one"} min`;
  if (points.length === 1) points = [{ ...last, at: last.at - 3000 }, last]; // a mark that can be seen
  const line = points.map(spot).join(" "), start = spot(points[0]).split(",")[0], end = spot(last).split(",")[0];
  return h("figure", { class: "graph" }, h("figcaption", {}, title, " ", h("strong", {}, text), limit > 0 ? h("span", { class: "muted" }, ` of ${readable(unit, limit)}`) : null),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words, preserveAspectRatio: "none" },
      svg("polygon", { points: `${start},${HEIGHT} ${line} ${end},${HEIGHT}` }), svg("polyline", { points: line })),
    h("p", { class: "hint" }, minutes ? `last ${minutes} min` : "last minute"));
}
