// Makes elements. Texts become text nodes, never markup: a name may be anything.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: properties that begin with "on" listen, the others are attributes. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(isShown));
  return element;
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

/** Replace what an element has. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(isShown));
  return element;
}

/** Make a link to a page of the console; parts of the address are names. */
export function link(text, ...parts) {
  return h("a", { href: address(...parts) }, text);
}

export function address(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

/** Show that there is nothing, and what one could do about it. */
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", {}, text) : null, actions);
}

export function section(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}

/** Make the title of a page, with buttons beside it. */
export function heading(title, { kind, actions = [], copy } = {}) {
  return h(
    "div",
    { class: "heading" },
    h("div", {}, kind ? h("p", { class: "kind" }, kind) : null, h("h1", { tabindex: "-1" }, title)),
    h("div", { class: "actions" }, copy ? copyButton(copy) : null, actions),
  );
}

function copyButton(text) {
  const button = h("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard?.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy name"; }, 1500);
  } }, "Copy name");
  return button;
}

/** Make a list of facts: pairs of a name and a value. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "–"))));
}

/** Make a table from rows that are all there. */
export function plainTable(caption, columns, rows, none) {
  if (!rows.length) return empty(none ?? "Nothing here");
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col", class: cellClass(each) }, titleOf(each))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each) => h("td", { class: cellClass(each) }, each.cell(row)))))),
    ));
}

/** Return the title of a column; one without has a word for those who do not see the table. */
export function titleOf(column) {
  return column.title || h("span", { class: "unseen" }, column.class === "act" ? "Actions" : "More");
}

export function cellClass(column) {
  return [column.number ? "number" : "", column.wide ? "only-wide" : "", column.class ?? ""].join(" ").trim() || undefined;
}
