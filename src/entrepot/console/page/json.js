// Shows JSON as it is written: numbers keep all their digits, and names their order.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const STEP = "  ";

/** Indent JSON; what fits into a line stays in one. Raises SyntaxError if it is none. */
export function indented(text, width = 100) {
  JSON.parse(text); // It only judges: its numbers would be rounded.
  const tokens = text.match(TOKEN);
  let place = 0;

  /** Read the value that begins here: {text, length}, with `items` and `ends` if it has parts. */
  function value() {
    const token = tokens[place++];
    if (token !== "{" && token !== "[") return { text: token, length: token.length };
    const ends = token === "{" ? "{}" : "[]";
    const items = [];
    let length = 2;
    while (tokens[place] !== ends[1]) {
      if (tokens[place] === ",") place += 1;
      let name = "";
      if (token === "{") {
        name = `${tokens[place]}: `;
        place += 2;
      }
      const item = value();
      items.push([name, item]);
      length += name.length + item.length + 2;
    }
    place += 1;
    return { ends, items, length };
  }

  function line({ text: plain, ends, items }) {
    return plain ?? `${ends[0]}${items.map(([name, item]) => name + line(item)).join(", ")}${ends[1]}`;
  }

  function lines(node, margin, taken) {
    if (!node.items?.length || margin.length + taken + node.length <= width) return line(node);
    const inner = margin + STEP;
    const parts = node.items.map(([name, item]) => inner + name + lines(item, inner, name.length));
    return `${node.ends[0]}\n${parts.join(",\n")}\n${margin}${node.ends[1]}`;
  }

  return lines(value(), "", 0);
}
