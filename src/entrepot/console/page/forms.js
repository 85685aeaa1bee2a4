// Dialogs: forms of a few fields, and questions. The browser's own <dialog> keeps the focus inside.

import { h } from "./dom.js";

const TYPING_MS = 250;
let numbers = 0;

/** Say shortly, at the edge of the page, what was done or went wrong. */
export function toast(text, kind = "good") {
  const shown = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), kind === "bad" ? 9000 : 4000);
}

/** Do something that may be refused, and say so. Return whether it was done. */
export async function attempt(work, done) {
  try {
    const result = await work();
    if (done) toast(typeof done === "function" ? done(result) : done);
    return true;
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, "bad");
    return false;
  }
}

/**
 * Show a form. `fields` are {name, label, type, value, hint, options, required}; `submit` gets the
 * values and may throw: then the form stays, with what is wrong. It also gets `tell`, which says
 * how far it is and returns whether the form is still open.
 */
export function form({ title, text, fields = [], action, danger = false, submit, preview }) {
  const number = (numbers += 1);
  const opener = document.activeElement;
  const inputs = new Map(fields.map((field) => [field.name, input(field)]));
  const problem = h("p", { class: "problem", role: "alert" });
  const shown = h("div", { class: "preview", role: "status" });
  const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
  const close = () => {
    dialog.close();
    opener?.focus?.();
  };
  /** Say how far it is; return whether somebody still waits for it. */
  const tell = (text) => {
    shown.textContent = text;
    return dialog.open;
  };
  const values = () => Object.fromEntries([...inputs].map(([name, element]) =>
    [name, element.type === "checkbox" ? element.checked : element.value]));
  const body = h("form", { method: "dialog" },
    h("h2", { id: `form-${number}` }, title),
    text ? h("p", {}, text) : null,
    fields.map((field) => labelled(field, inputs.get(field.name))),
    shown, problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Cancel"), button));
  body.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    button.disabled = true;
    try {
      await submit(values(), tell);
      if (dialog.open) close();
    } catch (error) {
      problem.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  });
  if (preview) {
    let looks = 0;
    let typing = null;
    const look = async () => {
      const mine = (looks += 1);
      const found = await Promise.resolve(values()).then(preview).catch((error) => h("p", { class: "problem" }, error.message));
      if (mine === looks) shown.replaceChildren(...[found].flat());
    };
    body.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(look, TYPING_MS);
    });
    look();
  }
  const dialog = h("dialog", { "aria-labelledby": `form-${number}` }, body);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  ([...inputs.values()][0] ?? button).focus();
  return dialog;
}

function input({ name, type = "text", value, options, required, placeholder, rows }) {
  const common = { name, required, placeholder, autocomplete: "off", spellcheck: "false" };
  if (options) {
    return h("select", common, options.map((each) => {
      const [key, text] = Array.isArray(each) ? each : [each, each];
      return h("option", { value: key, selected: key === value }, text);
    }));
  }
  if (type === "textarea") return h("textarea", { ...common, rows: rows ?? 5, value });
  if (type === "checkbox") return h("input", { ...common, type, checked: Boolean(value) });
  return h("input", { ...common, type, value, step: type === "datetime-local" ? "1" : undefined });
}

function labelled(field, element) {
  const hint = field.hint ? h("span", { class: "hint" }, field.hint) : null;
  if (field.type === "checkbox") return h("label", { class: "check" }, element, h("span", {}, field.label), hint);
  return h("label", {}, field.label, element, hint);
}

/** Show something over the page, until it is closed. */
export function panel(title, ...content) {
  const opener = document.activeElement;
  const dialog = h("dialog", { class: "wide", "aria-label": title }, h("form", { method: "dialog" }, h("h2", {}, title), content,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Close"))));
  dialog.addEventListener("close", () => {
    dialog.remove();
    opener?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** Ask before something is done. `word` must be typed if it is given. */
export function confirm({ title, text, action, work, word }) {
  const fields = word ? [{ name: "word", label: `Type ${word} to go on`, required: true }] : [];
  return form({ title, text, action, fields, danger: true, submit: async (values) => {
    if (word && values.word !== word) throw new Error("That is another name.");
    await work();
  } });
}

/** Read headers that were typed as lines of `name: value`. */
export function headersOf(text) {
  const found = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const place = line.indexOf(":");
    if (place < 1) throw new Error(`A header is written as name: value, not ${line}`);
    found[line.slice(0, place).trim()] = line.slice(place + 1).trim();
  }
  return found;
}
