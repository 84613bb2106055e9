// The tree of continuations as a picture: the current text along the top, other branches below it.
import { clear, listenPress, make, svg } from "../dom.js";
import { number, percent, shortenText, tokenName } from "../format.js";

const TREE = { width: 54, height: 38, chain: 6, branch: 40, row: 46, margin: 4, root: 96 };

export class TextTreePicture {
  // onPick(node): a node was chosen.
  constructor({ onPick }) {
    this.onPick = onPick;
    this.node = make("div", { class: "scroll continuations-box" });
  }

  show(tree) {
    const focused = document.activeElement?.dataset?.node;
    const onPath = new Set([tree.root, ...tree.current.path]);
    const places = placeNodes(tree.root, onPath);
    const width =
      Math.max(...[...places.values()].map(({ x, width: own }) => x + own)) + TREE.margin;
    const height = Math.max(...[...places.values()].map(({ y }) => y)) + TREE.height + TREE.margin;
    const edges = [...places.keys()]
      .filter(({ parent }) => parent !== null)
      .sort((a, b) => onPath.has(a) - onPath.has(b))
      .map((node) => drawBranch(places.get(node.parent), places.get(node), node, onPath.has(node)));
    const boxes = [...places].map(([node, place]) =>
      this.drawBox(node, place, tree, onPath.has(node)),
    );
    clear(
      this.node,
      svg(
        "svg",
        {
          class: "continuations",
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "group",
          "aria-label": "tree of continuations",
        },
        edges,
        boxes,
      ),
    );
    if (focused !== undefined)
      this.node.querySelector(`[data-node="${focused}"]`)?.focus({ preventScroll: true });
    this.scrollTo(places.get(tree.current));
  }

  drawBox(node, { x, y, width }, tree, isOnPath) {
    const isCurrent = node === tree.current;
    const name =
      node.parent === null ? shortenPrompt(node.name) : shortenText(tokenName(node.name), 6);
    const classes = [
      "continuation",
      isOnPath ? "on-path" : "",
      isCurrent ? "current" : "",
      node.isVisited ? "" : "unvisited",
    ];
    return svg(
      "g",
      {
        class: classes.filter(Boolean).join(" "),
        tabindex: 0,
        role: "button",
        "data-node": node.key,
        "aria-label": describeNode(node),
        "aria-current": isCurrent ? "true" : null,
        on: listenPress(() => this.onPick(node)),
      },
      svg("title", {}, describeNode(node)),
      svg("rect", { x, y, width, height: TREE.height, rx: 7 }),
      svg(
        "text",
        { class: "continuation-token", x: x + width / 2, y: y + 16, "text-anchor": "middle" },
        name,
      ),
      svg(
        "text",
        { class: "continuation-number", x: x + width / 2, y: y + 31, "text-anchor": "middle" },
        node.parent === null ? "prompt" : percent(node.prob),
      ),
    );
  }

  // Keep the current node in sight.
  scrollTo({ x, y, width }) {
    const box = this.node;
    if (x < box.scrollLeft || x + width + TREE.branch > box.scrollLeft + box.clientWidth)
      box.scrollLeft = x - box.clientWidth / 2;
    if (y < box.scrollTop || y + TREE.row > box.scrollTop + box.clientHeight)
      box.scrollTop = y - box.clientHeight / 2;
  }
}

// A row for each leaf. One child stands in the row of its parent: the one on the path, else the likeliest.
function placeNodes(root, onPath) {
  const places = new Map();
  let row = 0;
  const visit = (node, x) => {
    const width = node.parent === null ? TREE.root : TREE.width;
    places.set(node, { x, y: TREE.margin + row * TREE.row, width });
    const gap = node.children.length > 1 ? TREE.branch : TREE.chain;
    [...node.children]
      .sort((a, b) => onPath.has(b) - onPath.has(a))
      .forEach((child, i) => {
        if (i > 0) row += 1;
        visit(child, x + width + gap);
      });
  };
  visit(root, TREE.margin);
  return places;
}

// The more probable a token, the thicker its line.
function drawBranch(from, to, node, isOnPath) {
  const [x0, x1] = [from.x + from.width, to.x];
  const [y0, y1] = [from.y + TREE.height / 2, to.y + TREE.height / 2];
  const middle = (x0 + x1) / 2;
  return svg("path", {
    class: isOnPath ? "branch on-path" : "branch",
    d: `M ${x0} ${y0} C ${middle} ${y0}, ${middle} ${y1}, ${x1} ${y1}`,
    fill: "none",
    "stroke-width": (1 + 5 * (node.prob ?? 0)).toFixed(2),
  });
}

export function describeNode(node) {
  if (node.parent === null) return "the prompt";
  return `${tokenName(node.name)}: probability ${number(node.prob)}, joint log probability ${number(node.jointLogProb)}`;
}

const shortenPrompt = (text) =>
  text.length > 11 ? `…${tokenName(text.slice(-10))}` : tokenName(text);
