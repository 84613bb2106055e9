// The parts that the position schemes share: a matrix whose cells can be chosen, lines of an equation, clock hands.
import { make, svg } from "../dom.js";
import { Matrix } from "../matrix.js";
import { panel } from "../panel.js";

// A panel with a matrix. A click on a cell chooses the cell that is explained.
export function makeMatrixPanel(
  page,
  title,
  name,
  { note = "", colour = "signed", label = title } = {},
  ...children
) {
  const matrix = new Matrix({
    label,
    colour,
    onPick: (row, column) => page.set({ cell: { name, row, column } }, false),
  });
  const node = panel(
    title,
    {
      name: `positions-${name}`,
      note,
      python: () => page.answer?.python ?? "",
      explainAt: () => page.parts.cell,
    },
    matrix.node,
    children,
  );
  return { name, matrix, node };
}

// Outline the chosen cell in this matrix; if it is a cell of another matrix, outline none.
export function outlineCell({ matrix, name }, cell) {
  if (cell?.name === name)
    matrix.select(Math.min(cell.row, matrix.T - 1), Math.min(cell.column, matrix.S - 1));
  else matrix.select(null);
}

// The chosen cell, limited to the size of its matrix; the fallback if none of these matrices has it.
export function findCell(cell, arrays, fallback) {
  const { name, row, column } = cell !== null && cell.name in arrays ? cell : fallback;
  const [T, S] = arrays[name].shape.slice(-2);
  return { name, row: Math.min(row, T - 1), column: Math.min(column, S - 1) };
}

export function explainLines(title, words, lines) {
  return make(
    "div",
    { class: "stack" },
    make("h3", { text: title }),
    make("p", { class: "note", text: words }),
    lines.map((text) => make("p", { class: "mono equation", text })),
  );
}

const CLOCK = 62; // pixels

// A circle with a hand for each angle; names below; lengths: of the hands, at most 1.
export function drawClocks(angles, names, lengths = null) {
  const radius = CLOCK / 2 - 4;
  const clocks = angles.map((angle, i) => {
    const long = radius * (lengths === null ? 1 : lengths[i]);
    const [x, y] = [CLOCK / 2 + long * Math.cos(angle), CLOCK / 2 - long * Math.sin(angle)];
    return svg(
      "g",
      { transform: `translate(${i * (CLOCK + 6)} 0)` },
      svg("circle", { class: "clock", cx: CLOCK / 2, cy: CLOCK / 2, r: radius }),
      svg("line", { class: "clock-hand", x1: CLOCK / 2, y1: CLOCK / 2, x2: x, y2: y }),
      svg("circle", { class: "clock-tip", cx: x, cy: y, r: 3.5 }),
      svg(
        "text",
        { class: "clock-name", x: CLOCK / 2, y: CLOCK + 12, "text-anchor": "middle" },
        names[i],
      ),
    );
  });
  const width = angles.length * (CLOCK + 6);
  return make(
    "div",
    { class: "scroll" },
    svg(
      "svg",
      { class: "clocks", width, height: CLOCK + 18, viewBox: `0 0 ${width} ${CLOCK + 18}` },
      clocks,
    ),
  );
}
