// Sinusoidal and learned positions: the table, its columns as waves, and how alike two positions are.
import { lineChart } from "../charts.js";
import { clear, make } from "../dom.js";
import { number } from "../format.js";
import { panel } from "../panel.js";
import { listNumbers } from "./number_grid.js";
import { redraw } from "./redraw.js";
import {
  drawClocks,
  explainLines,
  findCell,
  makeMatrixPanel,
  outlineCell,
} from "./position_parts.js";

const MOST_WAVES = 6;
const MOST_CLOCKS = 12;
export const MOST_PRODUCTS = 4; // of a dot product that are written out

export function makeTableParts(page) {
  const table = makeMatrixPanel(page, "The table", "table", {
    note: "A row for each position, a column for each number of it. Click a cell to see how it is computed.",
  });
  const similar = makeMatrixPanel(page, "How alike are two positions? p · p′", "similarity", {
    note: "The product of every two rows of the table: what attention sees of two positions.",
  });
  const [spread, clocks, explanation, waves, dims] = [
    make("p", { class: "spread" }),
    make("div", { class: "stack" }),
    make("div"),
    make("div"),
    make("div", { class: "chips", attributes: { role: "group", "aria-label": "dimensions" } }),
  ];
  similar.node.querySelector(".panel-body").append(spread);
  const wavePanel = panel(
    "Columns as waves",
    {
      name: "positions-waves",
      python: () => page.answer?.python ?? "",
      note: "How a number of the position changes along the sequence. Choose up to six dimensions.",
    },
    dims,
    waves,
  );
  const cellPanel = panel(
    "This cell",
    { saves: false, python: () => page.answer?.python ?? "" },
    explanation,
    clocks,
  );

  function draw(answer) {
    const cell = findCell(
      page.state.cell,
      { table: answer.table, similarity: answer.similarity },
      { name: "table", row: 1, column: 2 },
    );
    table.matrix.show(answer.table, {
      rows: listNumbers(answer.table.shape[0]),
      columns: listNumbers(answer.table.shape[1]),
    });
    similar.matrix.show(answer.similarity, {
      rows: listNumbers(answer.table.shape[0]),
      columns: listNumbers(answer.table.shape[0]),
    });
    for (const part of [table, similar]) outlineCell(part, cell);
    spread.textContent = describeSpread(answer.spread);
    clear(
      explanation,
      cell.name === "table"
        ? explainTable(answer, cell, page.state)
        : explainSimilarity(answer, cell),
    );
    clear(
      clocks,
      answer.angles === undefined
        ? null
        : [
            make("p", {
              class: "note",
              text: `Position ${cell.row} as clock hands. Each hand is a pair of columns: sine up, cosine to the right.`,
            }),
            drawPairs(answer, cell.row),
          ],
    );
    drawWaves(answer);
  }

  function drawWaves(answer) {
    const [n, d] = answer.table.shape;
    const chosen = page.state.dims.filter((i) => i < d);
    const change = (i) =>
      page.set(
        {
          dims: chosen.includes(i)
            ? chosen.filter((each) => each !== i)
            : [...chosen, i].slice(-MOST_WAVES),
        },
        false,
      );
    redraw(
      dims,
      listNumbers(d).map((name, i) =>
        make("button", {
          type: "button",
          class: "chip small",
          text: name,
          attributes: { "aria-pressed": String(chosen.includes(i)) },
          on: { click: () => change(i) },
        }),
      ),
    );
    const kind = (i) => (answer.angles === undefined ? "" : i % 2 ? " (cos)" : " (sin)");
    const series = chosen.map((i) => ({
      name: `dimension ${i}${kind(i)}`,
      points: listNumbers(n).map((_, p) => [p, answer.table.at(p, i)]),
    }));
    clear(waves, lineChart({ series, x: "position", y: "value" }));
  }

  return {
    nodes: [
      make("div", { class: "columns" }, table.node, similar.node),
      make("div", { class: "columns" }, cellPanel, wavePanel),
    ],
    cell: cellPanel,
    draw,
  };
}

export function describeSpread(spread) {
  const size = `Products of positions at the same distance differ by at most ${number(spread)}`;
  return spread < 1e-9
    ? `${size}: only the distance counts.`
    : `${size}: not only the distance counts.`;
}

function drawPairs(answer, p) {
  const pairs = listNumbers(Math.min(MOST_CLOCKS, answer.angles.shape[1]));
  return drawClocks(
    pairs.map((_, i) => answer.angles.at(p, i)),
    pairs.map((i) => `pair ${i}`),
  );
}

function explainTable(answer, { row: p, column }, { d, base }) {
  const value = number(answer.table.at(p, column));
  if (answer.angles === undefined)
    return explainLines(
      `PE[${p}, ${column}]`,
      "No formula: drawn from N(0, 0.02²), then learned like any other weight.",
      [`PE[${p}, ${column}] = ${value}`],
    );
  const i = Math.floor(column / 2);
  const wave = column % 2 ? "cos" : "sin";
  return explainLines(
    `PE[${p}, ${column}] = ${wave}(p / base^(2i/d))`,
    `Columns ${2 * i} and ${2 * i + 1} are pair i = ${i}. Both share one angle, which grows with the position p.`,
    [
      `angle = ${p} / ${base}^(2·${i}/${d}) = ${p} · ${number(answer.frequencies.at(i), 6)} = ${number(answer.angles.at(p, i))}`,
      `PE[${p}, ${column}] = ${wave}(${number(answer.angles.at(p, i))}) = ${value}`,
    ],
  );
}

function explainSimilarity(answer, { row, column }) {
  const d = answer.table.shape[1];
  const value = number(answer.similarity.at(row, column));
  const products = listNumbers(Math.min(d, MOST_PRODUCTS)).map(
    (_, i) => `${number(answer.table.at(row, i))} · ${number(answer.table.at(column, i))}`,
  );
  const lines = [
    `p[${row}] · p[${column}] = ${products.join(" + ")}${d > MOST_PRODUCTS ? ` + … (${d} products)` : ""} = ${value}`,
  ];
  const words =
    answer.angles === undefined
      ? "Random rows: alike only with themselves."
      : "Each pair adds sin a sin b + cos a cos b = cos(a − b), so only the distance of the two positions counts.";
  if (answer.angles !== undefined && d % 2 === 0) {
    const waves = listNumbers(Math.min(d / 2, MOST_PRODUCTS)).map(
      (_, i) => `cos(${row - column} · ${number(answer.frequencies.at(i))})`,
    );
    lines.push(
      `            = ${waves.join(" + ")}${d / 2 > MOST_PRODUCTS ? " + …" : ""} = ${value}`,
    );
  }
  return explainLines(`p[${row}] · p[${column}]`, words, lines);
}
