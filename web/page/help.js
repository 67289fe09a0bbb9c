// The help, with a search over it and the documents, and the command line for kinds. Both work offline.

import { address, findKind, h, kinds, load } from "./core.js";
import { dialog } from "./dialogs.js";
import { t } from "./text.js";

/** Everything that the help says: [title, text, keys]. */
const PAGES = [
  [t`Move`, t`The next and the previous row; the first and the last one. Enter opens the row.`, "j k g G Enter"],
  [t`Overview`, t`Opens what is wrong now and why, what nodes use, warnings, and what changed lately.`, "o"],
  [t`Filter and search`, t`Puts the focus into the filter of a list: words match names, labels and every column. Elsewhere it opens a search over all kinds.`, "/"],
  [t`Filter by label or field`, t`label:app=web and field:status.phase=Running (short: l: and f:) are selectors that the server applies. Several of them are combined. Which fields a kind has is in the API's documentation; metadata.name always works.`],
  [t`Go to a kind`, t`Opens a command line for kinds: pods, po, deploy, svc, or the name of a custom kind; a namespace may follow: po kube-system.`, ":"],
  [t`All namespaces`, t`Shows the list in all namespaces.`, "0"],
  [t`Back`, t`From a part to the object, from the object to its list; in a list it clears the filter.`, "Esc"],
  [t`Describe`, t`Opens the object of the row: what it is, what it owns, its events.`, "d Enter"],
  [t`Logs`, t`Opens the logs of a pod, or of all pods of a workload: followed, searched, paused, of the previous run, with times; at most 5,000 lines are kept here, a download has the whole log of a container.`, "l"],
  [t`Terminal`, t`Opens a shell in a running container, or a debug container beside it if the image has no shell. Ctrl-Shift-C copies, Shift-Tab leaves the terminal.`, "s"],
  [t`Edit YAML`, t`Shows the object as YAML. Review changes asks the server for a dry run and shows the difference; Apply writes the fields that you edited, by server-side apply as monopod-page. Fields that somebody has changed meanwhile, or that a GitOps tool applies, are listed one by one and you decide.`, "e y"],
  [t`Select`, t`Selects the row with the focus; the selected rows are scaled, restarted or deleted together.`, "x"],
  [t`Delete`, t`Opens the dialog for the row with the focus, or for the object that is shown. A pod's grace period is shown while it runs.`, "Ctrl-d"],
  [t`Help`, t`Opens this help. Its search also finds what the documents of this version say.`, "?"],
  [t`Create`, t`Button Create in a list: YAML or JSON of one or more objects, also by dropping files and folders. They are checked with a dry run first, Namespaces and definitions before what needs them. An error leads to its line.`],
  [t`Columns and order`, t`A click on a column's head sorts by it, a second one reverses. All columns shows those that kubectl get -o wide shows.`],
  [t`Addresses`, t`The address of a list, an object or a part of it can be sent to somebody: it contains the kind, namespace, filter and order, never the token.`],
  [t`Workloads`, t`Scale, restart, pause and resume a rollout, and return to a revision (Revisions shows two of them side by side).`],
  ["CronJobs", t`Run now creates a Job from its template; Suspend stops the schedule.`],
  [t`Nodes`, t`Cordon keeps new pods away; Drain also evicts those that run there, one after the other, within their disruption budgets.`],
  [t`What is not well`, t`Lists show a reason: a pod that crashes, or is not ready for longer than a minute; a rollout that does not progress; a condition that is False. The object's page says the cause.`],
  [t`Images`, t`A node's page lists its images with who uses them. Admins import archives by dropping them there, and remove images that nothing uses.`],
  [t`Database and certificates`, t`The page of the server's node shows admins the size of the database, its snapshots, and until when the certificates are valid.`],
  [t`Certificates`, t`A CertificateSigningRequest is approved or denied on its page.`],
  ["Secrets", t`Values are hidden until you ask for them.`],
  [t`Exit codes`, t`0: finished. 1: the program reported an error. 126, 127: the command cannot be executed, or was not found. 128 + n: signal n; 137 is SIGKILL (often out of memory), 139 SIGSEGV, 143 SIGTERM.`],
  ["CrashLoopBackOff", t`The container ends again and again, and is started after growing pauses. Its page shows how it ended; Logs with Previous run shows what it said.`],
  ["ImagePullBackOff", t`The image cannot be pulled: its name, the registry or the network. Without a network, copy the image into <data-dir>/images.`],
  ["Pending", t`No node takes the pod. Its page shows the scheduler's reason: not enough CPU or memory, a taint, a volume.`],
  [t`Graphs`, t`Use of CPU and memory in the last hour or day. Nodes keep the points of a day in memory, for those who may use the node's API; others see what was since the page was opened.`],
  ["Helm", t`Helm releases, in the menu below Workloads, shows what Helm has installed: values, notes, objects and history. A release returns to an earlier revision there.`],
  [t`Permissions`, t`The page shows what your token may list, and only the buttons that it may use. Who may do what, in the menu below Access, answers from all roles and bindings.`],
  [t`Token`, t`It is kept in this tab's sessionStorage and sent as a header, never as a cookie. Sign out forgets it.`],
];

