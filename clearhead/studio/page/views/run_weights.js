// The weights of a run as histograms, one for each parameter, and the lengths and cosines of its embeddings.
import { ask, latest } from "../api.js";
import { bars } from "../charts.js";
import { clear, make, svg } from "../dom.js";
import { inBrackets, number, tokenName, whole } from "../format.js";
import { Matrix } from "../matrix.js";
import { button, message, panel, refreshExplanation, tabs } from "../panel.js";

const MOST_NORMS = 40; // bars; a note counts the others

export function makeWeightsPanel(page) {
  const [head, body] = [make("div", { class: "stack" }), make("div", { class: "stack" })];
  const state = { own: null, answer: null, place: 0, version: "" };
  const node = panel(
    "Weights",
    {
      python: () => {
        if (state.answer === null) throw new Error("Choose a run first.");
        return state.answer.python;
      },
      explain: () => explainHistogram(state.answer?.parameters[state.place]),
      name: "weights",
      note: "How the numbers of every parameter are distributed, from the last checkpoint. Click one to enlarge it.",
    },
    head,
    body,
  );
  const run = latest();

  const show = async (id) => {
    Object.assign(state, { own: id, version: findVersion(page, id) });
    try {
      const answer = await run((signal) => ask("summarise_weights", { model: id }, { signal }));
      if (answer === undefined) return;
      const name = state.answer?.parameters[state.place]?.name;
      state.answer = answer;
      state.place = Math.max(
        0,
        answer.parameters.findIndex((each) => each.name === name),
      );
      drawWeights(state, body, () => refreshExplanation(node));
      refreshExplanation(node);
    } catch (error) {
      message(body, error);
    }
  };

  // The weights of a run in training are asked for again when it has saved.
  const draw = () => {
    const isShown = page.chosen.includes(state.own);
    if (isShown && findVersion(page, state.own) !== state.version) show(state.own);
    const key = `${page.chosen.join()} ${state.own}`;
    if (head.key === key) return;
    head.key = key;
    if (!isShown) clear(body);
    clear(
      head,
      page.chosen.length > 1 && !isShown
        ? make("p", { class: "note", text: "Choose a run to see its weights." })
        : null,
      page.chosen.length
        ? make(
            "div",
            { class: "row" },
            page.chosen.length > 1 || isShown
              ? tabs("weights of", page.chosen, state.own, show)
              : button(
                  "show weights",
                  () => {
                    show(page.chosen[0]);
                  },
                  { kind: "primary" },
                ),
          )
        : make("p", { class: "note", text: "Choose a run above." }),
    );
  };
  return { node, draw };
}

const findVersion = (page, id) => String(page.list.runs.find((run) => run.id === id)?.step);

function drawWeights(state, body, onPick) {
  const { parameters, embeddings } = state.answer;
  const large = make("div");
  const small = parameters.map((each, i) =>
    make(
      "button",
      { type: "button", class: "histogram-button", title: each.name, on: { click: () => pick(i) } },
      make("span", { class: "histogram-name", text: each.name }),
      drawHistogram(each, 150, 44),
    ),
  );
  const pick = (i) => {
    state.place = i;
    small.forEach((node, j) => node.setAttribute("aria-pressed", String(i === j)));
    clear(large, drawLarge(parameters[i]));
    onPick();
  };
  pick(state.place);
  clear(
    body,
    make("div", { class: "histograms" }, large, make("div", { class: "histogram-grid" }, small)),
    embeddings.map(drawEmbedding),
  );
}

