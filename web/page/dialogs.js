// Dialogs made of elements: a form with a title, what it acts on, buttons and the API's
// error.

import { h, write } from "./core.js";
import { t } from "./text.js";

/**
 * Opens a dialog. act(form) runs when the user submits, and the dialog closes unless it
 * throws, whose message it shows. Resolves with act's result, or undefined if cancelled.
 */
export function dialog({ title, what = [], body = [], submit, danger = false, cancel = t`Cancel`, act, ready }) {
  return new Promise((resolve) => {
    const error = h("p", { class: "error", role: "alert" });
    const go = h("button", { type: "submit", class: danger ? "danger" : "main", "data-go": true }, submit);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      what.length ? h("p", { class: "what" }, what) : null, body, error,
      h("div", { class: "buttons" }, h("button", { type: "button", class: "quiet", onclick: () => box.close() }, cancel), submit ? go : null));
    const box = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let result;
    form.addEventListener("submit", async (ev) => {
      ev.preventDefault();
      go.disabled = true;
      write(error, "");
      try {
        result = await act(form);
        box.close();
      } catch (err) {
        write(error, err.message);
      }
      go.disabled = false;
      form.dispatchEvent(new Event("change"));
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
    ready?.(form, go, box);
  });
}

/** Asks for a line of text; undefined if cancelled. */
export const ask = ({ title, label, submit, value = "", type = "text", what, hint }) => dialog({
  title, what, submit,
  body: [h("label", {}, `${label} `, h("input", { name: "text", type, value, autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true })), hint ? h("p", { class: "hint" }, hint) : null],
  act: async (form) => form.elements.text.value.trim(),
  ready: (form) => form.elements.text.select(),
});

/** The name of an object for a dialog. */
export const named = (kind, meta) => [h("strong", { class: "name" }, meta.name),
  meta.namespace ? [" ", t`in ${h("span", { class: "name" }, meta.namespace)}`] : null].flat();
