// Small charts of the last minutes: lines over a time, drawn as SVG.

import { h, svg } from "./dom.js";
import { time } from "./format.js";

const WIDTH = 300;
const HEIGHT = 64;

/**
 * Make a chart. `series` are {name, value: sample => number, class}; `show` formats a number.
 * Returns the element and `draw`, which takes the samples.
 */
export function chart({ title, series, show, max }) {
  const now = h("span", { class: "chart-now" }, "–");
  const top = h("span", { class: "chart-top" });
  const lines = series.map((each) => svg("path", { class: `line ${each.class}` }));
  const areas = series.map((each) => svg("path", { class: `area ${each.class}` }));
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  const told = h("span", { class: "chart-told" });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, areas, lines, cursor);
  const legend = series.length > 1
    ? h("span", { class: "legend" }, series.map((each) => h("span", { class: `key ${each.class}` }, each.name)))
    : null;
  const element = h("figure", { class: "chart" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), now),
    h("div", { class: "plot" }, top, drawing),
    h("div", { class: "chart-foot" }, legend, told));
  let samples = [];

  function draw(all) {
    samples = all;
    if (!all.length) return;
    const first = all[0].t;
    const span = Math.max(all.at(-1).t - first, 60_000);
    const start = all.at(-1).t - span;
    const high = Math.max(max ?? 0, ...series.flatMap((each) => all.map((sample) => each.value(sample) ?? 0)));
    const scale = high > 0 ? high : 1;
    const x = (sample) => ((sample.t - start) / span) * WIDTH;
    series.forEach((each, number) => {
      const known = all.filter((sample) => (each.value(sample) ?? null) !== null);
      if (!known.length) return;
      const points = known.map((sample) => `${x(sample).toFixed(1)},${(HEIGHT - (each.value(sample) / scale) * (HEIGHT - 4)).toFixed(1)}`);
      lines[number].setAttribute("d", `M${points.join("L")}${known.length === 1 ? "h0" : ""}`); // One alone is a dot.
      areas[number].setAttribute("d", `M${x(known[0]).toFixed(1)},${HEIGHT}L${points.join("L")}L${x(known.at(-1)).toFixed(1)},${HEIGHT}Z`);
    });
    top.textContent = high > 0 ? show(high) : "";
    now.textContent = series.map((each) => show(each.value(all.at(-1)))).join(" · ");
  }

  drawing.addEventListener("pointermove", (event) => {
    if (!samples.length) return;
    const span = Math.max(samples.at(-1).t - samples[0].t, 60_000);
    const box = drawing.getBoundingClientRect();
    const at = samples.at(-1).t - span * (1 - (event.clientX - box.left) / box.width);
    const nearest = samples.reduce((best, each) => (Math.abs(each.t - at) < Math.abs(best.t - at) ? each : best));
    const x = ((nearest.t - samples.at(-1).t + span) / span) * WIDTH;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    told.textContent = `${time(nearest.t)}: ${series.map((each) => `${series.length > 1 ? `${each.name} ` : ""}${show(each.value(nearest))}`).join(", ")}`;
  });
  drawing.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    told.textContent = "";
  });
  return { element, draw };
}
