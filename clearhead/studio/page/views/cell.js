// How one weight is computed: every step from a query and a key to the output of the head.
//   q · k    + bias    ÷ √Dh    softmax over the row    × v
// All numbers come from one answer to "attend", so no further question is needed.
import { make } from "../dom.js";
import { inBrackets, number, tokenName } from "../format.js";

// The numbers of one cell. row: the index of the query; column: of the key.
export function computeCell(layer, head, row, column) {
  const weights = layer.weights.part(head, row).data;
  const mixed = mixValues(layer, head, weights, column);
  const allowed = readMaskRow(layer.allowed, head, row);
  if (layer.q === null) return { weights, weight: weights[column], allowed, ...mixed };
  const [q, keys] = [layer.q.part(head, row).data, layer.k.part(head)];
  const bias = readMaskRow(layer.bias, head, row);
  const k = keys.part(column).data;
  const products = [...q].map((value, d) => ({ d, q: value, k: k[d], product: value * k[d] }));
  const scores = [...weights].map((_, s) =>
    allowed !== null && !allowed[s]
      ? -Infinity
      : (dotProduct(q, keys.part(s).data) + (bias === null ? 0 : bias[s])) / layer.scale,
  );
  const most = Math.max(...scores);
  const exps = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - most)));
  return {
    weights,
    weight: weights[column],
    allowed,
    products,
    scores,
    most,
    exps,
    dot: dotProduct(q, k),
    bias: bias === null ? null : bias[column],
    raw: (dotProduct(q, k) + (bias === null ? 0 : bias[column])) / layer.scale,
    sum: exps.reduce((total, each) => total + each, 0),
    ...mixed,
  };
}

const dotProduct = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

// A row of mask or bias, (1 or H, T, S): one for all heads, or one for each; null if there is none.
export function readMaskRow(array, head, row) {
  return array === null ? null : array.part(array.shape[0] === 1 ? 0 : head, row).data;
}

// v: the value of the key; mixture: the values of all keys, each times its weight, added up.
function mixValues(layer, head, weights, column) {
  const values = layer.v.part(head);
  const v = values.part(column).data;
  const mixture = new Float64Array(v.length);
  weights.forEach((weight, s) =>
    values.part(s).data.forEach((value, d) => {
      mixture[d] += weight * value;
    }),
  );
  return { v, mixture };
}

// The steps as nodes. names: of the tokens.
export function explainCell(layer, head, row, column, names) {
  const cell = computeCell(layer, head, row, column);
  const [query, key] = [names[row], names[column]].map(quoteToken);
  const output = layer.output.part(head, row).data;
  const first =
    layer.q === null
      ? [explainOther(layer, cell, query, key)]
      : [
          explainProducts(cell, query, key),
          explainScore(layer, cell, query, key, column),
          explainSoftmax(cell, query, names, column),
        ];
  return make(
    "div",
    { class: "steps" },
    first,
    explainMixture(cell, output, query, key, first.length + 1),
  );
}

// The whole equation with the numbers of this cell, in one line.
export function writeEquation(layer, head, row, column) {
  const cell = computeCell(layer, head, row, column);
  if (layer.q === null)
    return make("p", { class: "equation mono", text: `weight = ${number(cell.weight)}` });
  const bias = cell.bias === null ? "" : ` + ${number(cell.bias)}`;
  return make(
    "div",
    { class: "stack" },
    make(
      "p",
      { class: "equation mono" },
      "weight = softmax",
      make("sub", { text: "keys" }),
      " ( (q · k",
      cell.bias === null ? "" : " + bias",
      ") / √",
      make("i", { text: "Dh" }),
      " )",
    ),
    make("p", {
      class: "equation mono",
      text: `       = exp( (${number(cell.dot)}${bias}) / ${number(layer.scale)} − ${inBrackets(cell.most)} ) / ${number(cell.sum)} = ${number(cell.weight)}`,
    }),
  );
}

const quoteToken = (text) => `“${tokenName(text)}”`;

function explainStep(place, title, words, ...children) {
  return make(
    "section",
    { class: "step", attributes: { "aria-label": `step ${place}` } },
    make("h3", {}, make("span", { class: "step-number", text: String(place) }), title),
    make("p", { class: "note", text: words }),
    children,
  );
}

// Step 1: the products of all Dh numbers, the largest first.
function explainProducts({ products, dot }, query, key) {
  const sorted = [...products].sort((a, b) => Math.abs(b.product) - Math.abs(a.product));
  const most = Math.abs(sorted[0]?.product) || 1;
  const rows = sorted.map(({ d, q, k, product }) =>
    make(
      "tr",
      {},
      make("td", { class: "muted", text: String(d) }),
      cellOf(q),
      cellOf(k),
      cellOf(product),
      make("td", {}, smallBar(product, most)),
    ),
  );
  return explainStep(
    1,
    "Compare: q · k",
    `How well does what ${query} looks for (its query q) match what ${key} offers (its key k)? Multiply number by number, and add up.`,
    scrollTable(["", "q", "k", "q × k", ""], rows),
    sumLine(`sum of ${products.length} products`, "q · k", dot),
  );
}

