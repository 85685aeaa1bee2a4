// Asks the broker. The login is a cookie; what changes something sends a token as well, which only
// this page knows. While the broker is away, everything waits, and goes on when it is back.

const AGAIN_MS = 1000;

export const me = { user: null, token: "", administrator: false, monitor: false, version: "", node: "", guest: null, clustered: false, queues: true };
const waiting = { login: null, back: null };

/** What went wrong, in a sentence for people. */
export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const listeners = { away: () => {}, expired: async () => {} };

/** Say what to do when the broker goes and comes (away), and when a login has ended (expired). */
export function whenever(name, call) {
  listeners[name] = call;
}

export function get(path, query = {}, signal = undefined) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== ""));
  return ask("GET", text.size ? `${path}?${text}` : path, undefined, signal);
}

export const post = (path, body = {}) => ask("POST", path, body);
export const put = (path, body = {}) => ask("PUT", path, body);
export const remove = (path, headers = {}) => ask("DELETE", path, undefined, undefined, headers);

/** Make a path of names. */
export function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join("/")}`;
}

async function ask(method, where, body, signal, headers = {}) {
  for (;;) {
    let answer;
    try {
      answer = await send(method, where, body, signal, headers);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      const back = isBack();
      // What changes something may have arrived: that is for the person to find out.
      if (method !== "GET") throw new Problem(0, "The broker does not answer. Look whether this was done before you try again.");
      await back;
      signal?.throwIfAborted();
      continue;
    }
    if (answer.status !== 401) return read(answer);
    await loggedIn();
    signal?.throwIfAborted();
  }
}

function send(method, where, body, signal, headers = {}) {
  const sent = { ...headers, "X-CSRF-Token": me.token };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  return fetch(where, { method, headers: sent, signal, cache: "no-store", credentials: "same-origin",
    body: body === undefined ? undefined : JSON.stringify(body) });
}

async function read(answer) {
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    found = { reason: text.trim() };
  }
  if (answer.ok) return found;
  throw new Problem(answer.status, found?.reason ?? `The broker answered with status ${answer.status}.`);
}

/** Resolve when somebody has logged in again. One form, however many requests wait. */
function loggedIn() {
  waiting.login ??= listeners.expired().finally(() => { waiting.login = null; });
  return waiting.login;
}

export function expired() {
  return loggedIn();
}

/** Resolve when the broker answers again; say meanwhile that it does not. */
export function isBack() {
  waiting.back ??= untilBack().finally(() => { waiting.back = null; });
  return waiting.back;
}

async function untilBack() {
  listeners.away(true);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    try {
      const before = me.user;
      await refresh();
      listeners.away(false);
      if (before !== null && me.user === null) await loggedIn();
      return;
    } catch {
      // It is still away.
    }
  }
}

/** Ask who is logged in. */
export async function refresh() {
  Object.assign(me, { user: null, token: "", administrator: false, monitor: false }, await read(await send("GET", "/api/console/login")));
  return me.user !== null;
}

export async function logIn(user, password) {
  Object.assign(me, await read(await send("POST", "/api/console/login", { user, password })));
}

export async function logOut() {
  await read(await send("DELETE", "/api/console/login"));
  Object.assign(me, { user: null, token: "", administrator: false, monitor: false });
}
