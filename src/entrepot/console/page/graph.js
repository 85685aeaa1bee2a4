// Draws a graph in columns, from left to right: what leads where.

import { empty, h, svg } from "./dom.js";

const BOX = { width: 158, height: 36 };
const GAP = { x: 116, y: 16 };
const KEY_CHARACTERS = 15;

/**
 * Make a drawing. `edges` are {from, to, text, hint}; an end is {id, name, kind, href}. A circle is
 * drawn as an edge that goes back.
 */
export function graph(label, edges) {
  if (!edges.length) return empty("Nothing leads anywhere");
  const nodes = new Map();
  for (const edge of edges) for (const end of [edge.from, edge.to]) if (!nodes.has(end.id)) nodes.set(end.id, { ...end, column: 0 });
  toColumns(nodes, edges);
  const columns = [];
  for (const node of nodes.values()) (columns[node.column] ??= []).push(node);
  arrange(columns, nodes, edges);
  const width = columns.length * (BOX.width + GAP.x) - GAP.x + 2;
  const height = Math.max(...columns.map((column) => column.length)) * (BOX.height + GAP.y) - GAP.y + 2;
  for (const [number, column] of columns.entries()) {
    const top = (height - column.length * (BOX.height + GAP.y) + GAP.y) / 2;
    column.forEach((node, place) => {
      node.x = number * (BOX.width + GAP.x) + 1;
      node.y = top + place * (BOX.height + GAP.y);
    });
  }
  return h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": label },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label },
      edges.map((edge) => line(nodes.get(edge.from.id), nodes.get(edge.to.id), edge)),
      [...nodes.values()].map(box)));
}

/** Give each node its column: one more than the farthest of those that lead to it, circles apart. */
function toColumns(nodes, edges) {
  const ways = new Map([...nodes.keys()].map((id) => [id, []]));
  edges.forEach(({ from, to }) => ways.get(from.id).push(to.id));
  const led = new Set(edges.filter(({ from, to }) => from.id !== to.id).map(({ to }) => to.id));
  const order = []; // Whoever leads to a node comes after it.
  const state = new Map();
  const visit = (id) => {
    state.set(id, "open");
    ways.set(id, ways.get(id).filter((to) => state.get(to) !== "open")); // What goes back, goes round.
    for (const to of ways.get(id)) if (!state.has(to)) visit(to);
    state.set(id, "done");
    order.push(id);
  };
  const all = [...nodes.keys()];
  for (const id of [...all.filter((each) => !led.has(each)), ...all]) if (!state.has(id)) visit(id);
  for (const id of order.reverse()) {
    for (const to of ways.get(id)) nodes.get(to).column = Math.max(nodes.get(to).column, nodes.get(id).column + 1);
  }
}

/** Order each column by the middle of those that lead there, so that fewer lines cross. */
function arrange(columns, nodes, edges) {
  for (const [number, column] of columns.entries()) {
    if (number > 0) {
      const middle = (node) => {
        const places = edges.filter((edge) => edge.to.id === node.id).map((edge) => nodes.get(edge.from.id).place ?? 0);
        return places.reduce((sum, each) => sum + each, 0) / (places.length || 1);
      };
      const middles = new Map(column.map((node) => [node.id, middle(node)]));
      column.sort((one, other) => middles.get(one.id) - middles.get(other.id));
    }
    column.forEach((node, place) => { node.place = place - column.length / 2; });
  }
}

function cut(text, count) {
  const letters = [...text];
  return letters.length > count ? `${letters.slice(0, count - 1).join("")}…` : text;
}

function box({ x, y, name, kind, href }) {
  return svg("a", { href, "aria-label": `${kind} ${name}`, class: `node is-${kind}` },
    svg("title", {}, `${kind} ${name}`),
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 6 }),
    svg("foreignObject", { x, y, width: BOX.width, height: BOX.height }, // It cuts what is too wide.
      h("div", { class: "node-text" }, h("div", { class: "node-kind" }, kind), h("div", { class: "node-name" }, name))));
}

function line(from, to, { text, hint, isAside }) {
  const [x, y] = [from.x + BOX.width, from.y + BOX.height / 2];
  const [endX, endY] = [to.x, to.y + BOX.height / 2];
  const bend = Math.max(40, Math.abs(endX - x) * 0.3);
  return svg("g", { class: isAside ? "edge aside" : "edge" },
    svg("title", {}, hint ?? text),
    svg("path", { d: `M${x},${y}C${x + bend},${y} ${endX - bend},${endY} ${endX - 6},${endY}` }),
    svg("path", { class: "head", d: `M${endX},${endY}l-7,-4v8Z` }),
    // Nearer to its end, where the lines from one node have parted.
    text ? svg("text", { x: endX - 12, y: endY - 5, "text-anchor": "end" }, cut(text, KEY_CHARACTERS)) : null);
}
