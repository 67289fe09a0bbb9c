// What a NetworkPolicy selects, opens and closes, in words and links.

import { address, core, h, may } from "./core.js";
import { selects } from "./links.js";
import { filterOf, selectorText } from "./object.js";
import { link, miniTable } from "./sections.js";
import { t } from "./text.js";

/** labelled is a selector as text, and as a link to what it selects if a filter can say the same; "" for one that selects everything. */
function labelled(selector, kind, ns) {
  const text = selectorText(selector ?? {}), q = filterOf(text);
  return text && (q ? h("a", { class: "name", href: address(kind, "", "", "", { ns, q }) }, text) : h("span", { class: "name" }, text));
}

const join = (list, by) => list.flatMap((part, i) => [i ? by : "", part]).flat();

function peer({ ipBlock, podSelector, namespaceSelector }, namespace) {
  if (ipBlock) return ipBlock.except?.length ? t`addresses ${ipBlock.cidr} except ${ipBlock.except.join(", ")}` : t`addresses ${ipBlock.cidr}`;
  const pods = labelled(podSelector, core("pods"), namespaceSelector ? "" : namespace), spaces = labelled(namespaceSelector, core("namespaces"), "");
  if (!namespaceSelector) return pods ? t`pods ${pods} in namespace ${namespace}` : t`all pods in namespace ${namespace}`;
  if (!spaces) return pods ? t`pods ${pods} in all namespaces` : t`all pods in all namespaces`;
  return pods ? t`pods ${pods} in namespaces ${spaces}` : t`all pods in namespaces ${spaces}`;
}

function port({ protocol = "TCP", port: number, endPort }) {
  if (number === undefined) return t`any ${protocol} port`;
  return endPort ? t`${protocol} ports ${number} to ${endPort}` : t`${protocol} port ${number}`;
}

/** direction says what rules open and close. peers and words are those of ingress or egress. */
function direction(title, rules, namespace, peers, words) {
  const open = rules?.some((r) => !r[peers]?.length && !r.ports?.length);
  const said = !rules ? words.free : open ? words.open : !rules.length ? words.shut : null;
  return h("div", { class: "card" }, h("h4", {}, title), said ? h("p", {}, said) : [
    h("ul", { class: "plainly" }, rules.map((r) => h("li", {}, words.way(r[peers]?.length ? join(r[peers].map((p) => peer(p, namespace)), t` or `) : t`anywhere`, r.ports?.length ? join(r.ports.map(port), t` or `) : t`any port`)))),
    h("p", { class: "muted" }, words.rest)]);
}

function allows({ metadata: { namespace }, spec }) {
  const types = spec.policyTypes ?? ["Ingress", ...(spec.egress ? ["Egress"] : [])], rules = (type, list) => (types.includes(type) ? list ?? [] : null);
  return h("div", { class: "cards" },
    direction("Ingress", rules("Ingress", spec.ingress), namespace, "from", { way: (from, ports) => t`from ${from}, ${ports}`, free: t`This policy does not limit what reaches these pods.`, open: t`Everything may reach these pods.`,
      shut: t`Everything to these pods is closed.`, rest: t`Everything else to these pods is closed.` }),
    direction("Egress", rules("Egress", spec.egress), namespace, "to", { way: (to, ports) => t`to ${to}, ${ports}`, free: t`This policy does not limit what these pods reach.`, open: t`These pods may reach everything.`,
      shut: t`Everything from these pods is closed.`, rest: t`Everything else from these pods is closed.` }));
}

/** policy adds what a NetworkPolicy allows, the pods that it selects, and the other policies of these pods. */
export function policy(s, obj, kind) {
  const pods = core("pods"), { namespace, uid } = obj.metadata;
  let is = obj, selected = null, others = null;
  s.add(t`Allows`, (changed) => {
    is = changed;
    selected?.touch();
    return allows(is);
  }, (o) => o.spec);
  if (!may("list", pods, { namespace })) return;
  const mine = (row) => selects(is.spec.podSelector ?? {}, row.obj.metadata.labels);
  selected = s.live(t`Selected pods`, { kind: pods, namespace }, (feed) => {
    others?.touch();
    return miniTable(pods, feed, { only: mine }) ?? (feed.state === "live" ? h("p", { class: "muted" }, t`It selects no pod.`) : null);
  });
  if (!may("list", kind, { namespace })) return;
  others = s.live(t`Other policies of these pods`, { kind, namespace, full: true }, (feed) => {
    const labels = selected.items.filter(mine).map((row) => row.obj.metadata.labels);
    const also = feed.items.map((row) => ({ obj: row.obj, n: labels.filter((l) => selects(row.obj.spec.podSelector ?? {}, l)).length })).filter(({ obj: o, n }) => n && o.metadata.uid !== uid);
    return also.length ? h("div", {}, h("ul", { class: "plainly" }, also.map(({ obj: o, n }) => h("li", {}, link(kind, namespace, o.metadata.name), " ", t`selects ${n} of them, and limits: ${(o.spec.policyTypes ?? []).join(", ")}`))),
      h("p", { class: "muted" }, t`What one of the policies of a pod opens is open.`)) : null;
  });
}
