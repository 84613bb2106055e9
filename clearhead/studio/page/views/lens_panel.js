// The logit lens: what the model would say next if it ended after each layer.
import { ask, latest } from "../api.js";
import { address } from "../address.js";
import { cssColour, inkOn, weightColour } from "../colours.js";
import { clear, make, svg } from "../dom.js";
import { number, percent, shortenText, tokenName } from "../format.js";
import { message, panel, slider } from "../panel.js";

const LENS = { name: 106, width: 65, height: 38, top: 20, gap: 3, entropy: 70 };
const N_LENS = 6;

export function makeLensPanel(page) {
  const run = latest();
  const place = slider("after token", { min: 0, max: 0, value: 0 }, (position) => {
    address.set({ after: position });
    read(position);
  });
  const picture = make("div", { class: "scroll" });
  const words = make("p", { class: "note" });
  const lens = { answer: null };
  const read = async (position) => {
    try {
      const answer = await run((signal) =>
        ask(
          "read_lens",
          {
            model: page.studio.model.id,
            tokens: page.answerTokens,
            position,
            n_shown: N_LENS,
            changes: page.changes,
          },
          { signal },
        ),
      );
      if (answer !== undefined) draw(answer);
    } catch (error) {
      message(picture, error);
    }
  };
  const draw = (answer) => {
    lens.answer = answer;
    place.querySelector("output").textContent = `${answer.position}: ${tokenName(answer.name)}`;
    clear(picture, drawLens(answer));
    words.textContent = describeLens(answer);
  };
  lens.node = panel(
    "What each layer would say",
    {
      python: () => lens.answer.python,
      explain: () => explainLens(lens.answer),
      note: "The output layer, applied after each layer: the likeliest next tokens; the stronger the colour, the likelier. The last row is what the model says.",
      name: "logit-lens",
    },
    place,
    picture,
    words,
  );
  // Show a new text; the position is its last token, or at first the one in the address.
  lens.show = (tokens) => {
    const last = tokens.length - 1;
    const position =
      lens.answer === null ? Math.min(address.getWhole("after") ?? last, last) : last;
    Object.assign(place.querySelector("input"), { max: last });
    place.set(position);
    address.set({ after: position === last ? null : position });
    read(position);
  };
  lens.redraw = () => {
    if (lens.answer !== null) draw(lens.answer);
  };
  lens.leave = () => run.stop();
  return lens;
}

const nameLayer = (i) => (i === 0 ? "embedding" : `after layer ${i - 1}`);

function drawLens(answer) {
  const [n, k] = answer.ids.shape;
  const width = LENS.name + k * (LENS.width + LENS.gap) + LENS.entropy;
  const height = LENS.top + n * (LENS.height + LENS.gap);
  const heads = [
    ...Array.from({ length: k }, (_, j) => [
      LENS.name + j * (LENS.width + LENS.gap) + LENS.width / 2,
      j === 0 ? "likeliest" : `${j + 1}.`,
    ]),
    [width - LENS.entropy / 2, "entropy"],
  ];
  const rows = Array.from({ length: n }, (_, i) => drawLensRow(answer, i, k, width));
  return svg(
    "svg",
    {
      class: "lens-picture",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `likeliest next tokens after each of ${n - 1} layers`,
    },
    heads.map(([x, text]) =>
      svg("text", { class: "lens-head", x, y: 13, "text-anchor": "middle" }, text),
    ),
    rows,
  );
}

function drawLensRow(answer, i, k, width) {
  const y = LENS.top + i * (LENS.height + LENS.gap);
  const cells = Array.from({ length: k }, (_, j) => {
    const [x, p, name] = [
      LENS.name + j * (LENS.width + LENS.gap),
      answer.probs.at(i, j),
      tokenName(answer.labels[i][j]),
    ];
    const colour = weightColour(p);
    const ink = inkOn(colour);
    const isAnswer = answer.ids.at(i, j) === answer.answer.id;
    return svg(
      "g",
      { class: isAnswer ? "lens-box answer" : "lens-box" },
      svg("title", {}, `${nameLayer(i)}: ${name} ${number(p)}`),
      svg("rect", { x, y, width: LENS.width, height: LENS.height, rx: 4, fill: cssColour(colour) }),
      svg(
        "text",
        {
          class: "lens-token",
          x: x + LENS.width / 2,
          y: y + 16,
          "text-anchor": "middle",
          fill: ink,
        },
        shortenText(name, 7),
      ),
      svg(
        "text",
        {
          class: "lens-number",
          x: x + LENS.width / 2,
          y: y + 31,
          "text-anchor": "middle",
          fill: ink,
        },
        percent(p),
      ),
    );
  });
  return svg(
    "g",
    { class: "lens-row" },
    svg("text", { class: "lens-name", x: 0, y: y + 24 }, nameLayer(i)),
    cells,
    svg(
      "text",
      { class: "lens-entropy", x: width - LENS.entropy / 2, y: y + 24, "text-anchor": "middle" },
      `${number(answer.entropy.at(i), 2)} bits`,
    ),
  );
}

// From which layer on the answer is the likeliest token.
function describeLens(answer) {
  const n = answer.ids.shape[0];
  let first = n - 1;
  while (first > 0 && answer.ids.at(first - 1, 0) === answer.answer.id) first -= 1;
  const name = `“${tokenName(answer.answer.name)}”`;
  const since = first === 0 ? "already in the embedding" : nameLayer(first);
  return `The answer of the model, ${name} (outlined), is the likeliest token ${since}${first === 0 ? "" : ", and no earlier"}.`;
}

function explainLens(answer) {
  const name = `“${tokenName(answer.answer.name)}”`;
  const lines = [
    "lens[l] = norm(x_l) Wᵀ        x_l: the residual stream after layer l, W: the output layer",
    `p(${name}) after each:`,
  ];
  const n = answer.ids.shape[0];
  for (let i = 0; i < n; i += 1)
    lines.push(`  ${nameLayer(i).padEnd(16)} ${number(answer.answer_probs.at(i))}`);
  return make("div", { class: "mono equation", text: lines.join("\n") });
}
