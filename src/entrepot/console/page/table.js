// Tables whose rows the broker sorts, filters and cuts: only one page of them ever comes here.
// What is shown is in the address, so it can be shared.

import { get } from "./api.js";
import { cellClass, empty, h, titleOf } from "./dom.js";
import { number, plural } from "./format.js";

const REFRESH_MS = 3000;
const TYPING_MS = 250;

/**
 * Show a list. `columns` are {key, title, cell: row => content, sort, number, wide}; `none` says
 * what an empty list means. Returns the element and `reload`.
 */
export function table(page, { caption, path, columns, query = {}, noun = "row", nouns = `${noun}s`, none, before, filters = [] }) {
  const state = { name: "", page: "1", ...Object.fromEntries(page.query) };
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": `Filter ${caption} by name`, value: state.name });
  const told = h("span", { class: "told", role: "status" });
  const head = h("tr");
  const body = h("tbody");
  const pager = h("nav", { class: "pager", "aria-label": `Pages of ${caption}` });
  const wrap = h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), body));
  const nothing = h("div");
  const element = h("div", { class: "list" }, h("div", { class: "list-tools" }, filter, filters.map(choice), told), wrap, nothing, pager);
  let running = null;
  let typing = null;

  function choice({ name, label, value }) {
    const box = h("input", { type: "checkbox", checked: state[name] === value });
    box.addEventListener("change", () => set({ [name]: box.checked ? value : "", page: "1" }));
    return h("label", { class: "check" }, box, h("span", {}, label));
  }

  function set(changes) {
    Object.assign(state, changes);
    const kept = Object.entries(state).filter(([name, value]) => value !== "" && !(name === "page" && value === "1"));
    page.setQuery(Object.fromEntries(kept));
    reload();
  }

  function drawHead() {
    const cells = columns.map((column) => {
      if (column.sort === undefined) return h("th", { scope: "col", class: cellClass(column) }, titleOf(column));
      const isSorted = (state.sort ?? "name") === column.sort;
      const isDown = state.sort_reverse === "true";
      const sort = () => set({ sort: column.sort, page: "1", sort_reverse: isSorted ? (isDown ? "" : "true") : (column.number ? "true" : "") });
      const order = isSorted ? (isDown ? "descending" : "ascending") : undefined;
      return h("th", { scope: "col", class: cellClass(column), "aria-sort": order },
        h("button", { type: "button", class: "sort", onclick: () => { sort(); focusHead(column.sort); }, "data-sort": column.sort },
          column.title, h("span", { "aria-hidden": "true" }, isSorted ? (isDown ? " ↓" : " ↑") : "")));
    });
    head.replaceChildren(...cells);
  }

  function focusHead(sort) {
    [...head.querySelectorAll("button")].find((each) => each.dataset.sort === sort)?.focus();
  }

  async function reload() {
    drawHead();
    running?.abort();
    const current = (running = new AbortController());
    page.signal.addEventListener("abort", () => current.abort(), { once: true });
    try {
      const found = await get(path, { ...query, ...state }, current.signal);
      before?.(found);
      draw(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      nothing.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  function draw(found) {
    const hadFocus = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    body.replaceChildren(...found.items.map((row) => h("tr", {}, columns.map((column) => h("td", { class: cellClass(column) }, column.cell(row))))));
    if (hadFocus) [...body.querySelectorAll("a")].find((each) => each.getAttribute("href") === hadFocus)?.focus();
    const isEmpty = !found.items.length;
    wrap.hidden = isEmpty;
    nothing.replaceChildren(...(!isEmpty ? [] : [state.name ? empty("Nothing has that name", `No ${noun} has “${state.name}” in its name.`) : none ?? empty(`No ${nouns}`)]));
    const of = state.name && found.filtered_count !== found.total_count ? ` of ${number(found.total_count)}` : "";
    told.textContent = isEmpty ? "" : `${plural(found.filtered_count, noun, nouns)}${of}`;
    drawPager(found);
  }

  function drawPager({ page: current, page_count: count }) {
    pager.hidden = count < 2;
    const to = (text, target, label) => h("button", { type: "button", disabled: target < 1 || target > count, "aria-label": label, onclick: () => set({ page: String(target) }) }, text);
    pager.replaceChildren(
      to("«", current === 1 ? 0 : 1, "First page"),
      to("‹", current - 1, "Page before"),
      h("span", {}, `Page ${number(current)} of ${number(count)}`),
      to("›", current + 1, "Next page"),
      to("»", current === count ? count + 1 : count, "Last page"),
    );
  }

  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => set({ name: filter.value.trim(), page: "1" }), TYPING_MS);
  });
  page.every(REFRESH_MS, reload);
  reload();
  return { element, reload };
}

