// Logging in: a form over the page, whose address stays as it was.

import { logIn, me } from "./api.js";
import { h } from "./dom.js";

/** Ask for a user and a password until they are right. */
export function askForLogin(text = "") {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" }, text);
    const user = h("input", { name: "user", autocomplete: "username", required: true, value: me.guest ?? "", spellcheck: "false", autocapitalize: "off" });
    const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
    const button = h("button", { type: "submit", class: "primary" }, "Log in");
    const hint = me.guest === null ? null
      : h("p", { class: "hint" }, `This broker does not ask its clients who they are. From this machine, ${me.guest} may come in with the password ${me.guest}.`);
    const form = h("form", { method: "dialog" },
      h("h1", { id: "login-title" }, "Log in to entrepot"),
      h("label", {}, "User", user),
      h("label", {}, "Password", password),
      problem, button, hint);
    const dialog = h("dialog", { class: "login", "aria-labelledby": "login-title" }, form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      problem.textContent = "";
      try {
        await logIn(user.value, password.value);
        dialog.close();
        dialog.remove();
        resolve();
      } catch (error) {
        problem.textContent = error.status === undefined ? "The broker does not answer." : error.message;
        password.value = "";
        password.focus();
      } finally {
        button.disabled = false;
      }
    });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
    (user.value ? password : user).focus();
  });
}
