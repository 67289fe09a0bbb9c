// The page that one lands on: what is wrong and why, what the machines use, warnings, what changed lately, and how the
// server is.

import { address, ago, apiPath, bytes, compare, condition, core, duration, findKind, getJSON, h, isAdmin, may, millis, moodOfEnd, moodly, now, read, tickAges } from "./core.js";
import { Feed, home, links } from "./live.js";
import { Sections, facts, miniTable } from "./sections.js";
import { t } from "./text.js";
import { POLL, ofNode, shows } from "./use.js";
import { said } from "./why.js";

const REPORT = 60, SERVER = 300; // seconds between two questions
const PAUSE = 1500; // milliseconds after a change that may have changed what is wrong
const MOST_NODES = 6;

/** Events that say what every start of a pod or a node says. */
const USUAL = ["Scheduled", "Pulling", "Pulled", "Created", "Started", "SuccessfulCreate", "Completed", "Starting", "RegisteredNode",
  "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];

export class Overview {
  #main;
  #feeds = [];
  #sections;

  constructor(main) {
    const body = h("div", { class: "body overview" });
    this.#main = main;
    main.replaceChildren(h("h2", { id: "title", tabindex: "-1" }, t`Overview`), body);
    this.#sections = new Sections(body, (query, changed) => {
      const feed = new Feed(query, changed);
      this.#feeds.push(feed);
      return feed;
    });
    this.#draw(this.#sections);
  }

  close() {
    this.#feeds.forEach((feed) => feed.close());
    this.#sections.close();
  }

  tick() {
    tickAges(this.#main);
  }

  #draw(s) {
    const nodes = core("nodes"), events = core("events"), where = may("list", core("pods")) ? "" : home.namespace;
    const ask = s.poll(t`What is wrong`, REPORT, () => wrong(where));
    let timer = 0;
    const again = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        ask();
      }, PAUSE);
    };
    if (nodes && may("list", nodes)) {
      s.poll(t`Nodes`, POLL, async () => machines((await getJSON(apiPath(nodes))).items));
    }
    if (events && may("list", events, { namespace: where || home.namespace })) {
      s.live(t`Warnings`, { kind: events, namespace: where, fields: "type=Warning" }, (feed) => {
        again();
        return miniTable(events, feed, { newest: true, skip: ["Type"], more: { q: "field:type=Warning" }, most: 8 });
      });
      s.live(t`Lately`, { kind: events, namespace: where, fields: ["type=Normal", ...USUAL.map((r) => `reason!=${r}`)].join(",") }, (feed) => {
        again();
        return miniTable(events, feed, { newest: true, skip: ["Type"], more: {}, most: 8 });
      });
    }
    if (isAdmin()) s.poll(t`Server`, SERVER, server);
    links.dispatchEvent(new Event("change")); // also where there is nothing to follow
  }
}

/** wrong is everything that is wrong, the worst first, or the first steps in an empty cluster. */
async function wrong(namespace) {
  const report = await getJSON(`/monopod/why${namespace ? `?${new URLSearchParams({ namespace })}` : ""}`);
  const { problems, more = 0, hidden = [], pods = {} } = report, total = Object.values(pods).reduce((a, b) => a + b, 0);
  return h("div", { class: "cards" }, problems.map(problem),
    more ? h("p", { class: "hint" }, t`${more} more objects look wrong.`) : null,
    problems.length ? null : h("p", {}, moodly("ok", t`Nothing is known to be wrong.`)),
    total ? h("p", { class: "muted" }, t`Pods: ${counts(pods)}`) : hidden.length ? null : firstSteps(),
    hidden.length ? h("p", { class: "hint" }, t`You do not see everything: ${hidden[0]}`) : null);
}

function counts(pods) {
  const kind = core("pods");
  return Object.entries(pods).sort((a, b) => compare(b[1], a[1])).flatMap(([phase, n], i) => [i ? ", " : "",
    h("a", { href: address(kind, "", "", "", { q: `field:status.phase=${phase}` }) }, `${n} ${phase.toLowerCase()}`)]);
}

