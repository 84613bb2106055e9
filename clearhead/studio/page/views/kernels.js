// Kernels: softmax attention beside kernel attention, their difference, and how the error falls with m.
import { ask, hasChoices } from "../api.js";
import { address } from "../address.js";
import { lineChart } from "../charts.js";
import { clear, debounce, make } from "../dom.js";
import { number, percent } from "../format.js";
import { Matrix } from "../matrix.js";
import { button, message, panel, slider, tabs } from "../panel.js";
import { askNewest } from "./newest.js";
import { listNumbers } from "./number_grid.js";
import { entryStep, totalLine } from "./smallest_cell.js";
import { largest } from "../thumb.js";

const FEATURE_WORDS = {
  positive:
    "Positive random features: φ(x) = exp(W x − ‖x‖²/2√D) / √m estimates the softmax kernel exp(q·k/√D) by m random frequencies W, and is never negative.",
  fourier:
    "Random Fourier features: sines and cosines of m random frequencies estimate the softmax kernel exp(q·k/√D). An estimate may fall below 0 (orange).",
  elu: "φ(x) = elu(x) + 1, D features. This is a kernel of its own, not an estimate of the softmax, so a difference always remains.",
  quadratic:
    "φ(q)·φ(k) = (q·k + 1)², exactly, with (D+1)(D+2)/2 features. This is a kernel of its own: it also rewards q and k that point in opposite directions.",
};
const MOST_DOUBLINGS = 10; // m is at most 2^10
const MATRICES = { exact: "Softmax, exact", approximate: "By features", difference: "Difference" };
const NOTES = {
  exact: "weights = exp(q·k/√D) / sum of the row: T² similarities.",
  approximate: "weights = φ(q)·φ(k) / sum of the row: linear in T.",
  difference: "By features minus exact, in the same colours.",
};

export const kernelsView = {
  name: "kernels",
  title: "Kernels",
  kinds: null,
  about:
    "Softmax attention compares every query with every key. If the similarity is a product of features, φ(q)·φ(k), long texts become cheap. How close do the weights come?",
  mount(root) {
    const view = new KernelsPage(root);
    view.askAgain();
    return () => view.leave();
  },
};

class KernelsPage {
  constructor(root) {
    this.state = readKernels();
    this.isGone = false;
    this.remember = debounce(200, () => {
      if (!this.isGone) writeKernels(this.state);
    });
    [this.words, this.error, this.summary, this.chart, this.explanation, this.slope] = [
      make("p", { class: "note" }),
      make("div"),
      make("div", { class: "figures" }),
      make("div"),
      make("div"),
      make("p", { class: "note" }),
    ];
    const onError = (error) => message(this.error, error);
    this.askLater = askNewest(
      (signal) => ask("compare_kernels", this.question, { signal }),
      (answer) => this.draw(answer),
      onError,
    );
    this.measureLater = askNewest(
      (signal) => ask("measure_kernels", this.sizes, { signal }),
      (answer) => this.drawCurve(answer),
      onError,
    );
    this.measureSoon = debounce(150, () => {
      if (!this.isGone) this.measureLater();
    });
    this.parts = Object.entries(MATRICES).map(([name, title]) => this.makeMatrix(name, title));
    root.append(
      this.makeControls(),
      make(
        "div",
        { class: "kernel-matrices" },
        this.parts.map(({ node }) => node),
      ),
      make(
        "div",
        { class: "columns" },
        panel(
          "This cell",
          { saves: false, python: () => this.answer?.python ?? "" },
          this.explanation,
        ),
        panel(
          "The error by the number of frequencies m",
          {
            name: "kernels-error",
            python: () => this.curve?.python ?? "",
            note: "Relative error of the similarity φ(q)·φ(k), the mean of 16 draws, and the expected error c/√m: for half the error, take four times as many.",
          },
          this.chart,
          this.slope,
        ),
      ),
    );
  }

  makeControls() {
    const { features, T, D, m, length } = this.state;
    this.mSlider = slider(
      "frequencies m",
      { min: 1, max: MOST_DOUBLINGS, value: Math.log2(m), format: (i) => String(2 ** i) },
      (i) => this.set({ m: 2 ** i }, false),
    );
    const hidden = !hasChoices("compare_kernels");
    return make(
      "section",
      { class: "panel stack", attributes: { "aria-label": "features" } },
      make(
        "div",
        { class: "row", hidden },
        tabs("features", Object.keys(FEATURE_WORDS), features, (value) =>
          this.set({ features: value }, false),
        ),
        button("draw others", () => this.set({ seed: this.state.seed + 1 }), {
          title: "other queries, keys and frequencies",
        }),
      ),
      this.words,
      make(
        "div",
        { class: "row", hidden },
        this.mSlider,
        slider("length of q and k", { min: 0.5, max: 6, step: 0.5, value: length }, (value) =>
          this.set({ length: value }),
        ),
        slider("tokens T", { min: 4, max: 64, value: T }, (value) => this.set({ T: value })),
        slider("width D", { min: 2, max: 32, value: D }, (value) => this.set({ D: value })),
      ),
      make("p", {
        class: "note",
        text: "Longer q and k make attention sharper, as a lower temperature does, and harder to estimate.",
      }),
      this.error,
      this.summary,
    );
  }

  makeMatrix(name, title) {
    const matrix = new Matrix({
      label: title,
      colour: "signed",
      onPick: (row, column) => this.pick(row, column),
    });
    return {
      name,
      matrix,
      node: panel(
        title,
        {
          name: `kernels-${name}`,
          note: NOTES[name],
          python: () => this.answer?.python ?? "",
          explainAt: () => this.explanation.closest(".panel"),
        },
        matrix.node,
      ),
    };
  }

