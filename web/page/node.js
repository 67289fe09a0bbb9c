// The sections of a node: what it has, what pods asked for, what it uses, its
// images and who uses them, and for admins the database and the certificates of the server.

import { address, ago, apiPath, bytes, core, dropsOn, getJSON, h, isAdmin, may, millis, moodOfEnd, moodly, now, quantity, readable, say, send, write } from "./core.js";
import { dialog } from "./dialogs.js";
import { facts } from "./sections.js";
import { t } from "./text.js";
import { POLL, ofNode, shows } from "./use.js";

const SLOW = 300; // seconds, for what changes slowly: each answer brings more of the server's program into memory
const SHOWN = ["cpu", "memory", "ephemeral-storage", "pods"];

export function sections(s, node) {
  const pods = core("pods");
  const pictures = new Images(node);
  let latest = node, feed = null;
  s.add(t`Conditions`, conditions, (n) => [n.status?.conditions?.map((c) => [c.type, c.status, c.reason, c.message]), n.spec.unschedulable]);
  const amounts = (f) => {
    feed = f;
    pictures.used(f);
    return table(latest, f);
  };

  if (may("list", pods)) s.live(t`Capacity`, { kind: pods, fields: `spec.nodeName=${node.metadata.name}`, full: true }, amounts);
  else s.add(t`Capacity`, (n) => table(n, null), (n) => n.status?.capacity);
  if (shows("nodes")) s.poll(t`Use`, POLL, () => ofNode(latest));
  if (isAdmin()) s.poll(t`Server`, SLOW, () => server(node));
  s.add(t`Images`, (n) => pictures.draw(n), (n) => n.status?.images);
  s.add(t`System`, system, (n) => [n.status?.nodeInfo, n.status?.addresses]);
  s.add("", (n) => {
    latest = n;
    feed?.touch();
    return null;
  }, (n) => [n.status?.images, n.status?.allocatable]);
}

function conditions(node) {
  const all = (node.status?.conditions ?? []).map((c) => {
    const good = (c.type === "Ready") === (c.status === "True");
    return h("li", {}, moodly(good ? "ok" : "bad", `${c.type}: ${c.status}`), h("span", { class: "muted" }, " ", ago(millis(c.lastTransitionTime), true)), good || !c.message ? null : h("p", {}, c.message));
  });
  if (node.spec.unschedulable) all.unshift(h("li", {}, moodly("wait", t`Cordoned: no new pods are placed here.`)));
  return all.length ? h("ul", { class: "conditions" }, all) : null;
}

