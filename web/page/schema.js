// What a schema of the server's OpenAPI v3 documents knows about a field: its type, its description, the names below it.
// schemas are the components.schemas of a document. Nothing here asks the server.

import { same } from "./fields.js";

const KINDS = "x-kubernetes-group-version-kind", OPEN = "x-kubernetes-preserve-unknown-fields", EMBEDDED = "x-kubernetes-embedded-resource";
const OF_ALL = ["apiVersion", "kind", "metadata"];

/** rootOf is the schema of a kind, or undefined. */
export function rootOf(schemas, { apiVersion, kind }) {
  const [version, group = ""] = apiVersion.split("/").reverse();
  return Object.values(schemas).find((s) => s[KINDS]?.some((k) => k.kind === kind && k.version === version && k.group === group));
}

/** A schema with what it refers to; what it says itself counts. */
function resolved(schemas, schema) {
  const { $ref, allOf = [], ...own } = schema;
  const others = $ref ? [schemas[$ref.split("/").at(-1)] ?? {}] : allOf;
  return others.length ? Object.assign({}, ...others.map((s) => resolved(schemas, s)), own) : own;
}

/** schemaAt is the schema at a path, null where nothing is known. */
export function schemaAt(schemas, root, path) {
  let at = resolved(schemas, root);
  for (const step of path) {
    const next = typeof step === "number" ? at.items : Object.hasOwn(at.properties ?? {}, step) ? at.properties[step] : at.additionalProperties;
    if (typeof next !== "object" || next === null) return null;
    at = resolved(schemas, next);
  }
  return at;
}

/** Whether the server knows all fields that there can be. */
const isClosed = (at) => Boolean(at?.properties) && !at.additionalProperties && !at[OPEN];

/** unknown are those of the fields that the server does not know; what is below one is not among them. */
export const unknown = (schemas, root, fields) => fields.filter(({ path }) => {
  const name = path.at(-1), parent = typeof name === "string" && name !== "<<" && schemaAt(schemas, root, path.slice(0, -1));
  return parent && isClosed(parent) && !Object.hasOwn(parent.properties, name) && !(parent[EMBEDDED] && OF_ALL.includes(name));
});

/** A type in a word: string, []object. */
function typeOf(schemas, at) {
  if (at["x-kubernetes-int-or-string"]) return "integer or string";
  return at.type === "array" && at.items ? `[]${typeOf(schemas, resolved(schemas, at.items))}` : at.type ?? "";
}

const valuesOf = (at) => (at.enum ?? (at.type === "boolean" ? [true, false] : [])).filter((v) => v !== null && v !== "").map(String);

/**
 * completions are what may be written at a place: { label, detail, info, insert, required, more }. insert: the text,
 * which begins a line for what is below the field; more: it is followed by one of several values. taken: the fields of the document.
 */
export function completions(schemas, root, place, taken) {
  let at = schemaAt(schemas, root, place.path), dash = "";
  if (at && !place.value && !place.item && at.type === "array" && at.items) [at, dash] = [resolved(schemas, at.items), "- "];
  if (!at) return [];
  const values = valuesOf(at).map((label) => ({ label, insert: dash + label, detail: "", info: place.value ? at.description ?? "" : "", required: false, more: false }));
  if (values.length || place.value) return values;
  const here = dash ? [] : taken.filter(({ path }) => path.length > place.path.length && same(path.slice(0, -1), place.path)).map(({ path }) => path.at(-1));
  const column = " ".repeat(place.column + dash.length);
  return Object.entries(at.properties ?? {}).filter(([name]) => !here.includes(name)).map(([name, schema]) => {
    const field = resolved(schemas, schema), type = typeOf(schemas, field);
    const below = field.properties || field.additionalProperties ? `\n${column}  ` : type.startsWith("[]") ? `\n${column}- ` : " ";
    return { label: name, insert: `${dash}${name}:${below}`, detail: type, info: field.description ?? "", required: Boolean(at.required?.includes(name)), more: valuesOf(field).length > 0 };
  });
}
