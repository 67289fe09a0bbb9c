// The part "Map" of an object's page: its app as a picture, from left to right what leads to
// pods, what runs them, the pods, and what they use. links.js says what belongs together.

import { address, apiPath, findKind, getJSON, h, learn, maker, may, moodOf, moodOfReady, now, plural, svg } from "./core.js";
import { PODS, ROUTES, linked } from "./links.js";
import { AS_TABLE } from "./live.js";
import { filterOf, selector } from "./object.js";
import { t } from "./text.js";

const key = (kind) => `${kind.name}.${kind.group}`;

// Of these only the metadata is read: nobody needs the values of Secrets for a picture.
const BRIEF = ["configmaps.", "secrets.", "serviceaccounts.", "gateways.gateway.networking.k8s.io"];
const WHOLE = ["pods.", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "replicationcontrollers.", "services.", "ingresses.networking.k8s.io",
  ...ROUTES, "horizontalpodautoscalers.autoscaling", "poddisruptionbudgets.policy", "networkpolicies.networking.k8s.io", "persistentvolumeclaims."];
const MOST_READ = 1000; // objects of a kind
const AGAIN = 30_000, PAUSE = 2000; // milliseconds between two looks, without a change of the object and with one

// Pixels, and how many characters of a name and of the words above it fit into a box.
const WIDTH = 168, HEIGHT = 46, APART = 44, BELOW = 10, BANDS = 24, EDGE = 6, NAME = 20, WORDS = 23;

export class Part {
  #kind;
  #obj;
  #namespace;
  #parts;
  #end = new AbortController();
  #asked = 0; // when
  #again = AGAIN;
  #drawn = "";

  constructor(body, kind, obj) {
    this.#kind = kind;
    this.#obj = obj;
    this.#namespace = kind.namespaced ? obj.metadata.namespace : obj.metadata.name;
    const map = h("div", { class: "map" }, h("p", { class: "empty" }, t`Loading…`)), notes = h("div", { class: "hint" }), list = h("details", {}, h("summary", {}, t`As a list`));
    this.#parts = { map, notes, list };
    body.replaceChildren(h("p", { class: "hint" }, t`From left to right: what leads to pods, what runs them, the pods, and what they use.`), map, notes, list);
    list.hidden = true;
    this.#look();
  }

  close() {
    this.#end.abort();
  }

  update(obj) {
    this.#obj = obj;
    this.#again = PAUSE;
  }

