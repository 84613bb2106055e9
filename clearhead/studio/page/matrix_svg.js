// The whole of a matrix, unzoomed, as SVG: a rectangle for each cell, its number if there is room, and the names
// of rows and columns.
import { cssColour, inkOn, signedColour, weightColour } from "./colours.js";
import { svg } from "./dom.js";
import { number } from "./format.js";

export const MOST_CELL = 46; // pixels of a cell before zooming
export const LEAST_LABELLED = 11; // pixels of a cell that still has room for its label
export const LEAST_NUMBERED = 40; // pixels of a cell that has room for its number

export function drawMatrixSVG(matrix) {
  const size = Math.max(4, Math.min(MOST_CELL, 900 / Math.max(matrix.S, 1)));
  const [left, top] = [matrix.rows.length ? 100 : 2, matrix.columns.length ? 100 : 2];
  const attributes = { width: left + size * matrix.S + 2, height: top + size * matrix.T + 2 };
  const picture = svg("svg", {
    ...attributes,
    viewBox: `0 0 ${attributes.width} ${attributes.height}`,
  });
  const text = {
    "font-size": 11,
    "font-family": "sans-serif",
    "dominant-baseline": "middle",
    fill: "currentColor",
  };
  const paint = matrix.colour === "signed" ? signedColour : weightColour;
  for (let row = 0; row < matrix.T; row += 1) {
    for (let column = 0; column < matrix.S; column += 1) {
      const [value, x, y] = [matrix.value(row, column), left + column * size, top + row * size];
      const colour = paint(value / matrix.scale);
      picture.append(svg("rect", { x, y, width: size, height: size, fill: cssColour(colour) }));
      if (size >= LEAST_NUMBERED)
        picture.append(
          svg(
            "text",
            {
              ...text,
              x: x + size / 2,
              y: y + size / 2,
              "text-anchor": "middle",
              fill: inkOn(colour),
            },
            formatInCell(value),
          ),
        );
    }
  }
  if (size >= LEAST_LABELLED) {
    matrix.rows.forEach((name, i) =>
      picture.append(
        svg(
          "text",
          { ...text, x: left - 6, y: top + (i + 0.5) * size, "text-anchor": "end" },
          name,
        ),
      ),
    );
    matrix.columns.forEach((name, i) => {
      const x = left + (i + 0.5) * size;
      picture.append(
        svg("text", { ...text, x, y: top - 6, transform: `rotate(-90 ${x} ${top - 6})` }, name),
      );
    });
  }
  return picture;
}

// Two digits after the point, or none from 100 on: a cell has little room. A number that rounds to 0 is 0.
export function formatInCell(x) {
  return Math.abs(x) < 0.005 ? "0" : number(x, Math.abs(x) >= 100 ? 0 : 2);
}
