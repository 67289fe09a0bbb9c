// Helpers that interpret Kubernetes objects. Pure functions, no page.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, YEAR = 365 * DAY;

/** Milliseconds of an API time, or NaN. */
export const millis = (time) => Date.parse(time ?? "");

/** A duration as kubectl prints it: 95s, 5m12s, 3h4m, 2d, 1y20d. */
export function duration(ms) {
  if (Number.isNaN(ms)) return "unknown";
  const s = Math.max(0, Math.floor(ms / SECOND));
  if (s < 120) return `${s}s`;
  if (ms < 10 * MINUTE) return pair(ms, MINUTE, "m", SECOND, "s");
  if (ms < 3 * HOUR) return `${Math.floor(ms / MINUTE)}m`;
  if (ms < 8 * HOUR) return pair(ms, HOUR, "h", MINUTE, "m");
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)}h`;
  if (ms < 8 * DAY) return pair(ms, DAY, "d", HOUR, "h");
  if (ms < 2 * YEAR) return `${Math.floor(ms / DAY)}d`;
  if (ms < 8 * YEAR) return pair(ms, YEAR, "y", DAY, "d");
  return `${Math.floor(ms / YEAR)}y`;
}

function pair(ms, big, bigName, small, smallName) {
  const n = Math.floor(ms / big), rest = Math.floor((ms % big) / small);
  return rest === 0 ? `${n}${bigName}` : `${n}${bigName}${rest}${smallName}`;
}

const FACTORS = {
  "": 1, m: 1e-3, u: 1e-6, n: 1e-9, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** The value of a Quantity, or NaN. */
export function quantity(text) {
  const m = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$/.exec(text ?? "");
  return m && m[2] in FACTORS ? Number(m[1]) * FACTORS[m[2]] : NaN;
}

/** A Quantity for people: bytes in binary units, the rest as a plain number. */
export function readable(resource, text) {
  const n = quantity(text);
  if (Number.isNaN(n)) return text ?? "–";
  if (!/memory|storage|hugepages/.test(resource)) return String(Math.round(n * 1000) / 1000);
  for (const unit of ["Ti", "Gi", "Mi", "Ki"]) {
    if (n >= FACTORS[unit]) return `${(n / FACTORS[unit]).toFixed(n / FACTORS[unit] < 10 ? 1 : 0)} ${unit}B`;
  }
  return `${n} B`;
}

/** The condition of a type, or undefined. */
export const condition = (obj, type) => obj.status?.conditions?.find((c) => c.type === type);

/** When an event happened last, in milliseconds. */
export function eventTime(ev) {
  return millis(ev.series?.lastObservedTime ?? ev.lastTimestamp ?? ev.eventTime ??
    ev.firstTimestamp ?? ev.metadata.creationTimestamp);
}

export const eventCount = (ev) => ev.series?.count ?? Math.max(ev.count ?? 1, 1);

export function eventObject(ev) {
  const kind = (ev.involvedObject?.kind ?? "").toLowerCase(), name = ev.involvedObject?.name;
  return name ? `${kind}/${name}` : kind;
}

/** Whether the pod is active: neither Succeeded nor Failed. */
export const occupies = (pod) => !["Succeeded", "Failed"].includes(pod.status?.phase);

/**
 * The mood of a pod that kubectl prints with this status and ready column: ok,
 * wait, bad, done or ending.
 */
export function mood(status, ready) {
  if (status === "Terminating") return "ending";
  if (status === "Completed" || status === "Succeeded") return "done";
  if (status === "Running") return allReady(ready) ? "ok" : "wait";
  if (/^(Pending|ContainerCreating|PodInitializing|NotReady|SchedulingGated|Init:\d+\/\d+)$/.test(status)) return "wait";
  return "bad";
}

function allReady(ready) {
  const [n, of] = String(ready).split("/");
  return n === of;
}

/** When a container of the pod was restarted last, in milliseconds; NaN: never. */
export function lastRestart(pod) {
  const all = [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])];
  const ends = all.map((c) => millis(c.lastState?.terminated?.finishedAt)).filter((t) => !Number.isNaN(t));
  return ends.length ? Math.max(...ends) : NaN;
}

/** Why a pod is not healthy, as its status says; may be empty. */
export function trouble(pod) {
  for (const c of [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])]) {
    const message = c.state?.waiting?.message ?? c.state?.terminated?.message;
    if (message) return message;
  }
  const unscheduled = condition(pod, "PodScheduled");
  return pod.status?.message ?? (unscheduled?.status === "False" ? unscheduled.message : "") ?? "";
}

/**
 * The progress of a deletion at `now`: the rest of the grace period in seconds, and
 * its length; null for a pod that is not terminating.
 */
export function grace(pod, now) {
  const end = millis(pod.metadata.deletionTimestamp);
  if (Number.isNaN(end)) return null;
  const total = pod.metadata.deletionGracePeriodSeconds ?? 0;
  return { total, left: Math.min(total, Math.max(0, Math.ceil((end - now) / SECOND))) };
}
