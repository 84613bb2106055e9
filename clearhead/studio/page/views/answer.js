// The answer of the model: the most likely next tokens, or a class; after a change also the answer before it.
import { argmax } from "../array.js";
import { bars } from "../charts.js";
import { clear, make } from "../dom.js";
import { number, percent, tokenName } from "../format.js";
import { panel, refreshExplanation, tabs } from "../panel.js";
import { explainAnswer } from "./effect_equation.js";

export function makeAnswerPanel(page) {
  const words = make("p", { class: "answer-words" });
  const chart = make("div");
  const legend = make("p", { class: "note" });
  const units = tabs(
    "unit",
    [
      ["probs", "probability"],
      ["logits", "logit"],
    ],
    page.state.unit,
    (unit) => page.set({ unit }),
  );
  const body = make("div", { class: "stack" }, words, units, chart, legend);
  const explain = () => {
    const { answer, shown } = page;
    if (answer.answer === null) return make("p", { text: "This model gives no answer." });
    const isYesNo = answer.kind !== "GPT" && answer.answer.texts[0] === "yes";
    return explainAnswer(readRows(answer, shown.position), shown.temperature, isYesNo);
  };
  const node = panel(
    "The answer",
    { python: () => page.answer.python, explain, name: "answer" },
    body,
  );
  return {
    node,
    draw(answer, shown) {
      const { unit } = shown;
      refreshExplanation(node);
      units.hidden = legend.hidden = answer.answer === null;
      if (answer.answer === null) {
        words.textContent = "This model gives a vector for each token, and no answer.";
        clear(chart);
        return;
      }
      const rows = readRows(answer, shown.position);
      words.textContent = describeAnswer(answer, shown.position, rows);
      legend.textContent = rows.before ? "Grey: before the change. Blue: now." : "";
      clear(
        chart,
        bars({
          label: "answers",
          labels: rows.texts.map(tokenName),
          values: rows[unit],
          compare: rows.before ? rows.before[unit] : null,
          format: unit === "probs" ? (x) => percent(x) : (x) => number(x, 2),
          max: unit === "probs" && answer.kind !== "GPT" ? 1 : null,
        }),
      );
    },
  };
}

// The rows of the chart: the texts, their probabilities and logits, and both before the change, if there is one.
function readRows(answer, position) {
  const found = answer.compared ?? answer.answer;
  const at = (array) => [...(array.shape.length === 1 ? array : array.part(position)).data];
  return {
    texts: answer.kind === "GPT" ? found.texts[position] : found.texts,
    probs: at(found.probs),
    logits: at(found.logits),
    before: answer.compared
      ? { probs: at(found.probs_before), logits: at(found.logits_before) }
      : null,
  };
}

function describeAnswer(answer, position, rows) {
  const say = (values) =>
    `${quoteAnswer(answer, rows.texts[argmax(values)])} (${percent(values[argmax(values)])})`;
  const after =
    answer.kind === "GPT"
      ? `After “${tokenName(answer.names[position])}” (${position}), the next token: `
      : "At [CLS], the model answers ";
  if (rows.before === null) return `${after}${say(rows.probs)}.`;
  const isSame = argmax(rows.before.probs) === argmax(rows.probs);
  return `${after}${isSame ? "still " : ""}${say(rows.probs)}; before the change ${say(rows.before.probs)}.`;
}

const quoteAnswer = (answer, text) => (answer.kind === "GPT" ? `“${tokenName(text)}”` : text);