  tick() {
    if (!document.hidden && now() - this.#asked > this.#again) this.#look();
  }

  async #look() {
    [this.#asked, this.#again] = [now(), AGAIN];
    const { signal } = this.#end;
    try {
      const read = await this.#read(signal);
      if (!signal.aborted) this.#draw(read);
    } catch (err) {
      if (!signal.aborted) this.#parts.notes.replaceChildren(h("p", { class: "error" }, err.message));
    }
  }

  /** read lists the namespace: { objects, listed, hidden, cut }, of each kind that the server has. */
  async #read(signal) {
    await learn(this.#namespace);
    const out = { objects: [], listed: [], hidden: [], cut: [] };
    await Promise.all([...WHOLE, ...BRIEF].map(findKind).filter(Boolean).map(async (kind) => {
      const where = { namespace: this.#namespace };
      if (!may("list", kind, where)) return out.hidden.push(plural(kind));
      const list = await getJSON(apiPath(kind, this.#namespace, "", "", { limit: MOST_READ, includeObject: WHOLE.includes(key(kind)) ? "Object" : "Metadata" }), { accept: AS_TABLE, signal });
      const rows = list.rows ?? [], query = new URLSearchParams({ kind: key(kind).replace(/\.$/, ""), ...where });
      const health = rows.length && kind.subresources.includes("status") ? await getJSON(`/monopod/health?${query}`, { signal }).catch(() => ({})) : {};
      out.objects.push(...rows.map(({ cells, object: obj }) => {
        const by = maker(obj);
        return { kind: key(kind), obj, owner: by ? `${key(by.kind)}/${by.name}` : "", ...state(list.columnDefinitions, cells, obj, health[obj.metadata.uid]) };
      }));
      (list.metadata.continue ? out.cut : out.listed).push(list.metadata.continue ? plural(kind) : key(kind));
    }));
    return out;
  }

  #draw({ objects, listed, hidden, cut }) {
    const { map, notes, list } = this.#parts, by = maker(this.#obj), here = `${key(this.#kind)}/${this.#obj.metadata.name}`;
    const about = this.#kind.namespaced ? [here, ...(by ? [`${key(by.kind)}/${by.name}`] : [])] : null;
    const app = linked(objects, { listed, about }), is = JSON.stringify([app, hidden, cut]);
    if (this.#drawn === is) return;
    const first = !this.#drawn, focused = document.activeElement?.closest?.(".map a")?.getAttribute("href");
    this.#drawn = is;
    const boxes = app.boxes.map((b) => this.#describe(b, objects, here));
    list.hidden = !boxes.length;
    if (boxes.length) {
      map.replaceChildren(picture(boxes, app.lines, t`Map of ${this.#kind.kind} ${this.#obj.metadata.name}`));
      while (list.childNodes.length > 1) list.lastChild.remove();
      list.append(nested(boxes, app.lines));
    } else map.replaceChildren(h("p", { class: "empty" }, t`Nothing that you may see belongs to it.`));
    notes.replaceChildren(...[
      app.more ? t`${app.more} more boxes are not drawn. The map of one workload shows less.` : "",
      hidden.length ? t`Not shown, because you may not list them: ${hidden.join(", ")}.` : "",
      cut.length ? t`Only the first ${MOST_READ} were read of: ${cut.join(", ")}.` : "",
    ].filter(Boolean).map((text) => h("p", {}, text)));
    if (focused) map.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    const mine = map.querySelector("[aria-current]");
    if (first && mine) map.scrollLeft = mine.getBoundingClientRect().left - map.getBoundingClientRect().left - map.clientWidth / 2 + WIDTH / 2;
  }

  /** describe adds to a box its address and what it is called. */
  #describe(b, objects, here) {
    const kind = findKind(b.kind), ns = this.#namespace;
    if (!b.of) {
      const text = b.missing ? t`does not exist` : b.text, word = kind?.kind ?? b.kind.split(".")[0];
      return { ...b, mood: b.missing ? "bad" : b.mood, word, title: b.name, text, href: kind ? address(kind, ns, b.name) : "", here: b.id === here };
    }
    const by = b.id.slice(b.id.indexOf("*") + 1), workload = objects.find((o) => `${o.kind}/${o.obj.metadata.name}` === by), labels = workload ? selector(workload.obj) : "";
    const bad = b.of.filter((o) => !/^(ok|done)$/.test(o.mood)).length, pods = b.kind === "pods.";
    const q = pods ? filterOf(labels) : "";
    return { ...b, word: plural(kind), title: pods ? t`${b.of.length} pods` : t`${b.of.length} claims`, text: bad ? t`${bad} not ready` : t`all ready`, href: address(kind, "", "", "", { ns, q }),
      here: b.of.some((o) => `${b.kind}/${o.name}` === here) };
  }
}

/** state is the mood of an object and the server's word for it, as its list shows them. */
function state(columns, cells, obj, unwell) {
  const cell = (name) => String(cells[columns.findIndex((c) => c.name === name)] ?? ""), status = cell("Status"), ready = cell("Ready"), ratio = /^\d+\/\d+$/.test(ready) ? ready : "";
  if (obj.metadata.deletionTimestamp) return { mood: "ending", text: "Terminating" };
  return { mood: unwell?.state ?? (status ? moodOf(status, ratio) : moodOfReady(ratio)), text: status || (ratio && t`${ratio} ready`) };
}

const short = (text, most) => (text.length > most ? `${text.slice(0, Math.ceil(most / 2))}…${text.slice(1 - Math.floor(most / 2))}` : text);
const words = (b) => [b.word, b.title].join(" ") + (b.text ? `, ${b.text}` : "");

/** place gives each box its left upper corner, and returns the size of the picture. Of columns, those without boxes are left out; of a band, each column is in the middle. */
function place(boxes) {
  const columns = [...new Set(boxes.map((b) => b.column))].sort((x, y) => x - y);
  let top = EDGE;
  for (const band of new Set(boxes.map((b) => b.band).sort((x, y) => x - y))) {
    const stacks = columns.map((c) => boxes.filter((b) => b.band === band && b.column === c)), high = Math.max(...stacks.map((s) => s.length)) * (HEIGHT + BELOW) - BELOW;
    stacks.forEach((stack, i) => stack.forEach((b, n) => {
      b.x = EDGE + i * (WIDTH + APART);
      b.y = top + (high - stack.length * (HEIGHT + BELOW) + BELOW) / 2 + n * (HEIGHT + BELOW);
    }));
    top += high + BANDS;
  }
  return { width: columns.length * (WIDTH + APART) - APART + 2 * EDGE, height: top - BANDS + EDGE };
}

function picture(boxes, lines, label) {
  const { width, height } = place(boxes), at = new Map(boxes.map((b) => [b.id, b])), out = [];
  const right = (b) => [b.x + WIDTH, b.y + HEIGHT / 2], left = (b) => [b.x, b.y + HEIGHT / 2];
  const curve = ([x1, y1], [x2, y2]) => {
    const bend = Math.max(12, (x2 - x1) / 2);
    out.push(svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }));
  };
  const joints = new Map(); // what all pods of a workload use is drawn with one line, from a joint behind them
  const joint = (from) => {
    if (joints.has(from)) return joints.get(from);
    const pods = lines.filter((l) => l.from === from && at.get(l.to).column === PODS).map((l) => at.get(l.to)), end = pods.map(right);
    const spot = pods.length ? [end[0][0] + APART / 3, end.reduce((sum, [, y]) => sum + y, 0) / pods.length] : right(at.get(from));
    for (const e of end) curve(e, spot);
    joints.set(from, spot);
    return spot;
  };
  for (const { from, to, shared } of lines) curve(shared ? joint(from) : right(at.get(from)), left(at.get(to)));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label }, svg("g", { class: "lines", "aria-hidden": "true" }, ...out), ...boxes.map(drawn));
}

