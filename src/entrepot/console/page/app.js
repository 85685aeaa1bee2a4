// The console: finds the page for an address, and keeps what is around it.
//
// An address is `#/queues/%2F/work?sort=ready`: a page, names, and what is asked of it.

import { logOut, me, refresh, whenever } from "./api.js";
import { fill, h } from "./dom.js";
import { attempt } from "./forms.js";
import { askForLogin } from "./login.js";
import overview from "./overview.js";
import { beginSearch } from "./search.js";

const PAGES = [
  { key: "", title: "Overview", letter: "o", show: async () => overview },
  { key: "queues", title: "Queues", letter: "q", part: "Messages", where: "queues", show: () => import("./queues.js") },
  { key: "topics", title: "Topics", letter: "t", show: () => import("./topics.js") },
  { key: "exchanges", title: "Exchanges", letter: "e", where: "queues", show: () => import("./exchanges.js") },
  { key: "route", title: "Routing", letter: "w", where: "queues", show: () => import("./route.js") },
  { key: "connections", title: "Connections", letter: "c", part: "Clients", show: () => import("./connections.js") },
  { key: "groups", title: "Groups", letter: "g", show: () => import("./groups.js") },
  { key: "sessions", title: "MQTT sessions", letter: "m", where: "queues", show: () => import("./sessions.js") },
  { key: "retained", title: "Retained messages", letter: "r", where: "queues", show: () => import("./retained.js") },
  { key: "transactions", title: "Transactions", letter: "x", show: () => import("./transactions.js") },
  { key: "spark", title: "Spark", letter: "p", show: () => import("./spark.js") },
  { key: "cluster", title: "Cluster", letter: "n", part: "Broker", only: "monitor", where: "clustered", show: () => import("./cluster.js") },
  { key: "users", title: "Users and rights", letter: "u", part: "Broker", only: "administrator", show: () => import("./users.js") },
  { key: "storage", title: "Log on disk", letter: "d", only: "monitor", show: () => import("./storage.js") },
  { key: "settings", title: "Settings", letter: "s", only: "monitor", show: () => import("./settings.js") },
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");
let current = null; // The AbortController of the page that is shown.
let shown = null; // Its address, without what is asked of it.

function isAllowed(page) {
  if (page.where && !me[page.where]) return false;
  return !page.only || me[page.only] || (page.only === "monitor" && me.administrator);
}

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [key = "", ...parts] = path.split("/").map(decodeURIComponent);
  return { key, parts, query: new URLSearchParams(query), path };
}

async function go() {
  let asked;
  try {
    asked = parse();
  } catch {
    asked = { key: "?", parts: [], query: new URLSearchParams(), path: "?" };
  }
  current?.abort();
  for (const each of document.querySelectorAll("dialog[open]:not(.login)")) each.close(); // It was about the page before.
  const controller = (current = new AbortController());
  const page = PAGES.find((each) => each.key === asked.key);
  drawNav(page);
  closeMenu();
  const isNew = shown !== asked.path;
  shown = asked.path;
  if (!page || !isAllowed(page)) {
    main.inert = false;
    document.title = "entrepot";
    const isElsewhere = page?.where && !me[page.where];
    fill(main, h("h1", { tabindex: "-1" }, !page || isElsewhere ? "There is no such page" : "This page is for others"),
      h("p", {}, !page ? "Perhaps what it showed has another name now." : isElsewhere ? "This broker has nothing to show there." : "Your user may not see it."));
    return;
  }
  const name = asked.parts.at(-1);
  document.title = `${name ? `${name} · ` : ""}${page.title} · entrepot`;
  const context = {
    main, parts: asked.parts, query: asked.query, signal: controller.signal, title: page.title, every, setQuery,
    go: (address) => { location.hash = address; },
    reload: () => go(),
  };
  main.inert = isNew; // What is still shown belongs to another address.
  try {
    const module = await page.show();
    if (controller.signal.aborted) return;
    await (module.default ?? module)(context);
    if (controller.signal.aborted) return; // Another page is there by now.
    main.inert = false;
    if (isNew) focusTitle();
  } catch (error) {
    if (controller.signal.aborted) return;
    main.inert = false;
    fill(main, h("h1", { tabindex: "-1" }, error.status === 404 ? "It is not there" : error.status === 403 ? "This is for others" : "That did not work"),
      h("p", { class: "problem", role: "alert" }, error.message),
      h("p", {}, h("button", { type: "button", onclick: go }, "Try again")));
  }

  function every(ms, work) {
    let isBusy = false;
    const timer = setInterval(async () => {
      if (isBusy || document.hidden || document.querySelector("dialog[open]")) return;
      isBusy = true;
      try {
        await work();
      } catch {
        // It is tried again soon; what is on the page stays.
      } finally {
        isBusy = false;
      }
    }, ms);
    controller.signal.addEventListener("abort", () => clearInterval(timer));
  }

  function setQuery(query) {
    const text = new URLSearchParams(query).toString();
    history.replaceState(null, "", `#/${asked.path}${text ? `?${text}` : ""}`);
  }
}

