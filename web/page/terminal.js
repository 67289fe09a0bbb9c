// A terminal in a container, over the API's WebSocket: a shell, or a debug container
// beside the containers of the pod. Or one on a node, if it was started with --node-terminal.

import { apiPath, core, getJSON, h, isAdmin, load, may, patch, read, socket, write } from "./core.js";
import { pause } from "./live.js";
import { t } from "./text.js";

const PROTOCOL = "v5.channel.k8s.io", OF_NODES = "v4.channel.k8s.io";
const STDIN = 0, STDOUT = 1, STDERR = 2, ERROR = 3, RESIZE = 4;
// The first shell that the image has.
const SHELL = ["sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi"];

/**
 * The page's policy allows no inline styles, and xterm.js writes its rules into <style>
 * elements: here another element takes their place, whose text becomes the rules of a
 * constructed sheet, which the policy allows.
 */
function styleElement(document) {
  const node = Document.prototype.createElement.call(document, "template"), sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(node, "textContent", { set: (text) => sheet.replaceSync(text), get: () => "" });
  node.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    Element.prototype.remove.call(node);
  };
  return node;
}

const onNode = (name) => `${apiPath(core("nodes"), "", name, "proxy")}/monopod/terminal`;

/** ofNode reports whether the user may have a terminal on the node. */
export const ofNode = async (name) => isAdmin() && read("GET", onNode(name)).then(() => true, () => false);

