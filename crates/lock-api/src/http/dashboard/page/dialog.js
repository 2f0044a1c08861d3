// Dialogs: to confirm what is done to others, with a reason, and to show a token.

import { el, show } from "./dom.js";

/**
 * Asks, and then does it: `act(reason)` may fail, which is shown, and then it can be tried again. Resolves to whether it was done.
 */
export function confirmed({ title, text, action, danger = true, reason = "required", act }) {
  return open((done) => {
    const input = el("input", { type: "text", name: "reason", maxlength: 1000, required: reason === "required", autocomplete: "off" });
    const failed = el("p", { class: "error", role: "alert", hidden: true });
    const button = el("button", { type: "submit", class: danger ? "primary danger" : "primary" }, action);
    const cancel = el("button", { type: "button", onclick: () => done(false) }, "Cancel");
    const submit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await act(input.value.trim());
        done(true);
      } catch (error) {
        show(failed, error.message);
        failed.hidden = false;
        button.disabled = false;
      }
    };
    const label = el("label", null, "Reason", input, el("small", null, "Kept in the cluster's account of who did what."));
    return el("form", { onsubmit: submit }, el("h2", null, title), el("p", null, text), label, failed,
      el("div", { class: "acts" }, cancel, button));
  });
}

/** Asks for a token. Resolves to it, or to null. */
export function askForToken(detail) {
  return open((done) => {
    const input = el("input", { type: "password", name: "token", required: true, autocomplete: "off", spellcheck: "false" });
    const submit = (event) => {
      event.preventDefault();
      done(input.value.trim());
    };
    return el("form", { onsubmit: submit }, el("h2", null, "This cluster is secured"),
      el("p", null, detail || "Show a token to see what it lets you see."),
      el("label", null, "Token", input, el("small", null, "It stays in this tab, and is gone when you close it.")),
      el("div", { class: "acts" }, el("button", { type: "button", onclick: () => done(null) }, "Not now"),
        el("button", { type: "submit", class: "primary" }, "Show token")));
  }, null);
}

function open(make, otherwise = false) {
  return new Promise((resolve) => {
    const dialog = el("dialog");
    const done = (value) => {
      resolve(value);
      dialog.remove();
    };
    dialog.append(make(done));
    dialog.setAttribute("aria-label", dialog.querySelector("h2").textContent);
    dialog.addEventListener("cancel", () => done(otherwise));
    document.body.append(dialog);
    dialog.showModal();
  });
}