/** Dots have the shapes of the lists. */
const DOTS = {
  ok: { r: 4.5 }, done: { r: 4.5 }, wait: { r: 3.5 },
  bad: { x: -4, y: -4, width: 8, height: 8, rx: 1, turn: 45 }, ending: { x: -4.5, y: -2, width: 9, height: 4, rx: 1 },
};

function drawn(b) {
  const dot = DOTS[b.mood], text = 12 + (dot ? 16 : 0);
  const parts = [svg("title", {}, words(b)), svg("rect", { width: WIDTH, height: HEIGHT, rx: 8 })];
  if (dot) {
    const { turn = 0, ...shape } = dot;
    parts.push(svg("r" in dot ? "circle" : "rect", { class: "mark", ...shape, transform: `translate(16 15) rotate(${turn})` }));
  }
  parts.push(svg("text", { class: "word", x: text, y: 19 }, short(b.text && !/^(ok|done)$/.test(b.mood) ? `${b.word} · ${b.text}` : b.word, WORDS)), svg("text", { class: "name", x: 12, y: 36 }, short(b.title, NAME)));
  const props = { class: "box", transform: `translate(${b.x} ${b.y})`, ...(b.mood ? { "data-mood": b.mood } : {}), ...(b.here ? { "aria-current": "true" } : {}) };
  return b.href ? svg("a", { ...props, href: b.href }, ...parts) : svg("g", { ...props, role: "img" }, ...parts);
}

/** nested is the map as a list: below each box those that it leads to, once. */
function nested(boxes, lines) {
  const at = new Map(boxes.map((b) => [b.id, b])), led = new Set(lines.map((l) => l.to)), told = new Set();
  const items = (all) => h("ul", {}, all.map((b) => {
    const next = told.has(b.id) ? [] : lines.filter((l) => l.from === b.id).map((l) => at.get(l.to));
    told.add(b.id);
    return h("li", {}, `${b.word} `, b.href ? h("a", { class: "name", href: b.href }, b.title) : b.title, b.text ? `, ${b.text}` : "", next.length ? items(next) : null);
  }));
  return items(boxes.filter((b) => !led.has(b.id)));
}