// Step 2: bias and √Dh.
function explainScore(layer, cell, query, key, column) {
  const rows = [["q · k", number(cell.dot)]];
  if (cell.bias !== null) rows.push(["+ bias of this distance", number(cell.bias)]);
  rows.push([`÷ √${layer.q.shape[2]}`, number(layer.scale)]);
  const isForbidden = cell.allowed !== null && !cell.allowed[column];
  return explainStep(
    2,
    "Scale: ÷ √Dh",
    "A sum of more products is larger. Dividing by √Dh keeps the scores in the same range for every width Dh.",
    make(
      "table",
      { class: "numbers" },
      rows.map(([name, value]) =>
        make("tr", {}, make("td", { class: "name", text: name }), make("td", { text: value })),
      ),
    ),
    sumLine(`${query} → ${key}`, "score", cell.raw),
    isForbidden
      ? make("p", { class: "note", text: "The mask forbids this pair, so its score counts as −∞." })
      : null,
  );
}

// Step 3: the softmax of the whole row.
function explainSoftmax({ scores, exps, sum, most, weights, weight }, query, names, column) {
  const rows = scores.map((score, s) =>
    make(
      "tr",
      { class: s === column ? "chosen" : null },
      make("td", { class: "name token", text: tokenName(names[s]) }),
      cellOf(score),
      cellOf(exps[s]),
      cellOf(weights[s]),
      make("td", {}, smallBar(weights[s], 1)),
    ),
  );
  return explainStep(
    3,
    "Share out: softmax",
    `${query} compares all tokens. exp makes every score positive; dividing by the sum makes the weights of the row add up to 1. (The largest score, ${number(most)}, is subtracted first: the quotient stays the same.)`,
    scrollTable(["key", "score", "exp", "weight", ""], rows),
    make("p", {
      class: "equation mono",
      text: `${number(exps[column])} / ${number(sum)} = ${number(weight)}`,
    }),
    sumLine("exp ÷ sum of the row", "weight", weight),
  );
}

// The last step: the value of this key, and the sum over all keys.
function explainMixture({ v, weight, mixture }, output, query, key, place) {
  const most = Math.max(1e-12, ...[...mixture].map(Math.abs));
  const isChanged = [...output].some(
    (value, d) => Math.abs(value - mixture[d]) > 1e-4 * (1 + Math.abs(value)),
  );
  const rows = [...v].map((value, d) =>
    make(
      "tr",
      {},
      make("td", { class: "muted", text: String(d) }),
      cellOf(value),
      cellOf(weight * value),
      cellOf(mixture[d]),
      isChanged ? cellOf(output[d]) : make("td", {}, smallBar(mixture[d], most)),
    ),
  );
  return explainStep(
    place,
    "Take: × v",
    `${query} receives the value v of ${key}, times the weight; and likewise from every token. The sum is the output of the head for ${query}.`,
    scrollTable(["", "v", "weight × v", "sum", isChanged ? "changed" : ""], rows),
    isChanged
      ? make("p", {
          class: "note warm",
          text: "You changed this head: the last numbers are what it passes on instead.",
        })
      : null,
  );
}

function explainOther(layer, cell, query, key) {
  return explainStep(
    1,
    `The weight, by ${layer.mechanism} attention`,
    `This mechanism has no product q · k that could be shown term by term. ${query} gives ${key} this share of its attention:`,
    sumLine("share of the row", "weight", cell.weight),
  );
}

const cellOf = (x) => make("td", { text: number(x) });

const sumLine = (words, name, value) =>
  make(
    "p",
    { class: "sum-line" },
    make("span", { class: "muted", text: words }),
    make("b", { class: "mono", text: `${name} = ${number(value)}` }),
  );

function smallBar(value, most) {
  const share = Math.min(1, Math.abs(value) / most);
  return make("span", {
    class: value < 0 ? "small-bar negative" : "small-bar",
    style: { width: `${Math.round(48 * share)}px` },
  });
}

function scrollTable(heads, rows) {
  const box = make(
    "div",
    {
      class: "table-box",
      tabIndex: 0,
      attributes: { role: "region", "aria-label": heads.filter(Boolean).join(", ") },
    },
    make(
      "table",
      { class: "numbers" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          heads.map((text) => make("th", { text })),
        ),
      ),
      make("tbody", {}, rows),
    ),
  );
  const chosen = rows.find((row) => row.classList.contains("chosen"));
  if (chosen)
    requestAnimationFrame(() => {
      box.scrollTop = chosen.offsetTop - box.clientHeight / 2;
    });
  return box;
}