/** Opens the help: its topics, and below them what the documents say about the words that are searched for. */
export function help() {
  const list = h("dl", { class: "help" }), found = h("div", { class: "documents" }), none = h("p", { class: "hint", role: "status" });
  let asked = "";
  const open = (parts, all, from, target) => { // where a link of a document leads
    const found2 = parts.linked(all, from, target);
    list.replaceChildren();
    found.replaceChildren(h("p", {}, h("button", { type: "button", class: "quiet", onclick: () => draw(asked) }, t`Back to what was found`)), ...found2.map((s) => section(s, [], parts, all, open)));
    for (const box of found.querySelectorAll(found2.length > MOST_OPEN ? "details:first-of-type" : "details")) box.open = true;
    found.parentElement.scrollTop = 0;
    found.querySelector("summary").focus();
  };
  const draw = async (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    asked = text;
    const topics = PAGES.filter((page) => words.every((w) => page.join(" ").toLowerCase().includes(w)));
    list.replaceChildren(...topics.map(([title, words2, keys]) => h("div", {}, h("dt", {}, title, " ", (keys ?? "").split(" ").filter(Boolean).map((k) => h("kbd", {}, k))), h("dd", {}, words2))));
    if (text.trim().length < SHORTEST) {
      found.replaceChildren();
      none.textContent = topics.length ? "" : t`Nothing found.`;
      return;
    }
    try {
      const parts = await load("documents.js"), all = await parts.documents(), hits = parts.search(all, words);
      if (asked !== text) return; // another one was typed meanwhile
      found.replaceChildren(...(hits.length ? [h("h3", {}, t`From the documents`)] : []), ...hits.map((s) => section(s, words, parts, all, open)));
      none.textContent = topics.length || hits.length ? "" : t`Nothing found.`;
    } catch (err) {
      none.textContent = t`The documents cannot be read: ${err.message}`;
    }
  };
  draw("");
  dialog({
    title: t`Help`, cancel: t`Close`,
    body: [h("label", {}, t`Search`, " ", h("input", { type: "search", name: "text", autocomplete: "off", placeholder: t`this page, and the documents`, oninput: (ev) => draw(ev.target.value) })), none,
      h("div", { class: "help-box", tabindex: "0", role: "group", "aria-label": t`Topics` }, list, found)],
    ready: (form) => form.elements.text.focus(),
    act: async () => true,
  });
}

const SHORTEST = 2; // characters of what the documents are searched for
const MOST_OPEN = 4; // sections that a link leads to; of more the first one is open

/** section is one of a document, which opens where it was found. Its links lead to other sections, by open, or to other sites. */
function section(s, words, parts, all, open) {
  const link = (text, target) => {
    if (/^https?:/.test(target)) return h("a", { href: target, target: "_blank", rel: "noopener noreferrer" }, text);
    if (!parts.linked(all, s.file, target).length) return text;
    return h("a", { href: location.hash || "#/", onclick: (ev) => {
      ev.preventDefault();
      open(parts, all, s.file, target);
    } }, text);
  };
  const box = h("details", { ontoggle: () => box.open && box.children.length === 1 && box.append(...parts.body(s, words, link)) },
    h("summary", {}, h("strong", {}, s.title), " ", h("span", { class: "muted" }, s.file), h("p", {}, parts.snippet(s, words))));
  return box;
}

/** Opens the command line: a kind, and a namespace after it. */
export function command(namespace) {
  const options = kinds.filter((k) => k.verbs.includes("list")).flatMap((k) => [k.name, ...k.short]).sort();
  return dialog({
    title: t`Go to`, submit: t`Go`,
    body: [h("label", {}, t`Kind`, " ", h("input", { name: "text", list: "kinds", placeholder: "po, deploy, svc kube-system…", autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true })),
      h("datalist", { id: "kinds" }, options.map((o) => h("option", { value: o })))],
    ready: (form) => form.elements.text.focus(),
    act: async (form) => {
      const [word, where] = form.elements.text.value.trim().split(/\s+/), kind = findKind(word);
      if (!kind) throw new Error(t`This server has no kind "${word}".`);
      location.hash = address(kind, "", "", "", { ns: kind.namespaced ? where ?? namespace : "" });
      return true;
    },
  });
}
