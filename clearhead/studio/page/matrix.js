// A matrix of numbers as a picture: wheel or two fingers zoom, drag moves, click or arrow keys choose a cell.
// While nothing is zoomed or painted, a swipe over it scrolls the page.
//
// The cells are drawn once into a small canvas, a pixel for each; every frame only scales that canvas,
// so a matrix of 256 × 256 zooms as smoothly as one of 5 × 5.
import { inkOn, onColourScheme, signedColour, weightColour } from "./colours.js";
import { ARROWS, eachFrame, make } from "./dom.js";
import { number, tokenName } from "./format.js";
import {
  LEAST_LABELLED,
  LEAST_NUMBERED,
  MOST_CELL,
  drawMatrixSVG,
  formatInCell,
} from "./matrix_svg.js";
import { cellsBetween } from "./stroke.js";
import { drawThumb, largest } from "./thumb.js";

const LABEL_FONT = "12px system-ui, sans-serif";
const MOST_HEIGHT = 620; // pixels of the picture
const MOST_LABEL = 96; // pixels of a label; a longer one is cut
const DRAG_STARTS = 4; // pixels that the mouse must move

export class Matrix {
  // onPick(row, column): a cell was chosen. colour: "weight" (0 … scale) or "signed" (−scale … scale).
  // A view may set onPaint(cells) later: it gets the cells, [[row, column], …], that the pressed mouse passes.
  // Without it, a drag moves the picture.
  constructor({ label = "matrix", colour = "weight", onPick } = {}) {
    Object.assign(this, { label, colour, onPick, onPaint: undefined });
    this.canvas = make("canvas", {
      class: "matrix",
      tabIndex: 0,
      attributes: { role: "application", "aria-label": label, "aria-roledescription": "matrix" },
    });
    this.canvas.matrix = this; // for save.js, which calls toSVG
    this.words = make("p", { class: "visually-hidden", attributes: { "aria-live": "polite" } });
    this.node = make("div", { class: "matrix-box" }, this.canvas, this.words);
    this.cells = document.createElement("canvas");
    this.zoom = { size: 1, x: 0, y: 0 }; // how much larger than fitting, and the first visible pixel
    this.chosen = null;
    this.hovered = null;
    this.marked = [];
    this.T = this.S = 0;
    this.fingers = new Map(); // pointerId → [x, y], of the pointers that touch the canvas
    this.draw = eachFrame(() => this.render());
    this.listen();
    new ResizeObserver(() => this.layout()).observe(this.node);
    onColourScheme(() => this.values && this.show(this.values, this.options));
  }

  // values (T, S); rows, columns: the names of both; scale: the number that gets the strongest colour.
  show(values, options = {}) {
    const { shape } = values;
    if (this.T !== shape[0] || this.S !== shape[1]) this.zoom = { size: 1, x: 0, y: 0 };
    [this.T, this.S] = shape;
    this.values = values;
    this.data = values.data;
    this.options = options;
    this.rows = (options.rows ?? []).map(tokenName);
    this.columns = (options.columns ?? []).map(tokenName);
    this.scale = options.scale ?? (this.colour === "signed" ? largest(this.data) : 1);
    drawThumb(this.cells, this.data, this.T, this.S, this.colour, this.scale);
    this.layout();
    return this;
  }

  select(row, column) {
    this.chosen = row === null || row === undefined ? null : [row, column];
    this.describe();
    this.draw();
  }

  // Outline cells, [[row, column], …], for instance those whose mask was changed.
  mark(cells) {
    this.marked = cells;
    this.draw();
  }

  value(row, column) {
    return this.data[row * this.S + column];
  }

  // Sizes

  layout() {
    const width = this.node.clientWidth;
    if (!width || !this.T || !this.S) return;
    const pen = this.canvas.getContext("2d");
    pen.font = LABEL_FONT;
    const longest = (names) =>
      Math.min(MOST_LABEL, Math.max(0, ...names.map((name) => pen.measureText(name).width)));
    const room = (width - (this.rows.length ? longest(this.rows) + 10 : 2)) / this.S;
    const cell = Math.max(Math.min(MOST_CELL, room, (MOST_HEIGHT - 20) / this.T), 0.25);
    const hasLabels =
      cell >= LEAST_LABELLED || this.zoom.size > 1 || this.T * LEAST_LABELLED > MOST_HEIGHT;
    this.left = this.rows.length && hasLabels ? Math.ceil(longest(this.rows)) + 10 : 2;
    this.isFlat = longest(this.columns) <= cell - 4; // short names stand upright
    const tall = this.isFlat ? 14 : Math.ceil(longest(this.columns));
    this.top = this.columns.length && hasLabels ? tall + 10 : 2;
    this.fit = Math.min(MOST_CELL, (width - this.left) / this.S, (MOST_HEIGHT - this.top) / this.T);
    this.width = Math.round(this.left + Math.min(this.fit * this.S, width - this.left) + 1);
    this.height = Math.round(this.top + this.fit * this.T + 1);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.render();
  }