async function newTerminal(box) {
  const [{ Terminal }, { FitAddon }] = await Promise.all([load("xterm.js"), load("xterm-fit.js")]);
  document.createElement = (name, ...rest) => (name === "style" ? styleElement(document) : Document.prototype.createElement.call(document, name, ...rest));
  if (!document.querySelector("link[href='/ui/xterm.css']")) document.head.append(h("link", { rel: "stylesheet", href: "/ui/xterm.css" }));
  const colours = getComputedStyle(document.documentElement), colour = (name) => colours.getPropertyValue(name).trim();
  const terminal = new Terminal({
    cursorBlink: false, fontSize: 13, fontFamily: colour("--mono"), scrollback: 5000, screenReaderMode: true,
    theme: { background: colour("--sheet"), foreground: colour("--ink"), cursor: colour("--accent"), cursorAccent: colour("--sheet"), selectionBackground: "#8888cc66" },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  fit.fit();
  return { terminal, fit };
}

export class Part {
  #obj;
  #pods = core("pods");
  #note = h("p", { class: "hint", role: "status" });
  #box = h("div", { class: "console" });
  #container;
  #command;
  #ends = new AbortController();
  #socket = null;
  #screen = null;
  #turn = 0; // of open: a later one replaces those before it
  #over = false; // the note says how the program has ended

  constructor(body, kind, obj, query) {
    this.#obj = obj;
    new ResizeObserver(() => this.#screen?.fit.fit()).observe(this.#box);
    if (kind === core("nodes")) {
      const again = h("button", { type: "button", class: "quiet", onclick: () => this.#node() }, t`Connect`);
      body.replaceChildren(h("div", { class: "tools" }, again), this.#note, this.#box);
      this.#node();
      return;
    }
    const names = (obj.status?.containerStatuses ?? []).concat(obj.status?.initContainerStatuses ?? [], obj.status?.ephemeralContainerStatuses ?? []).filter((s) => s.state?.running).map((s) => s.name);
    this.#container = h("select", { "aria-label": t`Container` }, names.map((n) => h("option", { value: n, selected: n === query.get("c") }, n)));
    const { namespace } = obj.metadata;
    const debugs = may("patch", this.#pods, { namespace, subresource: "ephemeralcontainers" }) && may("create", this.#pods, { namespace, subresource: "attach" });
    const image = h("input", { "aria-label": t`Image of the debug container`, placeholder: t`image, busybox for instance`, autocomplete: "off", spellcheck: "false" });
    this.#command = h("input", { "aria-label": t`Command`, placeholder: t`command; empty: a shell`, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
    body.replaceChildren(h("div", { class: "tools" }, this.#container, this.#command,
      h("button", { type: "button", class: "quiet", onclick: () => this.#open("exec", this.#container.value) }, t`Connect`),
      debugs ? [h("span", { class: "grow" }, image), h("button", { type: "button", class: "quiet", onclick: () => this.#debug(image.value.trim()) }, t`Debug container`)] : null), this.#note, this.#box);
    if (names.length) this.#open("exec", this.#container.value);
    else write(this.#note, t`No container runs.`);
  }

  close() {
    this.#ends.abort();
    this.#turn++;
    this.#socket?.close();
    this.#screen?.terminal.dispose();
    delete document.createElement; // only xterm.js needs it
  }

  /** open runs a shell, or attaches to a container that is one. */
  #open(how, container) {
    const words = how === "exec" ? this.#words() : [], { namespace, name } = this.#obj.metadata;
    const query = new URLSearchParams({ container, stdin: "true", stdout: "true", tty: "true" });
    for (const word of words) query.append("command", word);
    return this.#connect(`${apiPath(this.#pods, namespace, name, how)}?${query}`, words === SHELL || !words.length ? container : `${container} (${words.join(" ")})`);
  }

  #node() {
    const { name } = this.#obj.metadata;
    return this.#connect(onNode(name), name);
  }

  /** connect shows the terminal at a path of the API. */
  async #connect(path, to) {
    const turn = ++this.#turn;
    this.#over = false;
    this.#socket?.close();
    this.#screen?.terminal.dispose();
    const screen = await newTerminal(this.#box);
    if (turn !== this.#turn) {
      screen.terminal.dispose();
      if (this.#ends.signal.aborted) delete document.createElement;
      return;
    }
    this.#screen = screen;
    const { terminal } = screen, ws = this.#socket = socket(path, this.#container ? PROTOCOL : OF_NODES);
    ws.binaryType = "arraybuffer";
    const put = (channel, text) => ws.readyState === WebSocket.OPEN && ws.send(new Uint8Array([channel, ...new TextEncoder().encode(text)]));
    const size = () => put(RESIZE, JSON.stringify({ Width: terminal.cols, Height: terminal.rows }));
    write(this.#note, t`Connecting to ${to}…`);
    ws.onopen = () => {
      write(this.#note, t`Connected to ${to}. Ctrl-Shift-C copies the selection; Shift-Tab leaves the terminal.`);
      size();
      terminal.focus();
    };
    ws.onmessage = ({ data }) => {
      if (ws !== this.#socket) return;
      const bytes = new Uint8Array(data), channel = bytes[0];
      if (channel === STDOUT || channel === STDERR) terminal.write(bytes.subarray(1));
      if (channel === ERROR) this.#ended(new TextDecoder().decode(bytes.subarray(1)));
    };
    ws.onclose = () => ws === this.#socket && !this.#over && write(this.#note, this.#container ? t`The connection has ended. The container may have no shell: try a debug container.` : t`The connection has ended.`);
    terminal.onData((text) => put(STDIN, text));
    terminal.onResize(size);
    terminal.attachCustomKeyEventHandler((ev) => {
      if (ev.key === "Tab" && ev.shiftKey) return false;
      if (!(ev.ctrlKey && ev.shiftKey && ev.code === "KeyC") || ev.type !== "keydown") return true;
      if (terminal.hasSelection()) navigator.clipboard?.writeText(terminal.getSelection());
      ev.preventDefault();
      return false;
    });
  }

  #words() {
    const given = this.#command.value.trim();
    return given ? given.split(/\s+/) : SHELL;
  }

  #ended(text) {
    let status = {};
    this.#over = true;
    try {
      status = JSON.parse(text);
    } catch {
      status = { message: text };
    }
    if (this.#command && /executable file not found|no such file or directory/.test(status.message ?? "")) {
      write(this.#note, this.#command.value.trim()
        ? t`The shell has ended: There is no program "${this.#words()[0]}" in the container. Connect with a command that the image has, or start a debug container from an image that has a shell.`
        : t`The shell has ended: The image has no shell. Connect with a command that the image has, or start a debug container from an image that has a shell.`);
      return;
    }
    write(this.#note, status.status === "Success" ? t`The shell has ended.` : t`The shell has ended: ${status.message ?? t`unknown reason`}`);
  }

  /** debug adds an ephemeral container and attaches to it once it runs. */
  async #debug(image) {
    if (!image) return write(this.#note, t`Name the image of the debug container.`);
    const { namespace, name } = this.#obj.metadata, path = apiPath(this.#pods, namespace, name);
    const container = `debug-${Math.random().toString(36).slice(2, 7)}`;
    try {
      write(this.#note, t`Starting ${container}…`);
      const ephemeralContainers = [{ name: container, image, stdin: true, tty: true, targetContainerName: this.#container.value || undefined }];
      await patch(`${path}/ephemeralcontainers`, { spec: { ephemeralContainers } }, "application/strategic-merge-patch+json");
      while (!this.#ends.signal.aborted) {
        const s = (await getJSON(path)).status?.ephemeralContainerStatuses?.find((x) => x.name === container);
        if (s?.state?.running) return this.#open("attach", container);
        if (s?.state?.terminated) throw new Error(t`${container} has ended: ${s.state.terminated.reason ?? ""}`);
        if (s?.state?.waiting?.message) write(this.#note, `${container}: ${s.state.waiting.reason} ${s.state.waiting.message}`);
        await pause(500, this.#ends.signal);
      }
    } catch (err) {
      write(this.#note, err.message);
    }
  }
}