// Bars of equal width from the lowest number to the highest; a line at 0.
function drawHistogram({ name, counts, low, high }, width, height) {
  const most = Math.max(...counts.data, 1);
  const wide = width / counts.length;
  const picture = svg("svg", {
    class: "histogram",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": `histogram of ${name}`,
  });
  counts.data.forEach((count, i) =>
    picture.append(
      svg("rect", {
        class: "histogram-bar",
        x: i * wide + 0.5,
        width: Math.max(wide - 1, 0.5),
        y: height - (height * count) / most,
        height: (height * count) / most,
      }),
    ),
  );
  if (low < 0 && high > 0)
    picture.append(
      svg("line", {
        class: "histogram-zero",
        x1: (-low / (high - low)) * width,
        x2: (-low / (high - low)) * width,
        y1: 0,
        y2: height,
      }),
    );
  return picture;
}

function drawLarge(parameter) {
  const { name, shape, mean, std, low, high } = parameter;
  const entry = (words, value) => [make("th", { text: words }), make("td", { text: value })];
  return make(
    "div",
    { class: "stack histogram-large" },
    make("h3", { class: "mono", text: name }),
    drawHistogram(parameter, 380, 150),
    make(
      "div",
      { class: "histogram-ends mono" },
      make("span", { text: number(low) }),
      make("span", { text: number(high) }),
    ),
    make(
      "table",
      { class: "numbers" },
      make(
        "tbody",
        {},
        make(
          "tr",
          {},
          entry("shape", shape.join(" × ") || "1"),
          entry("numbers", whole(shape.reduce((a, b) => a * b, 1))),
        ),
        make("tr", {}, entry("mean", number(mean)), entry("std", number(std))),
        make("tr", {}, entry("min", number(low)), entry("max", number(high))),
      ),
    ),
  );
}

function explainHistogram(parameter) {
  if (parameter === undefined) return make("p", { text: "Show the weights of a run first." });
  const { name, shape, mean, std, low, high, counts } = parameter;
  const n = shape.reduce((a, b) => a * b, 1);
  if (low === high)
    return make("p", { text: `All ${whole(n)} numbers of ${name} are ${number(low)}.` });
  const width = (high - low) / counts.length;
  const top = counts.data.indexOf(Math.max(...counts.data));
  return make(
    "div",
    { class: "stack" },
    make("p", { text: `${name} has n = ${whole(n)} numbers w.` }),
    make("p", { class: "mono", text: `mean = Σ w / n = ${number(mean)}` }),
    make("p", {
      class: "mono",
      text: `std = √(Σ (w − ${inBrackets(mean)})² / n) = ${number(std)}`,
    }),
    make("p", {
      class: "mono",
      text: `a bar is (${number(high)} − ${inBrackets(low)}) / ${counts.length} = ${number(width)} wide`,
    }),
    make("p", {
      text: `The highest bar holds ${whole(counts.data[top])} of them: those from ${number(low + top * width)} to ${number(low + (top + 1) * width)}.`,
    }),
  );
}

function drawEmbedding({ name, shape, rows, norms, cosines }) {
  const shown = Math.min(rows.length, MOST_NORMS);
  const chart = bars({
    labels: rows.slice(0, shown).map(tokenName),
    values: [...norms.data.slice(0, shown)],
    label: `lengths of the rows of ${name}`,
  });
  const rest = shape[0] - shown;
  const lengths = make(
    "div",
    { class: "stack" },
    make("h3", { text: "Length of each row" }),
    chart,
    rest > 0 ? make("p", { class: "note", text: `and ${whole(rest)} more` }) : null,
  );
  const title = make(
    "h3",
    {},
    make("span", { class: "mono", text: name }),
    `: ${shape[0]} rows of ${shape[1]} numbers`,
  );
  if (cosines === null) return make("div", { class: "stack embedding" }, title, lengths);
  const matrix = new Matrix({ label: `cosines of the rows of ${name}`, colour: "signed" });
  matrix.show(cosines, { rows, columns: rows, scale: 1 });
  return make(
    "div",
    { class: "stack embedding" },
    title,
    make(
      "div",
      { class: "columns" },
      make(
        "div",
        { class: "stack" },
        make("h3", { text: "How alike they are: the cosine of each pair" }),
        matrix.node,
      ),
      lengths,
    ),
  );
}
