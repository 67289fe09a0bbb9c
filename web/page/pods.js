// The table of pods.

import { duration, grace, lastRestart, millis, mood, trouble } from "./kube.js";
import { Table, byName, clone, setMoment, write } from "./table.js";

const labels = (obj) => Object.entries(obj.metadata.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(" ");

const DELETE = { verb: "delete", group: "", resource: "pods" };

/**
 * remove(pod) is called when the user deletes one; may is that of Permissions.
 */
export function podTable(section, pods, remove, may) {
  return new Table(section, pods, {
    row: (item) => podRow(item, remove, may),
    order: byName,
    text: ({ obj, printed }) =>
      [obj.metadata.name, obj.metadata.namespace, printed.Status, printed.IP, printed.Node, labels(obj)].join(" "),
  });
}

function podRow(first, remove, may) {
  const { root, parts } = clone("pod-row");
  const row = { root, item: first };
  const { name, namespace, creationTimestamp } = first.obj.metadata;
  write(parts.name, name);
  write(parts.namespace, namespace);
  setMoment(parts.age, millis(creationTimestamp));
  parts.delete.setAttribute("aria-label", `Delete pod ${name}`);
  parts.delete.addEventListener("click", () => remove(row.item.obj));
  row.update = ({ obj, printed }) => {
    parts.delete.hidden = !may(DELETE, namespace);
    write(parts.ready, printed.Ready);
    write(parts.status, printed.Status);
    write(parts.ip, printed.IP);
    write(parts.node, printed.Node);
    write(parts.restarts, String(printed.Restarts).split(" ")[0]);
    setMoment(parts.restarted, lastRestart(obj));
    parts.mood.dataset.mood = mood(printed.Status, printed.Ready);
    parts.mood.title = trouble(obj);
  };
  row.tick = ({ obj, printed }, at) => {
    write(parts.age, duration(at - millis(creationTimestamp)));
    const last = lastRestart(obj);
    write(parts.restarted, Number.isNaN(last) || printed.Restarts === "0" ? "" : `(${duration(at - last)} ago)`);
    tickGrace(parts, grace(obj, at));
  };
  return row;
}

/** tickGrace shows the rest of the grace period, then what the deletion waits for. */
function tickGrace(parts, state) {
  parts.grace.hidden = state === null;
  if (state === null) return;
  parts.bar.hidden = state.left === 0;
  parts.bar.max = Math.max(state.total, 1);
  parts.bar.value = state.left;
  write(parts.left, state.left > 0 ? `${state.left} s left` : "grace over");
  parts.grace.title = state.left > 0
    ? `It has ${state.total} s to stop, then its containers are killed`
    : "Waiting for the node to say that its containers are dead";
}