function focusTitle() {
  window.scrollTo(0, 0);
  main.querySelector("h1")?.focus({ preventScroll: true });
}

function drawNav(page) {
  const parts = new Map();
  let part = "";
  for (const each of PAGES) {
    part = each.part ?? part;
    if (!isAllowed(each)) continue;
    const item = h("li", {}, h("a", { href: `#/${each.key}`, "aria-current": each === page ? "page" : undefined }, each.title));
    parts.set(part, [...parts.get(part) ?? [], item]);
  }
  fill(nav, [...parts].map(([title, items]) => [title ? h("p", { class: "part" }, title) : null, h("ul", { "aria-label": title || undefined }, items)]));
}

function drawWho() {
  const role = me.administrator ? "administrator" : me.monitor ? "monitor" : "user";
  fill(document.getElementById("who"),
    h("span", { class: "only-wide" }, me.user, h("span", { class: "hint" }, ` ${role}`)),
    h("button", { type: "button", class: "quiet", onclick: () => attempt(leave) }, "Log out"));
}

async function leave() {
  await logOut();
  current?.abort();
  fill(main);
  await askForLogin();
  begun();
}

function begun() {
  drawWho();
  go();
}

function closeMenu() {
  document.body.classList.remove("menu-open");
  menu.setAttribute("aria-expanded", "false");
}

menu.addEventListener("click", () => {
  const isOpen = document.body.classList.toggle("menu-open");
  menu.setAttribute("aria-expanded", String(isOpen));
});

// Dark and light: as the system has it, until somebody chooses.
const dark = matchMedia("(prefers-color-scheme: dark)");

function useTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

document.getElementById("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const other = theme === "dark" ? "light" : "dark";
  localStorage.setItem("entrepot-theme", other);
  useTheme(other);
});

useTheme(localStorage.getItem("entrepot-theme"));

// The keyboard: "/" searches, "g" and a letter goes to a page, "?" tells of them.
const focusSearch = beginSearch();
let isGoing = false;

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isGoing) {
    isGoing = false;
    const page = PAGES.find((each) => each.letter === event.key && isAllowed(each));
    if (page) location.hash = `#/${page.key}`;
  } else if (event.key === "/") {
    event.preventDefault();
    focusSearch();
  } else if (event.key === "g") isGoing = true;
  else if (event.key === "?") showKeys();
});

function showKeys() {
  const close = h("button", { type: "submit", class: "primary" }, "Close");
  const dialog = h("dialog", { "aria-label": "Keys" }, h("form", { method: "dialog" }, h("h2", {}, "Keys"),
    h("dl", { class: "keys" },
      h("div", {}, h("dt", {}, h("kbd", {}, "/")), h("dd", {}, "Search all names")),
      PAGES.filter(isAllowed).map((each) => h("div", {}, h("dt", {}, h("kbd", {}, "g"), " ", h("kbd", {}, each.letter)), h("dd", {}, each.title)))),
    h("div", { class: "buttons" }, close)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

whenever("away", (isAway) => {
  const banner = document.getElementById("away");
  banner.hidden = !isAway;
  banner.textContent = isAway ? "The broker does not answer. This page goes on by itself when it is back." : "";
});

whenever("expired", async () => {
  await askForLogin("Your login has ended. Please log in again.");
  drawWho();
});

async function begin() {
  try {
    if (!(await refresh())) await askForLogin();
    window.addEventListener("hashchange", go);
    begun();
  } catch (error) {
    fill(main, h("h1", {}, "The broker does not answer"), h("p", { class: "problem" }, error.message));
    setTimeout(begin, 2000);
  }
}

begin();