/** table compares what the node has with what its pods asked for. */
function table(node, feed) {
  const { capacity = {}, allocatable = {} } = node.status ?? {};
  const living = (feed?.items ?? []).map((r) => r.obj).filter((p) => !/^(Succeeded|Failed)$/.test(p.status?.phase));
  const asked = (name) => (name === "pods" ? living.length : living.reduce((sum, p) => sum + request(p, name), 0));
  const names = [...SHOWN.filter((n) => n in capacity), ...Object.keys(capacity).filter((n) => !SHOWN.includes(n) && quantity(capacity[n]) > 0)];
  const share = (name) => Math.min(100, Math.round(100 * asked(name) / (quantity(allocatable[name]) || 1)));
  return h("table", { class: "rows static" }, h("thead", {}, h("tr", {}, [t`Resource`, t`Capacity`, t`For pods`, feed ? t`Requested` : null].filter(Boolean).map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, names.map((n) => h("tr", {}, h("th", { scope: "row" }, n), h("td", { "data-label": t`Capacity` }, readable(n, capacity[n])), h("td", { "data-label": t`For pods` }, readable(n, allocatable[n])),
      feed ? h("td", { "data-label": t`Requested` }, h("meter", { min: 0, max: 100, value: share(n), "aria-label": t`${n} requested` }), ` ${readable(n, asked(n))} (${share(n)} %)`) : null))));
}

/** request is what a pod asks for, as the scheduler counts it: its containers, or a larger init container. */
function request(pod, name) {
  const of = (c) => quantity(c.resources?.requests?.[name] ?? "0") || 0, { containers, initContainers = [], overhead } = pod.spec;
  const sidecars = initContainers.filter((c) => c.restartPolicy === "Always");
  const sum = [...containers, ...sidecars].reduce((total, c) => total + of(c), 0);
  return Math.max(sum, ...initContainers.map(of)) + (quantity(overhead?.[name] ?? "0") || 0);
}

function system(node) {
  const info = node.status?.nodeInfo ?? {};
  return facts([[t`Version`, info.kubeletVersion], [t`Runtime`, info.containerRuntimeVersion], [t`System`, [info.osImage, info.architecture].filter(Boolean).join(", ")], [t`Kernel`, info.kernelVersion],
    [t`Addresses`, (node.status?.addresses ?? []).map((a) => `${a.address} (${a.type})`).join(", ")]]);
}

// --- the server: its database, snapshots and certificates ---

/** server is shown on the page of the node that it runs on. */
async function server(node) {
  const [about, certificates] = await Promise.all([getJSON("/monopod/status"), getJSON("/monopod/certs")]);
  if (about.node !== node.metadata.name) return null;
  const { state } = about, copies = state.snapshots ?? [], error = h("p", { class: "error", role: "alert" });
  const make = h("button", { type: "button", class: "quiet", onclick: async () => {
    make.disabled = true;
    try {
      const made = await (await send("POST", "/monopod/snapshot")).json();
      write(list.firstChild, t`${made.name}, ${bytes(made.size)}, now`);
      say(t`The snapshot ${made.name} is made`);
    } catch (err) {
      write(error, err.message);
    }
    make.disabled = false;
  } }, t`Take a snapshot`);
  const list = h("ul", { class: "plainly" }, h("li", {}), copies.map((c) => h("li", {}, h("span", { class: "name" }, c.name), ` ${bytes(c.bytes)}, `, ago(millis(c.time), true))));
  return h("div", {}, facts([
    [t`Version`, about.version], [t`Address`, h("span", { class: "name" }, about.address)], [t`Data folder`, h("span", { class: "name" }, about.dataDir)],
    [t`Started`, ago(millis(about.started), true)],
    [t`Database`, [state.kind === "etcd" ? "etcd" : t`one file`, state.bytes && bytes(state.bytes)].filter(Boolean).join(", ")],
    [t`Snapshots`, state.kind === "file" ? [copies.length ? "" : h("p", { class: "muted" }, t`None yet. Monopod makes one when the interval is over and the state has changed.`), list, make, error] : ""],
    [t`Certificates`, h("ul", { class: "plainly" }, certificates.map(certificate))],
  ]));
}

function certificate({ Name: name, NotAfter: end }) {
  const left = millis(end) - now(), days = Math.round(left / 86_400_000);
  return h("li", {}, h("span", { class: "name" }, name), " ", moodly(moodOfEnd(left), left < 0 ? t`expired` : t`${days} days left`, end));
}

// --- images ---

/** Images are those of the node, with who uses them. Who may use the node's API manages them; others see what the node's status lists. */
class Images {
  #node;
  #feed = null;
  #list = null; // of the node's API; null: not known, as of a kubelet
  #box = h("div", { class: "images" });
  #error = h("p", { class: "error", role: "alert" });
  #note = h("p", { class: "hint", role: "status" });

  constructor(node) {
    this.#node = node;
  }

  /** used sets the pods of the node. */
  used(feed) {
    this.#feed = feed;
    this.#show();
  }

  draw(node) {
    this.#node = node;
    this.#load();
    return this.#box;
  }

  get #path() {
    return apiPath(core("nodes"), "", this.#node.metadata.name, "proxy/monopod/images");
  }

  #may(verb) {
    return may(verb, core("nodes"), { name: this.#node.metadata.name, subresource: "proxy" });
  }

  async #load() {
    if (this.#may("get")) this.#list = await getJSON(this.#path).then((all) => all.images, () => this.#list);
    this.#show();
  }

  #show() {
    const adds = this.#list !== null && this.#may("create"), removes = this.#list !== null && this.#may("delete"), pods = core("pods");
    const list = this.#list?.map((i) => ({ ...i, size: i.bytes, users: i.users ?? [] })) ??
      (this.#node.status?.images ?? []).map(({ names = [], sizeBytes = 0 }) => ({ names, size: sizeBytes, users: this.#users(names) }));
    list.sort((x, y) => y.size - x.size);
    const link = (user) => {
      const [namespace, name] = user.split("/");
      return h("a", { href: address(pods, namespace, name) }, name);
    };
    const focused = this.#box.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    this.#box.replaceChildren(...[adds ? this.#zone() : null, this.#note, this.#error, list.length ? h("table", { class: "rows static" },
      h("thead", {}, h("tr", {}, [t`Image`, t`Size`, t`Used by`, removes ? t`Actions` : null].filter(Boolean).map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, list.slice(0, 200).map((image) => {
        const { names, size, users } = image, name = names.find((n) => !n.includes("@")) ?? names[0] ?? image.id;
        return h("tr", {}, h("th", { scope: "row", title: names.join(" ") }, name), h("td", { "data-label": t`Size` }, bytes(size)),
          h("td", { class: "long", "data-label": t`Used by` }, users.slice(0, 5).flatMap((user, i) => [i ? ", " : "", link(user)]), users.length > 5 ? `, ${t`${users.length - 5} more`}` : ""),
          removes ? h("td", {}, users.length ? null : h("button", { type: "button", class: "quiet risky", "aria-label": t`Remove ${name}`, onclick: () => this.#remove(image, name) }, t`Remove`)) : null);
      }))) : h("p", { class: "empty" }, t`No images.`)].filter(Boolean));
    if (focused) this.#box.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  /** users are the pods that name one of the names, as namespace/name. */
  #users(names) {
    return (this.#feed?.items ?? []).map((r) => r.obj).filter((p) => [...(p.status?.containerStatuses ?? []), ...p.spec.containers].some((c) => names.includes(c.image) || names.includes(c.imageID)))
      .map((p) => `${p.metadata.namespace}/${p.metadata.name}`);
  }

  /** zone takes archives that are chosen or dropped. */
  #zone() {
    const file = h("input", { type: "file", accept: ".tar,.gz,.tgz,.zst", multiple: true, onchange: (ev) => this.#add(ev.target.files) });
    const zone = h("div", { class: "drop images-drop" }, h("label", {}, h("span", {}, t`Import archives (docker save, ctr images export): drop them here, or choose:`, " "), file));
    dropsOn(zone, (files) => this.#add(files));
    return zone;
  }

  async #add(files) {
    write(this.#error, "");
    for (const file of files) {
      write(this.#note, t`Importing ${file.name}, ${bytes(file.size)}…`);
      try {
        const response = await send("POST", this.#path, { body: file, type: "application/x-tar" });
        write(this.#note, t`Imported: ${(await response.json()).names.join(", ")}`);
      } catch (err) {
        write(this.#note, "");
        write(this.#error, err.message);
        break;
      }
    }
    await this.#load();
  }

  #remove(image, name) {
    return dialog({
      title: t`Remove image`, what: [h("strong", { class: "name" }, name)], submit: t`Remove`, danger: true, cancel: t`Keep it`,
      body: [h("p", {}, t`${bytes(image.size)} are freed. Pods that need it later pull it again, if its registry can be reached. An archive in the data folder is imported again at the next start.`)],
      act: async () => {
        await send("DELETE", `${this.#path}?${new URLSearchParams({ name: image.id })}`);
        write(this.#note, t`Removed.`);
        await this.#load();
        return true;
      },
    });
  }
}
