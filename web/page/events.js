// The table of events, newest first.

import { duration, eventCount, eventObject, eventTime } from "./kube.js";
import { Table, clone, compare, setMoment, write } from "./table.js";

const PAGE = 100;

export function eventTable(section, events) {
  return new Table(section, events, {
    row: eventRow,
    order: (a, b) => eventTime(b.obj) - eventTime(a.obj) || compare(b.obj.metadata.name, a.obj.metadata.name),
    text: ({ obj }) => [obj.type, obj.reason, eventObject(obj), obj.message, obj.metadata.namespace].join(" "),
    page: PAGE,
  });
}

function eventRow(first) {
  const { root, parts } = clone("event-row");
  return {
    root,
    item: first,
    update({ obj }) {
      write(parts.type, obj.type ?? "");
      parts.mood.dataset.mood = obj.type === "Warning" ? "wait" : "done";
      write(parts.reason, obj.reason ?? "");
      write(parts.object, eventObject(obj));
      parts.object.title = `in ${obj.metadata.namespace}`;
      write(parts.message, (obj.message ?? "").trim());
      write(parts.count, eventCount(obj));
      setMoment(parts.age, eventTime(obj));
    },
    tick: ({ obj }, at) => write(parts.age, duration(at - eventTime(obj))),
  };
}
