// A small matrix as coloured cells with their numbers; its cells can be changed, or chosen.
//
// To change a cell: drag it up or down, or focus it and press an arrow key up or down, or type a number.
// Left and right go to its neighbours. It is drawn as SVG, so that a panel can save it.
import { NumberArray } from "../array.js";
import {
  cssColour,
  inkOn,
  isDark,
  onColourScheme,
  signedColour,
  weightColour,
} from "../colours.js";
import { ARROWS, clear, make, svg } from "../dom.js";
import { number } from "../format.js";
import { largest } from "../thumb.js";

const CELL = { width: 42, height: 26 };
const GUTTER = { left: 54, top: 20 };
const DRAG_BEGINS = 3; // pixels
const MOST_VALUE = 1e6;

// A number that fits into a cell: two digits after the point, none for whole and large numbers.
export function formatEntry(x) {
  const size = Math.abs(x);
  if (!Number.isFinite(x) || size >= 1e4) return number(x, 0);
  if (Number.isInteger(x)) return number(x, 0);
  if (size >= 100) return number(x, 0);
  return size < 0.005 ? "0.00" : number(x, 2);
}

// The names "0" … "n − 1" of rows or columns.
export const listNumbers = (n) => Array.from({ length: n }, (_, i) => String(i));

export class NumberGrid {
  // onEdit(row, column, value): the cells can be changed; onPick(row, column): they can be chosen.
  constructor({ label, colour = "signed", onEdit = null, onPick = null }) {
    Object.assign(this, { label, colour, onEdit, onPick });
    this.picture = svg("svg", {
      class: onEdit === null ? "number-grid" : "number-grid editable",
      role: "group",
      "aria-label": label,
    });
    this.node = make("div", { class: "number-grid-box" }, this.picture);
    this.current = [0, 0]; // the cell that Tab reaches
    this.chosen = null;
    this.shape = [0, 0];
    this.stopColours = onColourScheme(() => this.values && this.paint());
  }

  // values (T, S); rows, columns: the names of both.
  show(values, { rows = [], columns = [], scale = null } = {}) {
    const names = JSON.stringify([values.shape, rows, columns]);
    // An editable grid changes a copy: the answer itself is kept, for “save page”.
    const own =
      this.onEdit === null ? values : new NumberArray(values.shape, Float64Array.from(values.data));
    Object.assign(this, { values: own, rows, columns, scale, shape: values.shape });
    if (names !== this.names) this.build();
    this.names = names;
    this.paint();
    return this;
  }

  select(row, column) {
    this.chosen = row === null ? null : [row, column];
    this.paint();
  }

  value(row, column) {
    return this.values.data[row * this.shape[1] + column];
  }

  // Drawing

  build() {
    const [T, S] = this.shape;
    this.current = [Math.min(this.current[0], T - 1), Math.min(this.current[1], S - 1)];
    const [width, height] = [GUTTER.left + S * CELL.width + 2, GUTTER.top + T * CELL.height + 2];
    for (const [name, value] of Object.entries({
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
    }))
      this.picture.setAttribute(name, value);
    const label = (text, x, y, anchor) =>
      svg(
        "text",
        { class: "grid-name", x, y, "text-anchor": anchor },
        svg("title", {}, text),
        text.slice(0, 9),
      );
    this.cells = Array.from({ length: T }, (_, row) =>
      Array.from({ length: S }, (__, column) => this.makeCell(row, column)),
    );
    clear(
      this.picture,
      svg("text", { class: "grid-title", x: 2, y: GUTTER.top - 6 }, this.label),
      this.rows.map((name, i) =>
        label(name, GUTTER.left - 6, GUTTER.top + (i + 0.5) * CELL.height + 4, "end"),
      ),
      this.columns.map((name, i) =>
        label(name, GUTTER.left + (i + 0.5) * CELL.width, GUTTER.top - 6, "middle"),
      ),
      this.cells.flat().map(({ node }) => node),
    );
  }

  makeCell(row, column) {
    const [x, y] = [GUTTER.left + column * CELL.width, GUTTER.top + row * CELL.height];
    const box = svg("rect", {
      x: x + 1,
      y: y + 1,
      width: CELL.width - 2,
      height: CELL.height - 2,
      rx: 4,
    });
    const text = svg("text", {
      class: "grid-number",
      x: x + CELL.width / 2,
      y: y + CELL.height / 2 + 4,
      "text-anchor": "middle",
    });
    const node = svg("g", { class: "grid-cell", "data-cell": `${row},${column}` }, box, text);
    if (this.onEdit !== null) this.makeEditable(node, row, column);
    else if (this.onPick !== null) this.makePickable(node, row, column);
    return { node, box, text };
  }

  paint() {
    const scale = this.scale ?? (this.colour === "signed" ? largest(this.values) : 1);
    const colourOf = this.colour === "signed" ? signedColour : weightColour;
    this.cells.forEach((line, row) =>
      line.forEach(({ node, box, text }, column) => {
        const x = this.value(row, column);
        const isChosen = String(this.chosen) === String([row, column]);
        const look = [
          x,
          scale,
          isChosen,
          String(this.current) === String([row, column]),
          isDark(),
        ].join();
        if (node.look === look) return; // most cells stay as they are while one is dragged
        node.look = look;
        const colour = colourOf(x / scale);
        box.setAttribute("fill", cssColour(colour));
        text.setAttribute("fill", inkOn(colour));
        text.textContent = formatEntry(x);
        node.classList.toggle("chosen", isChosen);
        this.describeCell(node, row, column, x, isChosen);
      }),
    );
  }