function problem({ resource, kind, namespace = "", name, ...answer }) {
  const k = findKind(resource), title = `${kind} ${name}`;
  return h("article", { class: "card why", "aria-label": title },
    h("header", {}, moodly("bad", k ? h("a", { href: address(k, namespace, name) }, title) : title), namespace ? h("span", { class: "muted" }, t`in ${namespace}`) : null),
    said(answer, namespace));
}

function firstSteps() {
  const nodes = core("nodes"), step = (title, text) => h("li", {}, h("strong", {}, title), " ", text);
  return h("section", { class: "card", "aria-label": t`First steps` }, h("h4", {}, t`First steps`), h("ol", {},
    step(t`Run something.`, t`${h("a", { href: "#/create?example=web" }, t`Create a Deployment`)}, or paste or drop files with YAML there.`),
    step(t`Bring images.`, t`Without a registry, import archives on the ${nodes ? h("a", { href: address(nodes) }, t`page of the node`) : t`page of the node`}.`),
    step(t`Look around.`, t`Every object says why it is as it is; / filters, : opens any kind, ? shows all keys and searches the documents.`)));
}

/** machines are the nodes, with what they use. */
async function machines(nodes) {
  const kind = core("nodes");
  const drawn = await Promise.all(nodes.slice(0, MOST_NODES).map(async (node) => {
    const [mood, words] = condition(node, "Ready")?.status !== "True" ? ["bad", t`not ready`] : node.spec.unschedulable ? ["wait", t`cordoned: it takes no new pods`] : ["ok", t`ready`];
    return h("section", { class: "machine", "aria-label": node.metadata.name }, h("p", {}, moodly(mood, h("a", { href: address(kind, "", node.metadata.name) }, node.metadata.name)), h("span", { class: "muted" }, ` ${words}`)),
    shows("nodes") ? await ofNode(node, true) : null);
  }));
  return h("div", { class: "cards" }, drawn, nodes.length > MOST_NODES ? h("p", { class: "hint" }, h("a", { href: address(kind) }, t`${nodes.length - MOST_NODES} more nodes`)) : null);
}

const LITTLE = 0.1; // of a disk

/** server is what monopod status says about the process. */
async function server() {
  const [about, certificates, health] = await Promise.all([getJSON("/monopod/status"), getJSON("/monopod/certs"), read("GET", "/readyz?verbose").catch((err) => err.message)]);
  const { disk, state } = about, failed = health.split("\n").filter((line) => /^\[[-!]\]/.test(line)), copy = state.lastSnapshot;
  const first = certificates.map((c) => ({ name: c.Name, left: millis(c.NotAfter) - now() })).sort((a, b) => a.left - b.left)[0];
  return facts([
    [t`Version`, `${about.version}, Kubernetes ${about.kubernetes}`],
    [t`Started`, ago(millis(about.started), true)],
    [t`Checks`, failed.length ? h("ul", { class: "plainly" }, failed.map((line) => h("li", {}, moodly(line.startsWith("[-]") ? "bad" : "wait", line.slice(3))))) : moodly("ok", t`all passed`)],
    [t`Address`, h("span", { class: "name" }, about.external || about.address)],
    [t`Disk`, disk ? moodly(disk.free < disk.total * LITTLE ? "bad" : "ok", t`${bytes(disk.free)} of ${bytes(disk.total)} free`) : ""],
    [t`Database`, [state.kind === "etcd" ? "etcd" : t`one file`, state.bytes && bytes(state.bytes)].filter(Boolean).join(", ")],
    [t`Snapshot`, copy ? [h("span", { class: "name" }, copy.name), " ", ago(millis(copy.time), true)] : state.kind === "file" ? t`none yet` : ""],
    [t`Certificates`, first ? moodly(moodOfEnd(first.left), first.left < 0 ? t`${first.name} has expired` : t`the first one ends in ${duration(first.left)}: ${first.name}`) : ""],
  ]);
}
