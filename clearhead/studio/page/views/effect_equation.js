// The equations of a model's answer, and of the effect of a change on it, with their numbers.
import { argmax } from "../array.js";
import { make } from "../dom.js";
import { inBrackets, number, tokenName } from "../format.js";

const writeLines = (...texts) => make("div", { class: "mono equation", text: texts.join("\n") });

const writeDifference = (a, b) => `${number(a)} − ${inBrackets(b)}`;

// How far the metric moves when one head is silenced. found: the answer to "measure_heads".
export function explainSilence(found, layer, head) {
  const [before, after] = [found.unchanged, found.values.at(layer, head)];
  return writeLines(
    `m: ${found.metric}`,
    `unchanged: m = ${number(before)}`,
    `${found.titles[layer]}, head ${head} silent: m′ = ${number(after)}`,
    `effect = m′ − m = ${writeDifference(after, before)} = ${number(found.effect.at(layer, head))}`,
  );
}

// How much of the way from A to B the metric goes when one activation is copied. name: what is copied.
export function explainCopy(found, layer, i, name) {
  const [a, b, copied] = [found.unchanged, found.goal, found.values.at(layer, i)];
  const start = [
    `m: ${found.metric}`,
    `A: m_A = ${number(a)}`,
    `B: m_B = ${number(b)}`,
    `A, with ${name} of B: m′ = ${number(copied)}`,
  ];
  if (found.recovered === null)
    return writeLines(
      ...start,
      `effect = m′ − m_A = ${writeDifference(copied, a)} = ${number(found.effect.at(layer, i))}`,
    );
  return writeLines(
    ...start,
    `(m′ − m_A) / (m_B − m_A) = (${writeDifference(copied, a)}) / (${writeDifference(b, a)}) = ${number(found.recovered.at(layer, i))}`,
  );
}

// What the model would say after each layer. found: the answer to "read_layers"; t: the chosen token.
export function explainLayers({ answer, titles }, t) {
  const isToken = answer.kind === "token";
  const isYesNo = !isToken && answer.texts[0] === "yes";
  const lines = titles.map((title, l) => {
    const [logits, probs] = [answer.logits, answer.probs].map((all) =>
      isToken ? all.part(l).part(t) : all.part(l),
    );
    const best = isYesNo ? 0 : argmax(logits.data);
    const [z, p] = [logits.at(best), probs.at(best)];
    const text = isToken ? `“${tokenName(answer.texts[l][t][best])}”` : answer.texts[best];
    const words = isYesNo
      ? `1 / (1 + ${number(Math.exp(-z))})`
      : `1 / Σ exp(z′ − ${inBrackets(z)}) = 1 / ${number(1 / p)}`;
    return `${title.padEnd(14)} z = ${number(z)}, p(${text}) = ${words} = ${number(p)}`;
  });
  return writeLines(
    `z = norm(x_l) Wᵀ${isToken ? ` at token ${t}` : ""}   x_l: the residual stream after layer l; W: the output layer`,
    isYesNo
      ? "p(yes) = 1 / (1 + exp(−z))"
      : "p = exp(z) / Σ exp(z′), the sum over all answers; below, z is the largest logit",
    ...lines,
  );
}

// The probabilities of the answer from its logits z. isYesNo: the model has a single logit, that of yes.
export function explainAnswer({ texts, logits, probs }, temperature, isYesNo) {
  const scale = temperature === 1 ? "" : ` / ${number(temperature, 2)}`;
  if (isYesNo) {
    return writeLines(
      `p(yes) = 1 / (1 + exp(−z${scale})), with the logit z = ${number(logits[0])}`,
      `       = 1 / (1 + ${number(Math.exp(-logits[0] / temperature))}) = ${number(probs[0])}`,
      "The logit of no is −z.",
    );
  }
  const most = Math.max(...logits);
  const best = logits.indexOf(most);
  const shifted = most < 0 ? `z + ${number(-most)}` : `z − ${number(most)}`;
  const exps = logits.map((z) => Math.exp((z - most) / temperature));
  const rows = texts.map((text, i) =>
    make(
      "tr",
      {},
      make("td", { class: "name mono", text: tokenName(text) }),
      [logits[i], exps[i], probs[i]].map((x) => make("td", { text: number(x) })),
    ),
  );
  return make(
    "div",
    { class: "stack" },
    writeLines(
      `p = exp(${scale ? `(${shifted})${scale}` : shifted}) / ${number(1 / probs[best])}`,
      `z: the logit; ${number(most)} is the largest. The divisor is the sum of exp over all answers.`,
    ),
    make(
      "table",
      { class: "numbers heads-right" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ["answer", "z", "exp", "÷ sum = p"].map((text) => make("th", { text })),
        ),
      ),
      make("tbody", {}, rows),
    ),
  );
}