  get cell() {
    return this.fit * this.zoom.size;
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - this.left + this.zoom.x;
    const y = event.clientY - box.top - this.top + this.zoom.y;
    const [row, column] = [Math.floor(y / this.cell), Math.floor(x / this.cell)];
    const isInside = event.clientX - box.left >= this.left && event.clientY - box.top >= this.top;
    return isInside && row >= 0 && column >= 0 && row < this.T && column < this.S
      ? [row, column]
      : null;
  }

  zoomTo(size, atX = 0, atY = 0) {
    const next = Math.min(Math.max(size, 1), Math.max(1, 64 / this.fit));
    const factor = next / this.zoom.size;
    this.zoom = {
      size: next,
      x: (this.zoom.x + atX) * factor - atX,
      y: (this.zoom.y + atY) * factor - atY,
    };
    this.moveBy(0, 0);
  }

  moveBy(x, y) {
    const limit = (value, most) => Math.min(Math.max(value, 0), Math.max(0, most));
    this.zoom.x = limit(this.zoom.x + x, this.cell * this.S - (this.width - this.left - 1));
    this.zoom.y = limit(this.zoom.y + y, this.cell * this.T - (this.height - this.top - 1));
    this.draw();
  }

  // Drawing

  render() {
    if (!this.width) return;
    this.canvas.style.touchAction = this.zoom.size > 1 || this.onPaint ? "none" : "pan-y";
    const ratio = window.devicePixelRatio || 1;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    this.drawCells(pen);
    this.drawLabels(pen);
  }

