// The dialog that deletes a pod.

import { deletePod } from "./api.js";
import { write } from "./table.js";

const id = (name) => document.getElementById(name);

/** Returns open(pod). say(text) announces the result to screen readers. */
export function deleteDialog(say) {
  const dialog = id("delete"), form = dialog.querySelector("form");
  const grace = id("delete-grace"), sure = id("force-sure"), go = id("delete-go");
  let pod;

  const forced = () => form.elements.how.value === "force";
  const mark = () => {
    id("force-warning").hidden = !forced();
    form.noValidate = forced();
    go.disabled = forced() && !sure.checked;
    write(go, forced() ? "Delete by force" : "Delete");
  };
  form.addEventListener("change", mark);
  grace.addEventListener("input", () => {
    form.elements.how.value = "grace";
    mark();
  });
  id("delete-cancel").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (ev) => {
    ev.preventDefault();
    go.disabled = true;
    write(id("delete-error"), "");
    try {
      const seconds = forced() ? 0 : Number(grace.value);
      await deletePod(pod, seconds);
      say(seconds ? `${pod.metadata.name} is asked to stop within ${seconds} seconds` : `${pod.metadata.name} is deleted by force`);
      dialog.close();
    } catch (err) {
      write(id("delete-error"), err.message);
    }
    mark();
  });

  return (wanted) => {
    pod = wanted;
    form.reset();
    const { name, namespace, deletionTimestamp, deletionGracePeriodSeconds } = pod.metadata;
    write(id("delete-name"), name);
    write(id("delete-namespace"), namespace);
    write(id("delete-error"), "");
    write(id("delete-legend"), deletionTimestamp
      ? `It is stopping, within ${deletionGracePeriodSeconds} seconds. That can only be made shorter.`
      : "How long may it take to stop?");
    grace.value = Math.max(1, deletionTimestamp ? deletionGracePeriodSeconds : pod.spec.terminationGracePeriodSeconds ?? 30);
    grace.required = true;
    mark();
    dialog.showModal();
    grace.select();
  };
}
