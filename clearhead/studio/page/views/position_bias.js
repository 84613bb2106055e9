// Toeplitz and ALiBi: the bias of each distance, and the attention that this bias alone makes.
import { NumberArray } from "../array.js";
import { bars } from "../charts.js";
import { clear, make } from "../dom.js";
import { inBrackets, number } from "../format.js";
import { button, panel } from "../panel.js";
import { formatEntry, listNumbers, NumberGrid } from "./number_grid.js";
import { redraw } from "./redraw.js";
import { explainLines, findCell, makeMatrixPanel, outlineCell } from "./position_parts.js";
import { largest } from "../thumb.js";

// Weights by distance j − i, to begin with.
const PATTERNS = {
  "the token before": (distance) => (distance === -1 ? 16 : 0),
  "near tokens": (distance) => -2 * Math.abs(distance),
  "the next token": (distance) => (distance === 1 ? 16 : 0),
  "every third": (distance) => (distance % 3 === 0 ? 16 : 0),
  nothing: () => 0,
};

export function makeBiasParts(page) {
  const isToeplitz = page.state.scheme === "toeplitz";
  const bias = makeMatrixPanel(page, "The bias: query i, key j", "bias", {
    note: isToeplitz
      ? "bias[i, j] = m[j − i]: each row is the row above, moved one step to the right."
      : "bias[i, j] = −slope · |i − j|",
  });
  const attention = makeMatrixPanel(page, "Attention by this bias alone", "attention", {
    colour: "weight",
    note: "If q and k are 0, only positions decide where a head looks.",
  });
  const [explanation, first] = [make("div"), isToeplitz ? makeWeights(page) : makeSlopes(page)];
  const cellPanel = panel(
    "This cell",
    { saves: false, python: () => page.answer?.python ?? "" },
    explanation,
  );

  function draw(answer) {
    const head = Math.min(page.state.head, answer.bias.shape[0] - 1);
    const n = answer.bias.shape[1];
    const arrays = { bias: answer.bias.part(head), attention: answer.attention.part(head) };
    const cell = findCell(page.state.cell, arrays, { name: "bias", row: 3, column: 2 });
    for (const part of [bias, attention]) {
      part.matrix.show(arrays[part.name], {
        rows: listNumbers(n),
        columns: listNumbers(n),
        scale: largest(arrays[part.name]),
      });
      outlineCell(part, cell);
    }
    first.draw(answer, head);
    clear(explanation, explainBias(answer, arrays, cell, head, page.state));
  }

  return {
    nodes: [first.node, make("div", { class: "columns" }, bias.node, attention.node), cellPanel],
    cell: cellPanel,
    draw,
    leave: () => first.leave?.(),
  };
}

// The weights of Toeplitz, which can be changed.
function makeWeights(page) {
  const grid = new NumberGrid({
    label: "m",
    onEdit: (_, column, value) => {
      const weights = [...page.answer.weights.data];
      if (page.state.weights !== null) weights.splice(0, weights.length, ...page.state.weights);
      weights[column] = value;
      page.set({ weights });
    },
  });
  const set = (pattern) => {
    const { n } = page.state;
    page.set({ weights: Array.from({ length: 2 * n - 1 }, (_, i) => pattern(i - (n - 1))) });
  };
  const presets = Object.entries(PATTERNS).map(([name, pattern]) =>
    button(name, () => set(pattern)),
  );
  const box = make("div", { class: "scroll" }, grid.node);
  const node = panel(
    "The weights m by distance j − i",
    {
      name: "positions-weights",
      python: () => page.answer?.python ?? "",
      note: "Below 0: keys before the query; above 0: keys after it. Drag a cell up or down, or choose a pattern.",
    },
    make("div", { class: "row" }, presets),
    box,
  );
  let shown = 0;
  const draw = (answer) => {
    const n = answer.bias.shape[1];
    const values = page.state.weights ?? [...answer.weights.data];
    if (values.length !== 2 * n - 1) return; // the slider has moved since the question: an answer for the new n will come
    grid.show(new NumberArray([1, values.length], Float64Array.from(values)), {
      rows: ["m"],
      columns: values.map((_, i) => formatEntry(i - (n - 1))),
    });
    if (shown !== n) box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2; // distance 0 in the middle
    shown = n;
  };
  return { node, draw, leave: () => grid.leave() };
}

function makeSlopes(page) {
  const box = make("div");
  const node = panel(
    "The slope of each head",
    {
      saves: false,
      python: () => page.answer?.python ?? "",
      note: "slope[h] = 2^(−8(h+1)/H) for heads h = 0 … H−1, if H is a power of two. A head with a steep slope looks only at near tokens. Choose a head.",
    },
    box,
  );
  const draw = (answer, head) =>
    redraw(
      box,
      bars({
        labels: [...answer.slopes.data].map((_, h) => `head ${h}`),
        values: [...answer.slopes.data],
        chosen: head,
        onPick: (h) => page.set({ head: h }, false),
        label: "slopes",
      }),
    );
  return { node, draw };
}

function explainBias(
  answer,
  { bias, attention },
  { name, row: i, column: j },
  head,
  { scheme, d, causal },
) {
  const n = bias.shape[0];
  const value = number(bias.at(i, j));
  const lines = [
    scheme === "toeplitz"
      ? `bias[${i}, ${j}] = m[${j} − ${i}] = m[${formatEntry(j - i)}] = ${value}`
      : `bias[${i}, ${j}] = −slope[${head}] · |${i} − ${j}| = −${number(answer.slopes.at(head))} · ${Math.abs(i - j)} = ${value}`,
  ];
  if (name === "attention")
    lines.push(
      ...explainShare(
        bias.part(i).data,
        attention.at(i, j),
        j,
        causal ? i + 1 : n,
        scheme === "toeplitz" ? Math.sqrt(d) : 1,
        d,
        scheme,
      ),
    );
  return explainLines(
    name === "bias" ? `bias[${i}, ${j}]` : `attention[${i}, ${j}]`,
    `Query at position ${i}, key at position ${j}.`,
    lines,
  );
}

function explainShare(row, weight, j, allowed, scale, d, scheme) {
  if (j >= allowed)
    return ["The key is later than the query, and the mask forbids it: the weight is 0."];
  const scores = [...row].slice(0, allowed).map((x) => x / scale);
  const most = Math.max(...scores);
  const powers = scores.map((x) => Math.exp(x - most));
  const sum = powers.reduce((total, x) => total + x, 0);
  return [
    scheme === "toeplitz"
      ? `score = (0 + ${number(row[j])}) / √${d} = ${number(scores[j])}`
      : `score = 0 / √d + ${number(row[j])} = ${number(scores[j])}   (added after the division)`,
    `weight = exp(${number(scores[j])} − ${inBrackets(most)}) / ${number(sum)} = ${number(powers[j])} / ${number(sum)} = ${number(weight)}`,
  ];
}