  drawCells(pen) {
    const { left, top, cell, zoom } = this;
    pen.save();
    pen.beginPath();
    pen.rect(left, top, this.width - left, this.height - top);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.cells, left - zoom.x, top - zoom.y, cell * this.S, cell * this.T);
    if (cell >= LEAST_NUMBERED) this.drawNumbers(pen);
    for (const place of this.marked) this.outline(pen, place, "#d55e00", 2);
    if (this.hovered) this.outline(pen, this.hovered, getComputedStyle(this.node).color, 1);
    if (this.chosen) this.outline(pen, this.chosen, "#d55e00", 3);
    pen.restore();
    pen.strokeStyle = getComputedStyle(this.node).getPropertyValue("--line") || "#999";
    pen.strokeRect(left + 0.5, top + 0.5, this.width - left - 1, this.height - top - 1);
  }

  outline(pen, [row, column], colour, width) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    const [x, y] = [
      this.left - this.zoom.x + column * this.cell,
      this.top - this.zoom.y + row * this.cell,
    ];
    const inset = width / 2;
    pen.strokeRect(
      x + inset,
      y + inset,
      Math.max(this.cell - width, 1),
      Math.max(this.cell - width, 1),
    );
    pen.lineWidth = 1;
  }

  drawNumbers(pen) {
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const paint = this.colour === "signed" ? signedColour : weightColour;
    for (const row of this.visible(this.zoom.y, this.height - this.top, this.T)) {
      for (const column of this.visible(this.zoom.x, this.width - this.left, this.S)) {
        const x = this.value(row, column);
        pen.fillStyle = inkOn(paint(x / this.scale));
        const [centreX, centreY] = [
          (column + 0.5) * this.cell - this.zoom.x,
          (row + 0.5) * this.cell - this.zoom.y,
        ];
        pen.fillText(formatInCell(x), this.left + centreX, this.top + centreY);
      }
    }
  }

  drawLabels(pen) {
    if (this.cell < LEAST_LABELLED) return;
    pen.font = LABEL_FONT;
    pen.fillStyle = getComputedStyle(this.node).color;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    if (this.rows.length) {
      for (const row of this.visible(this.zoom.y, this.height - this.top, this.T)) {
        const y = this.top + (row + 0.5) * this.cell - this.zoom.y;
        if (y > this.top) pen.fillText(shorten(pen, this.rows[row] ?? ""), this.left - 6, y);
      }
    }
    if (!this.columns.length) return;
    pen.textAlign = this.isFlat ? "center" : "left";
    for (const column of this.visible(this.zoom.x, this.width - this.left, this.S)) {
      const x = this.left + (column + 0.5) * this.cell - this.zoom.x;
      if (x < this.left) continue;
      pen.save();
      pen.translate(x, this.top - (this.isFlat ? 12 : 6));
      if (!this.isFlat) pen.rotate(-Math.PI / 2);
      pen.fillText(shorten(pen, this.columns[column] ?? ""), 0, 0);
      pen.restore();
    }
  }

  // The indices of the rows or columns that can be seen.
  *visible(start, length, count) {
    const last = Math.min(count - 1, Math.floor((start + length) / this.cell));
    for (let i = Math.max(0, Math.floor(start / this.cell)); i <= last; i += 1) yield i;
  }

  // Mouse and keys

  listen() {
    const listeners = {
      wheel: (event) => this.onWheel(event),
      pointerdown: (event) => this.onDown(event),
      pointermove: (event) => this.onMove(event),
      pointerup: (event) => this.onUp(event),
      pointercancel: (event) => this.release(event),
      pointerleave: () => this.hover(null),
      dblclick: () => this.zoomTo(1),
      keydown: (event) => this.onKey(event),
    };
    for (const [name, listener] of Object.entries(listeners)) {
      this.canvas.addEventListener(name, listener, { passive: false });
    }
  }

  onWheel(event) {
    if (
      !event.ctrlKey &&
      !event.shiftKey &&
      this.zoom.size === 1 &&
      document.activeElement !== this.canvas
    )
      return;
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - this.left, event.clientY - box.top - this.top];
    this.zoomTo(this.zoom.size * Math.exp(-event.deltaY / 300), x, y);
  }

  onDown(event) {
    this.canvas.focus({ preventScroll: true });
    this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (this.fingers.size > 1) {
      this.pressed = null;
      this.pinch = { size: this.zoom.size, distance: this.spread };
      return;
    }
    this.pressed = { x: event.clientX, y: event.clientY, hasMoved: false };
    this.canvas.setPointerCapture(event.pointerId);
    const place = this.cellAt(event);
    this.painted = this.onPaint ? place : null; // the last painted cell
    if (this.painted) this.onPaint([place]);
  }

  onMove(event) {
    if (this.fingers.has(event.pointerId))
      this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (this.fingers.size > 1) {
      this.onPinch();
      return;
    }
    const place = this.cellAt(event);
    this.hover(place);
    if (!this.pressed) return;
    const [x, y] = [event.clientX - this.pressed.x, event.clientY - this.pressed.y];
    if (!this.pressed.hasMoved && Math.hypot(x, y) < DRAG_STARTS) return;
    if (this.onPaint) {
      this.pressed.hasMoved = true;
      this.paintTo(place);
    } else if (this.zoom.size > 1) {
      this.moveBy(-x, -y);
      this.pressed = { x: event.clientX, y: event.clientY, hasMoved: true };
    }
  }

  // Paint the cells from the last painted one to this one. place: null outside the matrix; the
  // next cell then begins a new stroke.
  paintTo(place) {
    const cells =
      place === null ? [] : this.painted === null ? [place] : cellsBetween(this.painted, place);
    this.painted = place;
    if (cells.length) this.onPaint(cells);
  }

  onUp(event) {
    const place = this.cellAt(event);
    if (this.pressed && !this.pressed.hasMoved && place && !this.onPaint) this.pick(place);
    this.release(event);
  }

  release(event) {
    this.fingers.delete(event.pointerId);
    this.pressed = null;
  }

  // The distance between two fingers.
  get spread() {
    const [[x0, y0], [x1, y1]] = this.fingers.values();
    return Math.hypot(x1 - x0, y1 - y0) || 1;
  }

  onPinch() {
    const box = this.canvas.getBoundingClientRect();
    const [[x0, y0], [x1, y1]] = this.fingers.values();
    this.zoomTo(
      (this.pinch.size * this.spread) / this.pinch.distance,
      (x0 + x1) / 2 - box.left - this.left,
      (y0 + y1) / 2 - box.top - this.top,
    );
  }

  pick(place) {
    this.select(...place);
    this.onPick?.(...place);
  }

  hover(place) {
    if (String(place) === String(this.hovered)) return;
    this.hovered = place;
    this.canvas.title = place ? this.sentence(...place) : "";
    this.draw();
  }

  onKey(event) {
    const move = ARROWS[event.key];
    if (move !== undefined && this.T && this.S) {
      event.preventDefault();
      const [row, column] = this.chosen ?? [0, -move[1]];
      const limit = (i, n) => Math.min(Math.max(i, 0), n - 1);
      const place = [limit(row + move[0], this.T), limit(column + move[1], this.S)];
      this.reveal(place);
      this.pick(place);
    } else if ((event.key === "Enter" || event.key === " ") && this.chosen) {
      event.preventDefault();
      if (this.onPaint) this.onPaint([this.chosen]);
      else this.onPick?.(...this.chosen);
    } else if (event.key === "+" || event.key === "=") this.zoomTo(this.zoom.size * 1.3);
    else if (event.key === "-") this.zoomTo(this.zoom.size / 1.3);
    else if (event.key === "0") this.zoomTo(1);
  }

  reveal([row, column]) {
    const shift = (place, start, length) =>
      Math.min(0, place * this.cell - start) +
      Math.max(0, (place + 1) * this.cell - start - length);
    this.moveBy(
      shift(column, this.zoom.x, this.width - this.left),
      shift(row, this.zoom.y, this.height - this.top),
    );
  }

  sentence(row, column) {
    const name = (names, i) => (names[i] === undefined ? `${i}` : `${names[i]} (${i})`);
    return `row ${name(this.rows, row)}, column ${name(this.columns, column)}: ${number(this.value(row, column))}`;
  }

  describe() {
    this.words.textContent = this.chosen && this.data ? this.sentence(...this.chosen) : "";
  }

  toSVG() {
    return drawMatrixSVG(this);
  }
}

function shorten(pen, text) {
  let short = text;
  while (short.length > 1 && pen.measureText(short).width > MOST_LABEL)
    short = `${short.slice(0, -2)}…`;
  return short;
}
