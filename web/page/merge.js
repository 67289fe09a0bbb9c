// What a user has changed in an object, field by field, against the object that the server has now.
//
// Which lists have keys, and who owns a field, is in managedFields; a path has the names of fields, and for an item of a
// list its keys: ["spec", "containers", {name: "app"}, "image"]. Nothing here asks the server.

const isMap = (v) => v !== null && typeof v === "object" && !Array.isArray(v);

export function equal(a, b) {
  if (a === b) return true;
  if (Array.isArray(a) !== Array.isArray(b) || a === null || b === null || typeof a !== "object" || typeof b !== "object") return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => Object.hasOwn(b, k) && equal(a[k], b[k]));
}

// --- trees of fields, as in managedFields ---

/** The fields of all entries in one tree. */
export const tree = (entries) => entries.reduce((all, e) => join(all, e.fieldsV1 ?? {}), {});

function join(a, b) {
  const out = { ...a };
  for (const [k, v] of Object.entries(b)) out[k] = Object.hasOwn(out, k) ? join(out[k], v) : v;
  return out;
}

const keysOf = (node) => Object.keys(node).filter((k) => k.startsWith("k:")).map((k) => JSON.parse(k.slice(2)));
const fits = (item, keys) => isMap(item) && Object.entries(keys).every(([k, v]) => equal(item[k], v));
const below = (node, step) => node?.[isMap(step) ? Object.keys(node).find((k) => k.startsWith("k:") && equal(JSON.parse(k.slice(2)), step)) : `f:${step}`];
/** A field that is owned as a whole has nothing below it. */
const isWhole = (node) => Boolean(node) && Object.keys(node).length === 0;

/** Whether the fields have the one at the path, or one around it as a whole. */
function has(node, path) {
  for (const step of path) {
    node = below(node, step);
    if (!node || isWhole(node)) return Boolean(node);
  }
  return true;
}

/** The entries of managedFields that own the field. */
export const owners = (entries, path) => entries.filter((e) => has(e.fieldsV1 ?? {}, path));

/** The part of a value that the fields have. */
function pick(value, node) {
  if (value === undefined || isWhole(node)) return value;
  if (Array.isArray(value)) {
    const items = keysOf(node).map((keys) => [value.find((v) => fits(v, keys)), keys]).filter(([item]) => item);
    const values = Object.keys(node).filter((k) => k.startsWith("v:")).map((k) => JSON.parse(k.slice(2))).filter((v) => value.some((w) => equal(v, w)));
    return [...items.map(([item, keys]) => ({ ...keys, ...pick(item, below(node, keys)) })), ...values];
  }
  if (!isMap(value)) return value;
  const names = Object.keys(node).filter((k) => k.startsWith("f:")).map((k) => k.slice(2));
  return Object.fromEntries(names.map((k) => [k, pick(value[k], node[`f:${k}`])]).filter(([, v]) => v !== undefined));
}

// --- values at paths ---

const child = (value, step) => (isMap(step) ? (Array.isArray(value) ? value.find((v) => fits(v, step)) : undefined) : isMap(value) && Object.hasOwn(value, step) ? value[step] : undefined);
export const at = (value, path) => path.reduce(child, value);

/** Sets the value at the path, or removes it if it is undefined. */
function put(root, path, value) {
  let where = root;
  path.forEach((step, i) => {
    const last = i === path.length - 1, list = Array.isArray(where);
    let key = list ? where.findIndex((v) => fits(v, step)) : step;
    if (list && key < 0) key = where.length;
    if (last && value === undefined) {
      if (!list) delete where[key];
      else where.splice(key, 1);
    } else if (last) where[key] = structuredClone(value);
    else where = where[key] ??= list ? { ...step } : isMap(path[i + 1]) ? [] : {};
  });
}

/** A path as the server writes it: .spec.containers[name="app"].image */
export const spell = (path) => path.map((step) => (isMap(step) ? `[${Object.entries(step).map(([k, v]) => `${k}=${JSON.stringify(v)}`).join(",")}]` : `.${step}`)).join("");

// --- edits ---

/** The fields in which an object was edited: { path, was, is, applies }. applies: server-side apply can do it. */
export function edits(before, after, node, path = [], out = []) {
  if (equal(before, after)) return out;
  const names = Array.isArray(before) && Array.isArray(after) ? Object.keys(keysOf(node ?? {})[0] ?? {}) : [];
  if (isMap(before) && isMap(after) && !isWhole(node)) {
    for (const k of new Set([...Object.keys(before), ...Object.keys(after)])) edits(before[k], after[k], below(node, k), [...path, k], out);
  } else if (names.length && inOrder(before, after, names)) {
    for (const keys of [...before, ...after.filter((v) => !child(before, keysIn(v, names)))].map((v) => keysIn(v, names))) {
      edits(child(before, keys), child(after, keys), below(node, keys), [...path, keys], out);
    }
  } else {
    out.push({ path, was: before, is: after, applies: after !== undefined && (before === undefined || isWhole(node) || typeof before !== "object") });
  }
  return out;
}

const keysIn = (item, names) => Object.fromEntries(names.filter((k) => Object.hasOwn(item, k)).map((k) => [k, item[k]]));

/** Whether the items that stay have kept their order, with new ones behind them; no two may have the same keys. */
function inOrder(before, after, names) {
  const id = (v) => JSON.stringify(names.map((k) => v?.[k])), [a, b] = [before.map(id), after.map(id)];
  if (new Set(a).size < a.length || new Set(b).size < b.length) return false;
  const kept = a.filter((v) => b.includes(v));
  return equal(kept, b.slice(0, kept.length));
}

/** What of the edits is left to do on an object that may have changed since. */
export const left = (list, live) => list.filter((e) => !equal(at(live, e.path), e.is));

/**
 * The edits that somebody else may not want: { edit, by, now, applied }. The field has changed since it was read, or it
 * belongs to a manager that applies it again, as a GitOps tool does. Fields that were only set, with kubectl edit for
 * instance or by a controller, may be edited.
 */
export function conflicts(list, live, self) {
  const others = (live.metadata.managedFields ?? []).filter((e) => e.manager !== self);
  return list.flatMap((edit) => {
    const by = owners(others, edit.path).sort((a, b) => (a.time < b.time ? 1 : -1)), applied = by.find((e) => e.operation === "Apply");
    const now = at(live, edit.path), moved = !equal(now, edit.was);
    return moved || applied ? [{ edit, now, applied: !moved, by: (moved ? by[0] : applied)?.manager ?? "" }] : [];
  });
}

/** The object with the edits. */
export function merged(list, live) {
  const out = structuredClone(live);
  for (const { path, is } of list) put(out, path, is);
  return out;
}

/** The configuration that applies the edits: with what self has applied before, and nothing else. */
export function configuration(list, live, self) {
  const { apiVersion, kind, metadata: { name, namespace, resourceVersion, managedFields = [] } } = live;
  const own = tree(managedFields.filter((e) => e.manager === self && e.operation === "Apply" && !e.subresource));
  const out = Object.keys(own).length ? pick(live, own) : {};
  for (const { path, is } of list) put(out, path, is);
  return { ...out, apiVersion, kind, metadata: { ...out.metadata, name, namespace, resourceVersion } };
}
