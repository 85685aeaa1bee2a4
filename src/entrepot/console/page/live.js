// What happens now, as the broker tells it: one stream of events, while somebody looks.

import { expired, isBack, refresh } from "./api.js";

const KEPT = 300;

/** Watch until the signal; `tell` gets {samples, lines} each time something came. */
export function watch(signal, tell) {
  const state = { samples: [], lines: [] };
  let source = null;

  function open() {
    if (signal.aborted || source || document.hidden) return;
    source = new EventSource("/api/console/events");
    source.addEventListener("past", (event) => {
      const past = JSON.parse(event.data);
      state.samples = past.samples;
      state.lines = past.lines;
      tell(state);
    });
    source.addEventListener("now", (event) => {
      const { sample, lines } = JSON.parse(event.data);
      const last = state.lines.at(-1)?.[0] ?? 0;
      state.samples = [...state.samples, sample].slice(-KEPT);
      state.lines = [...state.lines, ...lines.filter((line) => line[0] > last)].slice(-KEPT);
      tell(state);
    });
    source.addEventListener("expired", again);
    source.addEventListener("error", again);
  }

  function close() {
    source?.close();
    source = null;
  }

  async function again() {
    if (!source) return;
    close();
    try {
      if (!(await refresh())) await expired();
    } catch {
      await isBack();
    }
    setTimeout(open, 500);
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()), { signal });
  signal.addEventListener("abort", close);
  open();
}
