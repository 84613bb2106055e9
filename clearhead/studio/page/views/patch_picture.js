// A picture and its patches: heat on top of it, patches to choose or to paint.
import { ARROWS, clear, make, svg } from "../dom.js";
import { number } from "../format.js";
import { cellsBetween } from "../stroke.js";

const LONG_SIDE = 320; // pixels of the longer side
const LEAST_WRITTEN = 38; // pixels of a patch that has room for its number
const HEAT = [30, 136, 255];
const COLD = [232, 112, 0];
const STRONGEST = 0.82; // opacity of the largest number

// A picture (channels, height, width) of bytes as a canvas of that size.
export function pictureCanvas(image) {
  const [channels, height, width] = image.shape;
  const canvas = make("canvas", { width, height });
  const pixels = new ImageData(width, height);
  const size = height * width;
  for (let i = 0; i < size; i += 1) {
    for (let c = 0; c < 3; c += 1)
      pixels.data[4 * i + c] = image.data[(channels === 3 ? c : 0) * size + i];
    pixels.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

// The largest number of a map, which gets the strongest colour; never 0.
export function findHottest(values) {
  return Math.max(...values.map(Math.abs)) || 1;
}

// Blue for positive numbers, orange for negative ones, no colour for 0.
function heatOf(x, scale) {
  const share = Math.min(1, Math.abs(x) / scale);
  return {
    colour: `rgb(${(x < 0 ? COLD : HEAT).join(" ")})`,
    opacity: Number.isFinite(share) ? STRONGEST * share : 0,
  };
}

// A small picture with its heat, a canvas of `side` pixels.
export function drawHeatThumb(canvas, picture, values, [rows, columns], side = 64) {
  const factor = side / Math.max(picture.width, picture.height);
  [canvas.width, canvas.height] = [
    Math.round(picture.width * factor),
    Math.round(picture.height * factor),
  ];
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  if (values === null) return;
  const [width, height] = [canvas.width / columns, canvas.height / rows];
  const scale = findHottest(values);
  values.forEach((x, i) => {
    const { colour, opacity } = heatOf(x, scale);
    pen.globalAlpha = opacity;
    pen.fillStyle = colour;
    pen.fillRect((i % columns) * width, Math.floor(i / columns) * height, width, height);
  });
}

export const patchName = (patch, columns) =>
  `row ${Math.floor(patch / columns)}, column ${patch % columns}`;

export class PatchPicture {
  // onPick(patch): clicked; or onPaint(patch, isFirst): each patch under the pressed mouse.
  // side: pixels of the longer side.
  constructor({ label, onPick = null, onPaint = null, side = LONG_SIDE }) {
    Object.assign(this, { label, onPick, onPaint, side, cursor: 0, painted: null });
    this.words = make("p", { class: "visually-hidden", attributes: { "aria-live": "polite" } });
    this.holder = make("div", { class: "patch-holder" });
    this.node = make("div", { class: "patch-picture" }, this.holder, this.words);
  }

  // picture: a canvas; grid: [rows, columns]; values: a number for each patch, or null; chosen: the patch
  // that is outlined; covered: those that are hidden behind the colour `cover`.
  show({ picture, grid, values = null, chosen = null, covered = [], cover = "grey", digits = 3 }) {
    Object.assign(this, { grid, values, digits });
    const factor = this.side / Math.max(picture.width, picture.height);
    const [width, height] = [picture.width * factor, picture.height * factor];
    this.patch = [width / grid[1], height / grid[0]];
    const hasFocus = this.svg !== undefined && document.activeElement === this.svg;
    this.svg = svg(
      "svg",
      {
        class: this.onPaint === null ? "patches" : "patches painting",
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        tabindex: 0,
        role: "application",
        "aria-label": this.label,
        on: {
          pointerdown: (event) => this.onDown(event),
          pointermove: (event) => this.onMove(event),
          pointerup: () => {
            this.painted = null;
          },
          keydown: (event) => this.onKey(event),
        },
      },
      svg("image", {
        href: picture.toDataURL(),
        width,
        height,
        preserveAspectRatio: "none",
        "image-rendering": "pixelated",
      }),
      this.drawPatches(new Set(covered), cover),
      values === null ? null : this.drawNumbers(new Set(covered)),
      chosen === null ? null : this.outline(chosen, "patch-chosen"),
    );
    clear(this.holder, this.svg);
    if (hasFocus) this.svg.focus();
    if (chosen !== null) this.cursor = chosen;
    this.cursor = Math.min(this.cursor, grid[0] * grid[1] - 1);
  }

  drawPatches(covered, cover) {
    const scale = this.values === null ? 1 : findHottest(this.values);
    return Array.from({ length: this.grid[0] * this.grid[1] }, (_, patch) => {
      const heat =
        this.values === null ? { colour: "none", opacity: 0 } : heatOf(this.values[patch], scale);
      const isCovered = covered.has(patch);
      const [x, y] = this.placeOf(patch);
      return svg(
        "rect",
        {
          class: isCovered ? "patch covered" : "patch",
          x,
          y,
          width: this.patch[0],
          height: this.patch[1],
          fill: isCovered ? cover : heat.colour,
          "fill-opacity": isCovered ? 1 : heat.opacity,
        },
        svg("title", {}, this.sentence(patch, isCovered)),
      );
    });
  }

  drawNumbers(covered) {
    if (Math.min(...this.patch) < LEAST_WRITTEN) return null;
    return this.values
      .map((x, patch) => {
        if (covered.has(patch)) return null;
        const [left, top] = this.placeOf(patch);
        return svg(
          "text",
          {
            class: "patch-number",
            "paint-order": "stroke",
            x: left + this.patch[0] / 2,
            y: top + this.patch[1] / 2 + 4,
            "text-anchor": "middle",
          },
          number(x, this.digits),
        );
      })
      .filter((text) => text !== null);
  }

  outline(patch, className) {
    const [x, y] = this.placeOf(patch);
    return svg("rect", {
      class: className,
      x: x + 1.5,
      y: y + 1.5,
      width: this.patch[0] - 3,
      height: this.patch[1] - 3,
      fill: "none",
    });
  }

  placeOf(patch) {
    return [
      (patch % this.grid[1]) * this.patch[0],
      Math.floor(patch / this.grid[1]) * this.patch[1],
    ];
  }

  sentence(patch, isCovered = false) {
    const words = patchName(patch, this.grid[1]);
    if (isCovered) return `${words}: covered`;
    return this.values === null ? words : `${words}: ${number(this.values[patch])}`;
  }

  patchAt(event) {
    const box = this.svg.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.grid[1]);
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.grid[0]);
    const isInside = row >= 0 && column >= 0 && row < this.grid[0] && column < this.grid[1];
    return isInside ? row * this.grid[1] + column : null;
  }

  onDown(event) {
    const patch = this.patchAt(event);
    if (patch === null || event.button > 0) return;
    event.preventDefault();
    this.svg.focus({ preventScroll: true });
    this.painted = patch;
    this.choose(patch, true);
  }

  // While painting, choose every patch that the mouse passes.
  onMove(event) {
    if (this.painted === null || this.onPaint === null || event.buttons === 0) return;
    const patch = this.patchAt(event);
    if (patch === null || patch === this.painted) return;
    const columns = this.grid[1];
    const cellOf = (each) => [Math.floor(each / columns), each % columns];
    const passed = cellsBetween(cellOf(this.painted), cellOf(patch));
    this.painted = patch;
    for (const [row, column] of passed) this.choose(row * columns + column, false);
  }

  choose(patch, isFirst) {
    this.cursor = patch;
    this.words.textContent = this.sentence(patch);
    if (this.onPaint !== null) this.onPaint(patch, isFirst);
    else this.onPick?.(patch);
  }

  // Arrow keys move; Enter or the space bar chooses.
  onKey(event) {
    const [rows, columns] = this.grid;
    const [row, column] = [Math.floor(this.cursor / columns), this.cursor % columns];
    const move = ARROWS[event.key];
    if (move !== undefined) {
      event.preventDefault();
      const limit = (i, n) => Math.min(Math.max(i, 0), n - 1);
      this.cursor = limit(row + move[0], rows) * columns + limit(column + move[1], columns);
      this.words.textContent = this.sentence(this.cursor);
      this.svg.querySelector(".patch-cursor")?.remove();
      this.svg.append(this.outline(this.cursor, "patch-cursor"));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(this.cursor, true);
    }
  }
}
