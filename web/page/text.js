// The language of the page. English is the source: t`Delete ${name}` is looked up as "Delete {0}" in the table of the
// browser's language, text.de.js for instance, and shown as it stands where the table has nothing.
//
// What the server writes (names, columns, events, causes) stays as it is.

const LANGUAGES = ["de", "fr", "ja", "zh"];

const base = (tag) => tag.split("-")[0].toLowerCase();

/** The first language of the browser that the page has, as de-CH; English if it has none. */
export const locale = navigator.languages.find((tag) => base(tag) === "en" || LANGUAGES.includes(base(tag))) ?? "en";

const language = base(locale);

// Modules that use t wait for the table, so that it may be used in their constants.
const table = language === "en" ? {} : await import(`./text.${language}.js`).then((m) => m.default, () => ({}));

/** t is a text in the user's language: a string, or a list of texts and nodes if a value is a node. */
export function t(strings, ...values) {
  const key = strings.reduce((text, next, i) => `${text}{${i - 1}}${next}`);
  const parts = (table[key] ?? key).split(/\{(\d+)\}/).map((part, i) => (i % 2 ? values[part] : part));
  return values.some((v) => v instanceof Node || Array.isArray(v)) ? parts : parts.join("");
}

/** translate is t for the texts that an element has already: those of the HTML. */
export function translate(root) {
  document.documentElement.lang = language;
  const nodes = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  const known = (text) => table[text.replace(/\s+/g, " ").trim()];
  for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) {
      if (known(node.data)) node.data = node.data.replace(/\S(?:[\s\S]*\S)?/, () => known(node.data));
      continue;
    }
    for (const name of ["aria-label", "title", "placeholder"]) if (known(node.getAttribute(name) ?? "")) node.setAttribute(name, known(node.getAttribute(name)));
  }
}
