// One search over all names, in the header of every page.

import { get } from "./api.js";
import { address, badge, fill, h } from "./dom.js";

const TYPING_MS = 150;
const PLACES = {
  queue: (found) => address("queues", found.vhost, found.name),
  topic: (found) => address("topics", found.name),
  exchange: (found) => address("exchanges", found.vhost, found.name),
  group: (found) => address("groups", found.name),
  connection: (found) => address("connections", found.name),
  session: (found) => address("sessions", found.name),
  transaction: (found) => `#/transactions?all=true&name=${encodeURIComponent(found.name)}`,
  user: () => address("users"),
  retained: (found) => `#/retained?name=${encodeURIComponent(found.name)}`,
  spark: (found) => `#/spark?name=${encodeURIComponent(found.name)}`,
  node: () => address("cluster"),
  setting: (found) => `#/settings?name=${encodeURIComponent(found.name)}`,
};

export function beginSearch() {
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  let chosen = -1;
  let typing = null;
  let running = null;

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    chosen = -1;
  }

  function choose(number) {
    const options = [...list.querySelectorAll("[role=option]")];
    if (!options.length) return;
    chosen = (number + options.length) % options.length;
    options.forEach((each, place) => each.setAttribute("aria-selected", String(place === chosen)));
    input.setAttribute("aria-activedescendant", options[chosen].id);
    options[chosen].scrollIntoView({ block: "nearest" });
  }

  async function search() {
    const text = input.value.trim();
    running?.abort();
    if (!text) return close();
    running = new AbortController();
    try {
      show(await get("/api/console/search", { q: text }, running.signal));
    } catch (error) {
      if (error.name !== "AbortError") fill(list, h("p", { class: "hint" }, error.message));
    }
  }

  function show(found) {
    chosen = -1;
    fill(list, found.length ? found.map((each, place) =>
      h("a", { role: "option", id: `found-${place}`, "aria-selected": "false", href: PLACES[each.kind](each), tabindex: "-1", onclick: close },
        badge(each.kind), h("span", { class: "name" }, each.name), each.vhost && each.vhost !== "/" ? h("span", { class: "hint" }, each.vhost) : null))
      : h("p", { class: "hint" }, "Nothing has that in its name."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (found.length) choose(0);
  }

  input.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, TYPING_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") {
      list.querySelector("[aria-selected=true]")?.click();
      input.value = "";
    } else if (event.key === "Escape") {
      close();
      input.blur();
    } else return;
    event.preventDefault();
  });
  input.addEventListener("blur", () => setTimeout(close, 200));
  return () => input.focus();
}
