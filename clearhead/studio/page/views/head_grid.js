// All heads of all layers as small maps; one of them is open.
import { isDark } from "../colours.js";
import { ARROWS, clear, make } from "../dom.js";
import { drawThumb } from "../thumb.js";

// The number that gets the strongest colour: the mean of the largest weight of each query. So a head that
// spreads its attention over many tokens can be read as well as one that looks at a single token.
export function findScale(map) {
  const {
    data,
    shape: [T, S],
  } = map;
  let sum = 0;
  for (let t = 0; t < T; t += 1) {
    let most = 0;
    for (let i = t * S; i < (t + 1) * S; i += 1) if (data[i] > most) most = data[i];
    sum += most;
  }
  return sum / Math.max(1, T) || 1;
}

export class HeadGrid {
  // onOpen(layer, head); drag: (layer, head) → the text that a dragged map carries, null if none can be
  // dragged; onDrop(text): something was dropped on this grid.
  constructor({ label, onOpen, drag = null, onDrop = null }) {
    Object.assign(this, { onOpen, drag, shape: "" });
    this.node = make("div", {
      class: "heads",
      attributes: { role: "group", "aria-label": label },
      on: { keydown: (event) => this.onKey(event) },
    });
    if (onDrop) acceptDrop(this.node, onDrop);
  }

  // changed: "layer,head" → words about what was changed there.
  show(layers, { layer, head, changed = new Map() }) {
    const shape = layers.map(({ name, heads }) => `${name}:${heads}`).join();
    if (shape !== this.shape) this.build(layers);
    this.shape = shape;
    this.place = [layer, head];
    if (this.drawn !== layers || this.wasDark !== isDark()) this.drawMaps(layers);
    layers.forEach(({ title }, l) =>
      this.buttons[l].forEach((node, h) => {
        const words = changed.get(`${l},${h}`);
        const isOpen = l === layer && h === head;
        node.setAttribute("aria-pressed", String(isOpen));
        node.tabIndex = isOpen ? 0 : -1;
        node.classList.toggle("changed", words !== undefined);
        node.title =
          words === undefined ? `${title} · head ${h}` : `${title} · head ${h}: ${words}`;
      }),
    );
  }

  drawMaps(layers) {
    this.drawn = layers;
    this.wasDark = isDark();
    layers.forEach(({ weights }, l) =>
      this.buttons[l].forEach((node, h) => {
        const map = weights.part(h);
        drawThumb(node.firstChild, map, ...map.shape, "weight", findScale(map));
      }),
    );
  }

  build(layers) {
    const most = Math.max(...layers.map(({ heads }) => heads));
    this.node.style.gridTemplateColumns = `max-content repeat(${most}, minmax(30px, 76px))`;
    this.buttons = layers.map(({ title, heads }, l) =>
      Array.from({ length: heads }, (_, h) => this.makeButton(title, l, h)),
    );
    const names = [
      make("span"),
      ...Array.from({ length: most }, (_, h) =>
        make("span", { class: "heads-name", text: String(h), title: `head ${h}` }),
      ),
    ];
    const rows = layers.map(({ title, heads }, l) => [
      make("span", { class: "heads-name layer", text: title }),
      this.buttons[l],
      Array.from({ length: most - heads }, () => make("span")),
    ]);
    clear(this.node, names, rows);
  }

  makeButton(title, layer, head) {
    const node = make(
      "button",
      {
        type: "button",
        class: "head",
        ariaLabel: `${title} head ${head}`,
        on: { click: () => this.onOpen(layer, head) },
      },
      make("canvas", { class: "thumb" }),
    );
    if (this.drag) makeDraggable(node, () => this.drag(layer, head));
    return node;
  }

  onKey(event) {
    const move = ARROWS[event.key];
    const next = move && this.buttons[this.place[0] + move[0]]?.[this.place[1] + move[1]];
    if (!next) return;
    event.preventDefault();
    next.focus();
    this.onOpen(this.place[0] + move[0], this.place[1] + move[1]);
  }
}

// Make a node draggable; write() returns the text that it carries.
export function makeDraggable(node, write) {
  node.draggable = true;
  node.addEventListener("dragstart", (event) => {
    event.dataTransfer.setData("text/plain", write());
    event.dataTransfer.effectAllowed = "copy";
  });
}

// Let things be dropped on a node; onDrop(text) gets the text that they carry.
export function acceptDrop(node, onDrop) {
  const mark = (isOver) => (event) => {
    event.preventDefault();
    node.classList.toggle("drop-here", isOver);
  };
  node.addEventListener("dragover", mark(true));
  node.addEventListener("dragleave", mark(false));
  node.addEventListener("drop", (event) => {
    mark(false)(event);
    onDrop(event.dataTransfer.getData("text/plain"));
  });
}
