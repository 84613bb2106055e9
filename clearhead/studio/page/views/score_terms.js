// How one weight is computed: the terms of its score, the score, and its share of the softmax.
import { make } from "../dom.js";
import { inBrackets, number } from "../format.js";

const MOST_TERMS = 6; // that are written out

// ["1.5", "−0.2"] → "1.5 − 0.2".
export function writeSum(terms) {
  return terms.join(" + ").replaceAll("+ −", "− ");
}

// found: an answer with terms, bias, scores, weights; kind: "dot product" or "additive"; column: the index of
// the key; query, key: their names in the sentences.
export function explainScoreTerms(found, { kind, column, query, key }) {
  const terms = [...found.terms.data];
  const sum = terms.reduce((total, x) => total + x, 0);
  const scores = [...found.scores.data];
  const most = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - most));
  const total = exps.reduce((all, x) => all + x, 0);
  const rest = terms.length > MOST_TERMS ? ` + … (${terms.length} terms)` : "";
  const isAdditive = kind === "additive";
  return make(
    "div",
    { class: "stack score-terms" },
    make("p", {
      text: isAdditive
        ? `${query} and ${key} are compared by a small network: wᵀ tanh(W_q q + W_k k).`
        : `The query of ${query} and the key of ${key} are multiplied, number by number.`,
    }),
    make("p", {
      class: "mono",
      text: `${isAdditive ? "sum of w · tanh(…)" : "q · k"} = ${writeSum(terms.slice(0, MOST_TERMS).map((x) => number(x)))}${rest} = ${number(sum)}`,
    }),
    make(
      "p",
      { class: "mono" },
      isAdditive
        ? `score = ${number(scores[column])}`
        : `score = ${found.bias ? `(${number(sum)} + ${number(found.bias)})` : number(sum)} ÷ √${terms.length} = ${number(scores[column])}`,
    ),
    make("p", {
      class: "mono",
      text: `weight = exp(score − largest) ÷ sum = exp(${number(scores[column])} − ${inBrackets(most)}) ÷ ${number(total)} = ${number(exps[column])} ÷ ${number(total)}`,
    }),
    make(
      "p",
      {},
      "weight ",
      make("output", { class: "mono explained-weight", text: number(found.weights.data[column]) }),
      ` of ${scores.length} that sum to 1.`,
    ),
  );
}