  get sizes() {
    const { T, D, seed, length } = this.state;
    return { T, D, seed, length };
  }

  get question() {
    const { features, m } = this.state;
    return { features, ...this.sizes, ...(isRandom(features) ? { m } : {}) };
  }

  // measures: whether the error by m has to be measured again.
  set(values, measures = true) {
    Object.assign(this.state, values);
    this.remember();
    this.askLater();
    if (measures) this.measureSoon();
    else if (this.curve !== undefined) this.drawCurve(this.curve);
  }

  askAgain() {
    this.askLater();
    this.measureLater();
  }

  pick(row, column) {
    this.state.cell = [row, column];
    this.remember();
    this.draw(this.answer);
  }

  draw(answer) {
    this.answer = answer;
    clear(this.error);
    const { features } = this.state;
    this.words.textContent = FEATURE_WORDS[features];
    this.mSlider.hidden = !isRandom(features);
    const T = answer.exact.shape[0];
    const cell = this.state.cell.map((i) => Math.min(i, T - 1));
    const names = listNumbers(T);
    const scale = largest(answer.exact);
    for (const { name, matrix } of this.parts) {
      matrix.show(answer[name], { rows: names, columns: names, scale });
      matrix.select(...cell);
    }
    this.drawSummary(answer);
    clear(this.explanation, explainWeights(answer, features, ...cell));
  }

  drawSummary(answer) {
    const entries = [
      ["relative error of the weights", percent(answer.error), "error"],
      ["features C", String(answer.n_features), "features"],
    ];
    if (answer.similarity_error !== undefined)
      entries.push(
        ["relative error of the similarity", percent(answer.similarity_error), "similarity"],
        ["expected", percent(answer.expected_error), "expected"],
      );
    entries.push([
      "weights below 0",
      `${answer.n_negative} of ${answer.exact.data.length}`,
      "negative",
    ]);
    clear(
      this.summary,
      entries.map(([name, value, key]) =>
        make(
          "div",
          { class: "figure" },
          make("b", { text: value, dataset: { figure: key } }),
          make("span", { class: "muted", text: name }),
        ),
      ),
    );
  }

  drawCurve(curve) {
    this.curve = curve;
    const chosen = isRandom(this.state.features) ? [this.state.features] : ["fourier", "positive"];
    const points = (values) => curve.frequencies.map((m, i) => [m, values[i]]);
    const series = chosen.flatMap((name) => [
      { name, points: points(curve[name].error) },
      { name: `expected of ${name}: c/√m`, points: points(curve[name].predicted) },
    ]);
    clear(
      this.chart,
      lineChart({ series, x: "frequencies m", y: "relative error (RMS)", log: "xy" }),
    );
    this.slope.textContent = chosen
      .map((name) => `The error of ${name} features falls as m^${number(curve[name].slope, 2)}.`)
      .join(" ");
  }

  leave() {
    this.isGone = true;
    this.askLater.stop();
    this.measureLater.stop();
  }
}

const isRandom = (features) => features === "fourier" || features === "positive";

function explainWeights(answer, features, t, s) {
  const [q, k] = [answer.q.part(t).data, answer.k.part(s).data];
  const dot = q.reduce((sum, x, i) => sum + x * k[i], 0);
  const sumOf = (array) => array.part(t).data.reduce((total, x) => total + x, 0);
  const [D, C] = [q.length, answer.n_features];
  const own =
    features === "quadratic"
      ? `φ(q)·φ(k) = (${number(dot)} + 1)² = ${number(answer.similarity.at(t, s))}`
      : `φ(q)·φ(k) = sum of ${C} products = ${number(answer.similarity.at(t, s))}`;
  return make(
    "div",
    { class: "steps" },
    entryStep(
      "Exact",
      `Query ${t} and key ${s}.`,
      make("p", {
        class: "mono equation",
        text: `q·k / √D = ${number(dot)} / √${D} = ${number(dot / Math.sqrt(D))}`,
      }),
      make("p", {
        class: "mono equation",
        text: `exp = ${number(answer.kernel.at(t, s))}, sum of the row ${number(sumOf(answer.kernel))}`,
      }),
      totalLine("weight", answer.exact.at(t, s)),
    ),
    entryStep(
      "By features",
      "The same query and key.",
      make("p", { class: "mono equation", text: own }),
      make("p", {
        class: "mono equation",
        text: `sum of the row ${number(sumOf(answer.similarity))}`,
      }),
      totalLine("weight", answer.approximate.at(t, s)),
    ),
  );
}

function readKernels() {
  const cell = (address.get("cell") ?? "").split(".").map(Number);
  return {
    features: address.getOneOf("features", Object.keys(FEATURE_WORDS), "positive"),
    T: address.getClamped("T", 24, 4, 64),
    D: address.getClamped("D", 16, 2, 32),
    m: 2 ** Math.round(Math.log2(address.getClamped("m", 64, 2, 2 ** MOST_DOUBLINGS))),
    seed: address.getClamped("seed", 0, 0, 999_999),
    length: Math.min(Math.max(Number(address.get("length")) || 2, 0.5), 6),
    cell: cell.length === 2 && cell.every((i) => i >= 0) ? cell : [0, 0],
  };
}

function writeKernels({ cell, ...others }) {
  address.set({ ...others, cell: cell.join(".") });
}
