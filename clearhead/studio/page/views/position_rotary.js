// Rotary positions: the angles, q · k for all pairs of positions, and why only their distance counts.
import { NumberArray } from "../array.js";
import { lineChart } from "../charts.js";
import { clear, make } from "../dom.js";
import { inBrackets, number } from "../format.js";
import { panel } from "../panel.js";
import { listNumbers } from "./number_grid.js";
import {
  drawClocks,
  explainLines,
  findCell,
  makeMatrixPanel,
  outlineCell,
} from "./position_parts.js";
import { MOST_PRODUCTS, describeSpread } from "./position_table.js";

const MOST_HANDS = 12;

export function makeRotaryParts(page) {
  const turns = makeMatrixPanel(page, "How far each pair is turned: cos(angle)", "angles", {
    note: "A row for each position, a column for each pair of numbers of q or k. The first pair turns fast, the last slowly.",
  });
  const scores = makeMatrixPanel(page, "q at position i, k at position j: q · k", "scores", {
    note: "The same random q and the same random k at all positions. Along every diagonal q · k is the same.",
  });
  const [spread, curve, explanation, hands] = [
    make("p", { class: "spread" }),
    make("div"),
    make("div"),
    make("div", { class: "stack" }),
  ];
  const curvePanel = panel(
    "q · k by distance",
    {
      name: "positions-distance",
      python: () => page.answer?.python ?? "",
      note: "A line for each of three positions of the query. They lie on one curve, because only the distance i − j counts.",
    },
    curve,
    spread,
  );
  const cellPanel = panel(
    "This cell",
    { saves: false, python: () => page.answer?.python ?? "" },
    explanation,
    hands,
  );

  function draw(answer) {
    const [n, pairs] = answer.angles.shape;
    const cell = findCell(
      page.state.cell,
      { angles: answer.angles, scores: answer.scores },
      { name: "scores", row: 3, column: 1 },
    );
    turns.matrix.show(new NumberArray(answer.angles.shape, answer.angles.data.map(Math.cos)), {
      rows: listNumbers(n),
      columns: listNumbers(pairs),
      scale: 1,
    });
    scores.matrix.show(answer.scores, { rows: listNumbers(n), columns: listNumbers(n) });
    for (const part of [turns, scores]) outlineCell(part, cell);
    spread.textContent = describeSpread(answer.spread);
    clear(
      curve,
      lineChart({ series: listCurves(answer.scores, n), x: "distance i − j", y: "q · k" }),
    );
    clear(
      explanation,
      cell.name === "angles"
        ? explainRotation(answer, cell, page.state)
        : explainRotatedScore(answer, cell),
    );
    clear(
      hands,
      make("p", { class: "note", text: `The pairs of q at position ${cell.row}, as clock hands:` }),
      drawRotatedPairs(answer, cell.row),
    );
  }

  return {
    nodes: [
      make("div", { class: "columns" }, turns.node, scores.node),
      make("div", { class: "columns" }, cellPanel, curvePanel),
    ],
    cell: cellPanel,
    draw,
  };
}

// q · k by distance, for the query at the first, a middle and the last position.
function listCurves(scores, n) {
  return [0, Math.floor(n / 2), n - 1].map((i) => ({
    name: `query at ${i}`,
    points: listNumbers(n)
      .map((_, j) => [i - j, scores.at(i, j)])
      .reverse(),
  }));
}

function drawRotatedPairs(answer, p) {
  const half = answer.q.shape[0] / 2;
  const pairs = listNumbers(Math.min(MOST_HANDS, half));
  const points = pairs.map((_, i) => [answer.rotated_q.at(p, i), answer.rotated_q.at(p, i + half)]);
  const most = Math.max(...points.map(([x, y]) => Math.hypot(x, y)));
  return drawClocks(
    points.map(([x, y]) => Math.atan2(y, x)),
    pairs.map((i) => `pair ${i}`),
    points.map(([x, y]) => Math.hypot(x, y) / most),
  );
}

function explainRotation(answer, { row: p, column: i }, { base }) {
  const d = answer.q.shape[0];
  const [x, y, angle] = [answer.q.at(i), answer.q.at(i + d / 2), answer.angles.at(p, i)];
  return explainLines(
    `Pair ${i} at position ${p}`,
    `Columns ${i} and ${i + d / 2} of q are a point in a plane; it is turned by the angle.`,
    [
      `angle = ${p} / ${base}^(2·${i}/${d}) = ${p} · ${number(answer.frequencies.at(i), 6)} = ${number(angle)}, cos ${number(Math.cos(angle))}, sin ${number(Math.sin(angle))}`,
      `q′[${i}] = ${number(x)} · cos − ${inBrackets(y)} · sin = ${number(answer.rotated_q.at(p, i))}`,
      `q′[${i + d / 2}] = ${number(y)} · cos + ${number(x)} · sin = ${number(answer.rotated_q.at(p, i + d / 2))}`,
    ],
  );
}

function explainRotatedScore(answer, { row: i, column: j }) {
  const d = answer.q.shape[0];
  const products = listNumbers(Math.min(d, MOST_PRODUCTS)).map(
    (_, c) => `${number(answer.rotated_q.at(i, c))} · ${number(answer.rotated_k.at(j, c))}`,
  );
  return explainLines(
    `q at ${i} · k at ${j}`,
    `q is turned by position ${i}, k by position ${j}. Turning both by the same angle changes no product, so only the distance ${i - j} counts.`,
    [
      `q′[${i}] · k′[${j}] = ${products.join(" + ")}${d > MOST_PRODUCTS ? ` + … (${d} products)` : ""} = ${number(answer.scores.at(i, j))}`,
    ],
  );
}
