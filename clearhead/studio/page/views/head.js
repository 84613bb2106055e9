// The open head: all heads to choose from, its matrix, its lines, the bars of a row, and the chosen cell.
import { bars } from "../charts.js";
import { clear, make } from "../dom.js";
import { number, tokenName } from "../format.js";
import { Matrix } from "../matrix.js";
import { panel, refreshExplanation } from "../panel.js";
import { explainCell, readMaskRow, writeEquation } from "./cell.js";
import { writeCellPython, writeHeadPython } from "./cell_python.js";
import { HeadGrid, findScale } from "./head_grid.js";
import { makeMaskTools, paintCells } from "./intervene.js";
import { TokenLines } from "./token_lines.js";

const MOST_BARS = 24;

export function makeHeadPanels(page, copy) {
  const grid = new HeadGrid({
    label: "all heads",
    onOpen: (layer, head) => page.set({ layer, head, column: null }),
    onDrop: (text) => copy.drop(text, null),
  });
  const matrix = new Matrix({
    label: "attention weights; rows are queries, columns keys",
    onPick: (row, column) => page.set({ row, column }),
  });
  const lines = new TokenLines({ onPick: (row) => page.set({ row, column: null }) });
  const title = make("p", { class: "note" });
  const rowTitle = make("h3");
  const row = make("div");
  const steps = make("div");
  const cellTitle = make("p", { class: "note" });
  const python = () => page.answer.python;
  const legend = make("p", { class: "note" });
  const mask = makeMaskTools(page);
  const equation = () => {
    const { answer, shown } = page;
    return writeEquation(answer.layers[shown.layer], shown.head, shown.row, shown.column);
  };
  const map = panel(
    "One head",
    {
      python: () => writeHeadPython(page.answer, page.shown),
      name: "attention-head",
      explain: equation,
    },
    title,
    make(
      "div",
      { class: "head-open" },
      make("div", { class: "stack" }, mask.node, matrix.node, legend),
      make(
        "div",
        { class: "stack" },
        make("h3", { text: "From each token (left) to those it looks at (right)" }),
        lines.node,
      ),
      make("div", { class: "stack" }, rowTitle, row),
    ),
  );
  const parts = {
    grid: panel(
      "All heads",
      {
        python,
        name: "attention",
        note: "Each square is a head: a row for every token that looks (the query), a column for every token it can look at (the key). The stronger the colour, the more attention.",
      },
      make("div", { class: "scroll" }, grid.node),
      copy.heads,
    ),
    map,
    cell: panel(
      "This cell, number by number",
      { python: () => writeCellPython(page.answer, page.shown), name: "cell", saves: false },
      cellTitle,
      steps,
    ),
    draw(answer, shown) {
      const layer = answer.layers[shown.layer];
      const weights = layer.weights.part(shown.head);
      const { names } = answer;
      grid.show(answer.layers, shown);
      matrix.onPaint = shown.paint === "off" ? undefined : (cells) => paintCells(page, cells);
      matrix.show(weights, { rows: names, columns: names, scale: findScale(weights) });
      matrix.select(shown.row, shown.column);
      matrix.mark(listEdited(shown.changes, layer.name, shown.head));
      mask.draw(shown);
      lines.show(weights, names, shown.row);
      drawRow(layer, names, shown);
      title.textContent = `${layer.title} · head ${shown.head}${layer.heads > 1 ? ` (of 0–${layer.heads - 1})` : ""}, ${layer.mechanism} attention${describeWidth(layer)}. ${shown.changed.get(`${shown.layer},${shown.head}`) ?? ""}`;
      legend.textContent = `No colour means 0, the strongest colour ${number(findScale(weights), 2)} or more. Click a cell for its numbers; arrow keys move; + and − zoom, or the wheel after a click.`;
      cellTitle.textContent = `How much does ${quoteName(names, shown.row)} attend to ${quoteName(names, shown.column)} in ${layer.title}, head ${shown.head}? Weight ${number(weights.at(shown.row, shown.column))}.`;
      clear(steps, explainCell(layer, shown.head, shown.row, shown.column, names));
      refreshExplanation(map);
    },
  };

  // The weights of the chosen query, without later tokens that are masked; of a long row the largest.
  function drawRow(layer, names, shown) {
    const weights = layer.weights.part(shown.head, shown.row).data;
    const allowed = readMaskRow(layer.allowed, shown.head, shown.row);
    const isLater = (s) => allowed !== null && !allowed[s] && s > shown.row;
    const order = [...weights.keys()].filter((s) => !isLater(s));
    const n = order.length;
    if (n > MOST_BARS) order.sort((a, b) => weights[b] - weights[a] || a - b).splice(MOST_BARS);
    rowTitle.textContent = `Where ${quoteName(names, shown.row)} looks${n > MOST_BARS ? `: the ${MOST_BARS} largest of ${n} weights` : ""}`;
    clear(
      row,
      bars({
        label: "weights of the row",
        labels: order.map((s) => `${s} ${tokenName(names[s])}`),
        values: order.map((s) => weights[s]),
        max: n > MOST_BARS ? null : 1,
        chosen: order.indexOf(shown.column),
        onPick: (i) => page.set({ row: shown.row, column: order[i] }),
      }),
      n < weights.length
        ? make("p", {
            class: "note",
            text: "Later tokens are masked: a language model may not look ahead.",
          })
        : null,
    );
  }
  return parts;
}

const quoteName = (names, i) => `“${tokenName(names[i])}” (${i})`;

const describeWidth = (layer) =>
  layer.q === null ? "" : `, queries and keys of ${layer.q.shape[2]} numbers`;

function listEdited(changes, name, head) {
  return changes
    .filter((change) => change.kind === "mask" && change.layer === name && change.head === head)
    .flatMap(({ cells }) => cells);
}