  describeCell(node, row, column, x, isChosen) {
    if (this.onEdit === null && this.onPick === null) return;
    const name = (names, i) => (names[i] === undefined ? String(i) : names[i]);
    const place = `${this.label}, row ${name(this.rows, row)}, column ${name(this.columns, column)}`;
    node.setAttribute("tabindex", String(this.current) === String([row, column]) ? 0 : -1);
    node.setAttribute("aria-label", this.onEdit === null ? `${place}: ${formatEntry(x)}` : place);
    if (this.onEdit !== null) {
      node.setAttribute("aria-valuenow", x);
      node.setAttribute("aria-valuetext", formatEntry(x));
    } else node.setAttribute("aria-pressed", String(isChosen));
  }

  leave() {
    this.stopColours();
  }

  focus(row, column) {
    const [T, S] = this.shape;
    const place = row * S + column;
    if (place < 0 || place >= T * S || row < 0) return;
    this.current = [Math.floor(place / S), place % S];
    this.paint();
    this.cells[this.current[0]][this.current[1]].node.focus({ preventScroll: true });
  }

  // Choosing a cell

  makePickable(node, row, column) {
    node.setAttribute("role", "button");
    const pick = (r, c) => {
      this.focus(r, c);
      this.select(...this.current);
      this.onPick(...this.current);
    };
    node.addEventListener("click", () => pick(row, column));
    node.addEventListener("keydown", (event) => {
      const moves = { ...ARROWS, Enter: [0, 0], " ": [0, 0] };
      const move = moves[event.key];
      if (move === undefined) return;
      event.preventDefault();
      const limit = (i, n) => Math.min(Math.max(i, 0), n - 1);
      pick(limit(row + move[0], this.shape[0]), limit(column + move[1], this.shape[1]));
    });
  }

  // Changing a cell

  makeEditable(node, row, column) {
    node.setAttribute("role", "spinbutton");
    node.classList.add("editable");
    node.append(svg("title", {}, "drag up or down, press an arrow key, or type a number"));
    let start = null;
    node.addEventListener("pointerdown", (event) => {
      this.focus(row, column);
      node.setPointerCapture(event.pointerId);
      start = { y: event.clientY, value: this.value(row, column), step: this.step };
    });
    node.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const distance = start.y - event.clientY;
      if (Math.abs(distance) < DRAG_BEGINS && !start.hasMoved) return;
      start.hasMoved = true;
      this.edit(row, column, start.value + Math.round(distance) * start.step, start.step);
    });
    for (const name of ["pointerup", "pointercancel"])
      node.addEventListener(name, () => {
        start = null;
      });
    node.addEventListener("dblclick", () => this.type(row, column));
    node.addEventListener("keydown", (event) => this.onEditKey(event, row, column));
  }

  // The change for each pixel of a drag, about a hundredth of the largest number. An arrow key changes ten times that.
  get step() {
    return Math.max(0.001, 10 ** Math.floor(Math.log10(largest(this.values) / 50)));
  }

  onEditKey(event, row, column) {
    const { key, shiftKey, ctrlKey, metaKey, altKey } = event;
    const size = this.step * (shiftKey ? 1 : 10);
    const change = { ArrowUp: size, ArrowDown: -size, PageUp: 10 * size, PageDown: -10 * size }[
      key
    ];
    const isMove = ctrlKey || altKey;
    if (metaKey || (isMove && !key.startsWith("Arrow"))) return;
    if (isMove && change !== undefined) this.focus(row - Math.sign(change), column);
    else if (change !== undefined)
      this.edit(row, column, this.value(row, column) + change, this.step);
    else if (key === "ArrowLeft" || key === "ArrowRight")
      this.focus(row, column + (key === "ArrowLeft" ? -1 : 1));
    else if (key === "Backspace" || key === "Delete") this.edit(row, column, 0, 1);
    else if (/^[-+.,\d]$/.test(key)) this.type(row, column, key);
    else if (key === "Enter" || key === "F2") this.type(row, column);
    else return;
    event.preventDefault();
  }

  edit(row, column, value, step) {
    const rounded = Number((Math.round(value / step) * step).toPrecision(10));
    this.put(row, column, rounded);
  }

  put(row, column, value) {
    const next = Math.min(Math.max(value, -MOST_VALUE), MOST_VALUE);
    if (!Number.isFinite(next) || next === this.value(row, column)) return;
    this.values.data[row * this.shape[1] + column] = next;
    this.paint();
    this.onEdit(row, column, next);
  }

  // Show an input over the cell. Enter, or leaving it, sets the number; Escape drops it.
  type(row, column, first = null) {
    const input = make("input", {
      class: "grid-input",
      type: "text",
      value: first ?? String(this.value(row, column)),
      ariaLabel: `${this.label}: new number`,
      attributes: { inputmode: "decimal" },
    });
    Object.assign(input.style, {
      left: `${GUTTER.left + column * CELL.width}px`,
      top: `${GUTTER.top + row * CELL.height}px`,
    });
    let isOpen = true;
    const close = ({ sets, refocuses }) => {
      if (!isOpen) return;
      isOpen = false;
      const value = Number(input.value.trim().replace("−", "-").replace(",", "."));
      input.remove();
      if (sets && input.value.trim() !== "") this.put(row, column, value);
      if (refocuses) this.focus(row, column);
    };
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" || event.key === "Escape")
        close({ sets: event.key === "Enter", refocuses: true });
    });
    input.addEventListener("blur", () => close({ sets: true, refocuses: false }));
    this.node.append(input);
    input.focus();
    if (first === null) input.select();
  }
}
