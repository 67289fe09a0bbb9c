// Logs, followed: of one container, of all containers of a pod, or of all pods of a
// workload. Lines are kept in memory up to a limit; the oldest go first.

import { apiPath, core, h, say, send, write } from "./core.js";
import { Feed, lines, pause } from "./live.js";
import { selector } from "./object.js";
import { t } from "./text.js";

const MOST_LINES = 5000, MOST_STREAMS = 20, LONGEST = 10_000, LONGEST_DOWNLOAD = 64 << 20;
const RETRY = 2000; // milliseconds
const NONE = t`No container has started yet.`;
// Colours and cursor movements of terminals.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

export class Part {
  #pods = core("pods");
  #kind;
  #obj;
  #namespace;
  #feed = null; // of the pods of an owner
  #streams = new Map(); // by pod/container: what ends it
  #all = []; // { at, from, text }
  #fresh = []; // not shown yet
  #timer;
  #ui;
  #many;

  constructor(body, kind, obj, query) {
    this.#kind = kind;
    this.#obj = obj;
    this.#namespace = obj.metadata.namespace;
    this.#many = kind !== this.#pods;
    this.#build(body, query.get("c") ?? "", query.has("previous"));
    if (this.#many) this.#feed = new Feed({ kind: this.#pods, namespace: this.#namespace, labels: selector(obj), full: true }, () => this.#reopen());
    else this.#reopen();
  }

  close() {
    clearTimeout(this.#timer);
    this.#feed?.close();
    for (const end of this.#streams.values()) end.abort();
    this.#streams.clear();
  }

  update(obj) {
    this.#obj = obj;
    if (!this.#many) this.#reopen();
  }

  #build(body, wanted, previous) {
    const check = (name, text, on, act) => h("label", { class: "check" }, h("input", { type: "checkbox", name, checked: on, onchange: act }), ` ${text}`);
    const container = h("select", { "aria-label": t`Container`, onchange: () => this.#restart() }, h("option", { value: "" }, t`All containers`));
    for (const name of this.#containers(this.#obj)) container.append(h("option", { value: name, selected: name === wanted }, name));
    const search = h("input", { type: "search", class: "log-search", placeholder: t`Search the lines`, "aria-label": t`Search the lines`, autocomplete: "off", spellcheck: "false", oninput: () => this.#redraw() });
    const hold = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.#hold() }, t`Pause`);
    const note = h("p", { class: "hint", role: "status" }), box = h("div", { class: "log wrap", tabindex: "0", role: "log", "aria-live": "off", "aria-label": t`Log` });
    const form = h("form", { class: "tools", onsubmit: (ev) => ev.preventDefault() }, container, h("label", { class: "grow" }, search),
      check("previous", t`Previous run`, previous, () => this.#restart()), check("times", t`Times`, false, () => this.#redraw()),
      check("wrap", t`Wrap`, true, (ev) => box.classList.toggle("wrap", ev.target.checked)), hold,
      h("button", { type: "button", class: "quiet", onclick: () => this.#download() }, t`Download`));
    this.#ui = { form, container, search, hold, note, box };
    body.replaceChildren(form, note, box);
  }

  /** containers are those of a pod or of a workload's template. */
  #containers(obj) {
    const spec = obj.spec?.template?.spec ?? obj.spec ?? {};
    return [...(spec.initContainers ?? []), ...(spec.containers ?? []), ...(spec.ephemeralContainers ?? [])].map((c) => c.name).filter(Boolean);
  }

  #restart() {
    for (const end of this.#streams.values()) end.abort();
    this.#streams.clear();
    this.#all = [];
    this.#fresh = [];
    this.#ui.box.replaceChildren();
    write(this.#ui.note, "");
    this.#reopen();
  }

  /** reopen opens the streams that are wanted and not open. */
  #reopen() {
    const pods = this.#many ? this.#feed.items.map((r) => r.obj) : [this.#obj], chosen = this.#ui.container.value;
    const wanted = pods.flatMap((p) => this.#containers(p).filter((c) => !chosen || c === chosen).filter((c) => started(p, c)).map((c) => [`${p.metadata.name}/${c}`, p, c]));
    for (const [id, pod, c] of wanted.slice(0, MOST_STREAMS)) {
      if (this.#streams.has(id)) continue;
      const end = new AbortController(), from = this.#many ? id : wanted.length > 1 || this.#containers(pod).length > 1 && !chosen ? c : "";
      this.#streams.set(id, end);
      this.#read(pod.metadata.name, c, from, end.signal, wanted.length);
    }
    if (wanted.length > MOST_STREAMS) write(this.#ui.note, t`Only ${MOST_STREAMS} of ${wanted.length} logs are shown: choose a container or a pod.`);
    else if (!wanted.length) write(this.#ui.note, NONE);
    else if (this.#ui.note.textContent === NONE) write(this.#ui.note, "");
  }

  async #read(pod, container, from, signal, streams) {
    const { previous } = this.#ui.form.elements;
    let last = "";
    while (!signal.aborted) {
      const query = { container, timestamps: "true", follow: String(!previous.checked) };
      if (previous.checked) query.previous = "true";
      if (last) query.sinceTime = last.replace(/\.\d+/, "");
      else query.tailLines = String(Math.max(100, Math.floor(2000 / streams)));
      try {
        const response = await send("GET", apiPath(this.#pods, this.#namespace, pod, "log", query), { accept: "*/*", signal });
        for await (const line of lines(response.body)) {
          const space = line.indexOf(" "), at = line.slice(0, space);
          if (last && at <= last) continue; // sinceTime has whole seconds
          last = at;
          this.#add({ at, from, text: line.slice(space + 1, space + 1 + LONGEST).replace(ESCAPES, "").replace(/\r$/, "") });
        }
      } catch (err) {
        if (signal.aborted) return;
        if (err.code === 400 || err.code === 403 || err.code === 404) {
          this.#add({ at: "", from, text: err.message, note: true });
          return;
        }
      }
      if (previous.checked) return;
      await pause(RETRY, signal);
      if (!this.#running(pod, container)) return;
    }
  }

  #running(pod, container) {
    const obj = this.#many ? this.#feed.items.map((r) => r.obj).find((p) => p.metadata.name === pod) : this.#obj;
    return obj && (statusOf(obj, container)?.state?.running || statusOf(obj, container)?.state?.waiting);
  }

  #add(line) {
    this.#fresh.push(line);
    if (this.#fresh.length > MOST_LINES) this.#fresh.splice(0, this.#fresh.length - MOST_LINES);
    this.#timer ??= setTimeout(() => this.#flush(), this.#all.length ? 60 : 250); // the first lines of several logs are sorted
  }

  /** flush shows the new lines. */
  #flush() {
    this.#timer = undefined;
    if (this.#held) return;
    const fresh = this.#fresh.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
    this.#fresh = [];
    this.#all.push(...fresh);
    const over = this.#all.length - MOST_LINES;
    if (over > 0) this.#all.splice(0, over);
    const { box } = this.#ui, atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.append(...fresh.filter((l) => this.#found(l)).map((l) => this.#line(l)));
    while (box.childElementCount > MOST_LINES) box.firstChild.remove();
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  get #held() {
    return this.#ui.hold.getAttribute("aria-pressed") === "true";
  }

  #hold() {
    const { hold } = this.#ui;
    hold.setAttribute("aria-pressed", String(!this.#held));
    write(hold, this.#held ? t`Continue` : t`Pause`);
    if (!this.#held) this.#flush();
  }

  #found({ text, from }) {
    const wanted = this.#ui.search.value.toLowerCase();
    return !wanted || `${from} ${text}`.toLowerCase().includes(wanted);
  }

  #line({ at, from, text, note }) {
    const wanted = this.#ui.search.value, spot = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
    const parts = spot < 0 ? [text] : [text.slice(0, spot), h("mark", {}, text.slice(spot, spot + wanted.length)), text.slice(spot + wanted.length)];
    return h("div", { class: note ? "error" : null }, this.#ui.form.elements.times.checked && at ? h("span", { class: "muted" }, `${at} `) : null, from ? h("span", { class: "from" }, `${from} `) : null, parts);
  }

  #redraw() {
    const { box } = this.#ui;
    box.replaceChildren(...this.#all.filter((l) => this.#found(l)).map((l) => this.#line(l)));
    box.scrollTop = box.scrollHeight;
  }

  /** download saves the whole log of one container, or the lines in memory of several. */
  async #download() {
    const chosen = this.#ui.container.value || (this.#many ? "" : this.#containers(this.#obj).length === 1 && this.#containers(this.#obj)[0]);
    let parts = this.#all.map(({ at, from, text }) => `${at} ${from ? `${from} ` : ""}${text}\n`);
    if (chosen && !this.#many) {
      const query = { container: chosen, timestamps: "true", limitBytes: String(LONGEST_DOWNLOAD) };
      if (this.#ui.form.elements.previous.checked) query.previous = "true";
      try {
        parts = [await (await send("GET", apiPath(this.#pods, this.#namespace, this.#obj.metadata.name, "log", query), { accept: "*/*" })).blob()];
      } catch (err) {
        write(this.#ui.note, err.message);
        return;
      }
    }
    const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
    h("a", { href: url, download: `${this.#obj.metadata.name}${chosen ? `-${chosen}` : ""}.log` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    say(t`The log is downloaded`);
  }
}

const statusOf = ({ status = {} }, name) => [...(status.containerStatuses ?? []), ...(status.initContainerStatuses ?? []), ...(status.ephemeralContainerStatuses ?? [])].find((s) => s.name === name);

/** started reports whether a container has a log. */
function started(pod, name) {
  const s = statusOf(pod, name);
  return Boolean(s?.state?.running || s?.state?.terminated || s?.lastState?.terminated);
}
