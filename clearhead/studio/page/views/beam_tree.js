// The beams of a search as a tree: a column for each step, the likeliest beam on top.
import { clear, listenPress, make, svg } from "../dom.js";
import { number, shortenText, tokenName } from "../format.js";

const NODE = { width: 62, height: 36, across: 92, down: 46, left: 6, top: 22 };
const START_NAME = "start";

export class BeamTreePicture {
  // onPick(step, node): a node was chosen; node is its index within the step.
  constructor({ onPick }) {
    this.onPick = onPick;
    this.node = make("div", { class: "scroll" });
  }

  // steps: of each {places, parents, words, log_probs, ended}; path: the places of the highlighted beam.
  show(steps, path, chosen) {
    Object.assign(this, { steps, path, chosen });
    const rows = Math.max(1, ...steps.map(({ places }) => Math.max(0, ...places) + 1));
    const width = NODE.left * 2 + steps.length * NODE.across + NODE.width;
    const height = NODE.top + rows * NODE.down + 4;
    const edges = [];
    const nodes = [this.drawStart()];
    steps.forEach((step, t) =>
      step.places.forEach((place, i) => {
        edges.push([this.isOnPath(t, place), this.drawEdge(step, t, i)]);
        nodes.push(this.drawNode(step, t, i));
      }),
    );
    edges.sort(([a], [b]) => a - b);
    const names = steps.map((_, t) =>
      svg(
        "text",
        { class: "beam-step", x: xOf(t) + NODE.width / 2, y: 12, "text-anchor": "middle" },
        String(t),
      ),
    );
    clear(
      this.node,
      svg(
        "svg",
        {
          class: "beams",
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "group",
          "aria-label": "tree of beams",
        },
        names,
        edges.map(([, edge]) => edge),
        nodes,
      ),
    );
  }

  isOnPath(t, place) {
    return t < this.path.length && this.path[t] === place;
  }

  drawStart() {
    return svg(
      "g",
      { class: "beam-node on-path" },
      svg("rect", { x: NODE.left, y: yOf(0), width: NODE.width, height: NODE.height, rx: 7 }),
      svg(
        "text",
        { x: NODE.left + NODE.width / 2, y: yOf(0) + NODE.height / 2 + 4, "text-anchor": "middle" },
        START_NAME,
      ),
    );
  }

  drawEdge(step, t, i) {
    const [from, to] = [t === 0 ? 0 : step.parents[i], step.places[i]];
    const [x0, x1] = [xOf(t - 1) + NODE.width, xOf(t)];
    const [y0, y1] = [yOf(from) + NODE.height / 2, yOf(to) + NODE.height / 2];
    const middle = (x0 + x1) / 2;
    return svg("path", {
      class: this.isOnPath(t, to) ? "beam-edge on-path" : "beam-edge",
      d: `M ${x0} ${y0} C ${middle} ${y0}, ${middle} ${y1}, ${x1} ${y1}`,
      fill: "none",
    });
  }

  drawNode(step, t, i) {
    const [x, y] = [xOf(t), yOf(step.places[i])];
    const isChosen = this.chosen !== null && this.chosen[0] === t && this.chosen[1] === i;
    const name = tokenName(step.words[i]);
    return svg(
      "g",
      {
        class: [
          "beam-node",
          this.isOnPath(t, step.places[i]) ? "on-path" : "",
          step.ended[i] ? "ended" : "",
          isChosen ? "chosen" : "",
        ]
          .join(" ")
          .trim(),
        tabindex: 0,
        role: "button",
        "aria-label": `step ${t}, ${name}, log p ${number(step.log_probs[i])}`,
        on: listenPress(() => this.onPick(t, i)),
      },
      svg("rect", { x, y, width: NODE.width, height: NODE.height, rx: 7 }),
      svg(
        "text",
        { x: x + NODE.width / 2, y: y + 15, "text-anchor": "middle" },
        shortenText(name, 7),
      ),
      svg(
        "text",
        { class: "beam-number", x: x + NODE.width / 2, y: y + 29, "text-anchor": "middle" },
        number(step.log_probs[i], 3),
      ),
      svg("title", {}, `${name}: log p ${number(step.log_probs[i])}`),
    );
  }
}

const xOf = (t) => NODE.left + (t + 1) * NODE.across;
const yOf = (place) => NODE.top + place * NODE.down;

// The place at each step of the beam that ends in this node.
export function tracePath(steps, t, i) {
  const path = [];
  for (let node = i; t >= 0; t -= 1) {
    path.unshift(steps[t].places[node]);
    if (t > 0) node = steps[t - 1].places.indexOf(steps[t].parents[node]);
  }
  return path;
}
