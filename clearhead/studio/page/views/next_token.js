// The next token: probabilities by the model, and after temperature and filters; which token is drawn.
import { bars } from "../charts.js";
import { clear, make, svg } from "../dom.js";
import { number, percent, tokenName, whole } from "../format.js";
import { panel, refreshExplanation } from "../panel.js";

export function makeNextPanel(page) {
  const words = make("p", { class: "answer-words" });
  const chart = make("div");
  const legend = make("p", { class: "note" });
  const node = panel(
    "The next token",
    {
      python: () => page.answer.python,
      explain: () => explainNext(page.answer, page.state),
      note: page.studio.exported ? "" : "Click a bar to take this token.",
      name: "next-token",
    },
    words,
    chart,
    legend,
  );
  return {
    node,
    draw(answer) {
      words.replaceChildren(...describeEntropy(answer, isPlain(page.state)));
      const focused = [...chart.querySelectorAll(".bar-row")].indexOf(document.activeElement);
      clear(chart, drawNextBars(page, answer));
      if (focused >= 0) chart.querySelectorAll(".bar-row")[focused]?.focus({ preventScroll: true });
      legend.textContent = describeDraw(answer, page.state);
      refreshExplanation(node);
    },
  };
}

// Whether tokens are drawn by the probabilities of the model itself.
const isPlain = ({ temperature, topK, topP }) => temperature === 1 && topK === null && topP === 1;

function drawNextBars(page, answer) {
  const [own, after] = [answer.probs.toList(), answer.likely.toList()];
  return bars({
    label: "probabilities of the next token",
    labels: answer.labels.map(tokenName),
    values: isPlain(page.state) ? own : after,
    compare: isPlain(page.state) ? null : own,
    format: (p) => percent(p, 2),
    onPick: page.studio.exported
      ? null
      : (i) => page.take({ id: answer.ids[i], name: answer.labels[i], logProb: Math.log(own[i]) }),
    chosen: answer.ids.indexOf(answer.chosen.id),
    max: [0.25, 0.5, 1].find((most) => most >= Math.max(...own, ...after)) ?? 1,
  });
}

function describeEntropy(answer, plain) {
  const strong = (text) => make("b", { class: "entropy", text });
  const start = [
    "Entropy ",
    strong(`${number(answer.entropy)} bits`),
    `: as uncertain as a choice among ${number(2 ** answer.entropy, 1)} equally likely tokens`,
  ];
  if (plain) return [...start, "."];
  return [
    ...start,
    "; after temperature, top-k and top-p ",
    strong(`${number(answer.likely_entropy)} bits`),
    `, ${whole(answer.n_possible)} of ${whole(answer.vocab_size)} tokens possible.`,
  ];
}

function describeDraw(answer, { seed }) {
  const name = `“${tokenName(answer.chosen.name)}” (${percent(answer.chosen.likely, 2)})`;
  if (answer.draw === null) return `At temperature 0 the most likely token is taken: ${name}.`;
  const rare = answer.ids.includes(answer.chosen.id) ? "" : ", which is not among those shown";
  return `Seed ${seed} draws ${number(answer.draw)}: “draw next” takes ${name}${rare}.`;
}

// The probability of the token that is drawn, step by step.
function explainNext(answer, state) {
  const { chosen } = answer;
  const place = answer.ids.indexOf(chosen.id);
  const name = `“${tokenName(chosen.name)}”`;
  const lines = [
    `p(${name}) = exp(z) / Σ exp(z) = ${number(chosen.prob)}${place < 0 ? "" : `, with its logit z = ${number(answer.logits.at(place))}`}`,
  ];
  lines.push(`entropy = −Σ p log₂ p = ${number(answer.entropy)} bits`);
  if (state.temperature === 0)
    lines.push("temperature 0: the token with the largest logit is taken");
  else {
    lines.push(
      `temperature τ = ${state.temperature}: p is exp(z / τ) / Σ exp(z / τ)${state.temperature === 1 ? ", which changes nothing" : state.temperature < 1 ? ", which makes likely tokens likelier" : ", which makes unlikely tokens likelier"}`,
    );
    if (state.topK !== null) lines.push(`top-k: only the ${state.topK} likeliest tokens`);
    if (state.topP < 1)
      lines.push(`top-p: only the likeliest tokens that together reach ${state.topP}`);
    lines.push(
      `${whole(answer.n_possible)} tokens remain, and share the probability: p(${name}) = ${number(chosen.likely)}`,
    );
    lines.push(
      `the tokens before ${name} in the vocabulary have ${number(chosen.before)} together; the draw ${number(answer.draw)} lies between ${number(chosen.before)} and ${number(chosen.before + chosen.likely)}, so it takes ${name}`,
    );
  }
  return make(
    "div",
    { class: "stack" },
    make("div", { class: "mono equation", text: lines.join("\n") }),
    answer.draw === null ? null : drawStrip(chosen, answer.draw),
  );
}

// All tokens side by side from 0 to 1, the drawn one filled, and where the draw lies.
function drawStrip({ before, likely }, draw) {
  const [width, left] = [480, 8];
  const x = (share) => left + share * width;
  return svg(
    "svg",
    {
      class: "draw-strip",
      viewBox: `0 0 ${width + 2 * left} 46`,
      role: "img",
      "aria-label": "where the draw lies",
    },
    svg("rect", { class: "draw-all", x: x(0), y: 18, width, height: 14, rx: 3 }),
    svg("rect", {
      class: "draw-own",
      x: x(before),
      y: 18,
      width: Math.max(1.5, likely * width),
      height: 14,
    }),
    svg("path", { class: "draw-mark", d: `M ${x(draw)} 16 l -6 -10 h 12 z` }),
    svg("text", { x: x(0), y: 44 }, "0"),
    svg("text", { x: x(1), y: 44, "text-anchor": "end" }, "1"),
  );
}
