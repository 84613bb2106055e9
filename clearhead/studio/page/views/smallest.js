// The smallest transformer: all its numbers on one page, to be changed, trained and explained.
import { ask, hasChoices, stream } from "../api.js";
import { address } from "../address.js";
import { NumberArray, argmax } from "../array.js";
import { lineChart } from "../charts.js";
import { clear, debounce, make } from "../dom.js";
import { number } from "../format.js";
import { button, choice, message, panel, slider, tabs } from "../panel.js";
import { askNewest } from "./newest.js";
import { listNumbers, NumberGrid } from "./number_grid.js";
import { redraw } from "./redraw.js";
import { explainEntry } from "./smallest_cell.js";
import { COMPUTED, RULE_WORDS, readSmallest, writeSmallest } from "./smallest_state.js";
import { Words } from "./smallest_words.js";

const STEPS = 100; // of one training
const PARAMETERS = ["Km", "Qm", "Vm", "pos"];
const MEANINGS = {
  Km: "what a token offers",
  Qm: "what a token asks for",
  Vm: "what a token passes on",
  pos: "the places",
  K: "= x Km",
  Q: "= x Qm",
  V: "= x Vm",
  Attn: "= softmax(Q Kᵀ / √d_qk)",
  Out: "= Attn V",
};

export const smallestView = {
  name: "smallest",
  title: "Smallest",
  kinds: null,
  about: "A whole transformer with one layer and one head: small enough to see every number.",
  mount(root, studio) {
    const view = new SmallestPage(root, studio);
    view.askLater();
    return () => view.leave();
  },
};

class SmallestPage {
  constructor(root, studio) {
    this.runs = studio.models.filter(({ kind }) => kind === "TorchTransformer").map(({ id }) => id);
    this.state = readSmallest(this.runs);
    this.isFixed = !hasChoices("run_smallest"); // whether input and matrices cannot be changed
    this.losses = [];
    this.training = null;
    this.isGone = false;
    // Browsers refuse an address that changes with every pixel.
    this.remember = debounce(200, () => {
      if (!this.isGone) writeSmallest(this.state);
    });
    this.words = new Words(this.isFixed ? null : (text) => this.set({ text }));
    this.grids = Object.fromEntries(
      [...PARAMETERS, ...COMPUTED].map((name) => [name, this.makeGrid(name)]),
    );
    this.askLater = askNewest(
      (signal) => this.compute(signal),
      (answer) => this.draw(answer),
      (error) => this.fail(error),
    );
    this.controls = make("div", { class: "row", hidden: this.isFixed });
    this.rule = make("p", { class: "note" });
    this.waiting = make("p", { class: "checking", hidden: true, attributes: { role: "status" } });
    this.error = make("div");
    this.explanation = make("div");
    this.chart = make("div", { class: "stack" });
    const training = this.makeTraining();
    root.append(
      make(
        "section",
        { class: "panel stack", attributes: { "aria-label": "task" } },
        this.controls,
        this.rule,
        this.waiting,
        this.error,
      ),
      (this.body = make(
        "div",
        { class: "view smallest-body" },
        make(
          "div",
          { class: "smallest-first" },
          panel(
            "Input and output",
            {
              saves: false,
              python: () => this.answer?.python ?? "",
              note: `${this.isFixed ? "" : "Click letters to change the input. "}Below each letter stands its output.`,
            },
            this.words.node,
          ),
          studio.exported ? null : training,
        ),
        this.makeMatrices(),
        this.makeExplanation(),
      )),
    );
    this.drawControls();
    this.explainMissing(address.get("run"), studio);
  }

  // Say why the run that the address names is not shown.
  explainMissing(run, { models }) {
    if (run === null || this.runs.includes(run)) return;
    const model = models.find(({ id }) => id === run);
    const reason =
      model === undefined
        ? "is not open in this studio"
        : model.kind === null
          ? `cannot be opened: ${model.about}`
          : "is not a smallest transformer";
    this.rule.before(
      make("p", {
        class: "note",
        text: `The run ${run.slice(0, 80)} ${reason}. The matrices below are not its own.`,
        attributes: { role: "status" },
      }),
    );
  }

  // Parts

  makeGrid(name) {
    const grid = new NumberGrid({
      label: name,
      colour: name === "Attn" ? "weight" : "signed",
      onEdit:
        PARAMETERS.includes(name) && !this.isFixed
          ? (row, column, value) => this.edit(name, row, column, value)
          : null,
      onPick: COMPUTED.includes(name)
        ? (row, column) => this.set({ cell: { name, row, column } }, false)
        : null,
    });
    const shape = make("span", { class: "muted" });
    const node = make(
      "figure",
      { class: "grid-figure", dataset: { matrix: name } },
      make(
        "figcaption",
        {},
        make("b", { text: name }),
        shape,
        make("span", { class: "grid-meaning", text: MEANINGS[name] }),
      ),
      make("div", { class: "scroll" }, grid.node),
    );
    return { grid, node, shape };
  }

  makeMatrices() {
    const list = (names) =>
      make(
        "div",
        { class: "grids" },
        names.map((name) => this.grids[name].node),
      );
    return panel(
      "The matrices",
      {
        name: "smallest-transformer",
        python: () => this.answer?.python ?? "",
        explainAt: () => this.explanation.closest(".panel"),
        note: `Above: the parameters. ${this.isFixed ? "" : "Drag a cell up or down and watch the answer, or click it and use the arrow keys or type a number. "}Below: what they compute from this input, x = [letter, place]; click a cell to see how.`,
      },
      list(PARAMETERS),
      list(COMPUTED),
    );
  }

  makeExplanation() {
    return panel(
      "Why this cell has its number",
      { saves: false, python: () => this.answer?.python ?? "" },
      this.explanation,
    );
  }

  makeTraining() {
    this.trainer = button(`train ${STEPS} steps`, () => this.train(), {
      kind: "primary",
      title: "from the matrices as they are now",
      disabled: true,
    });
    this.resetter = button("reset the matrices", () => this.set({ matrices: null }), {
      title: "back to the weights that are chosen above",
      disabled: true,
    });
    return panel(
      "Training",
      {
        name: "smallest-training",
        python: () => this.trained ?? this.answer?.python ?? "",
        note: "Begin with random weights, train a few times, and watch the matrices move. The learning rate rises and falls within each training, so the loss may jump when the next one begins.",
      },
      make("div", { class: "row" }, this.trainer, this.resetter),
      this.chart,
    );
  }

  drawControls() {
    const { rule, start, run, letters, sharpness, seed } = this.state;
    const starts = ["by hand", "learned", "random", ...this.runs.map((id) => [`run ${id}`, id])];
    redraw(
      this.controls,
      start === "run"
        ? null
        : tabs("task", Object.keys(RULE_WORDS), rule, (value) =>
            this.set({ rule: value, matrices: null, cell: null }),
          ),
      tabs("weights", starts, start === "run" ? `run ${run}` : start, (value) =>
        this.choose(value),
      ),
      start === "run"
        ? null
        : choice(
            "longest",
            [
              [4, "4 letters"],
              [5, "5 letters"],
              [6, "6 letters"],
            ],
            letters,
            (value) =>
              this.set({
                letters: Number(value),
                text: this.state.text.slice(0, value),
                matrices: null,
                cell: null,
              }),
          ),
      start === "by hand"
        ? slider("sharpness", { min: 0.5, max: 40, step: 0.5, value: sharpness }, (value) =>
            this.set({ sharpness: value, matrices: null }),
          )
        : null,
      start === "random"
        ? button("draw others", () => this.set({ seed: seed + 1, matrices: null }), {
            title: "other random weights",
          })
        : null,
    );
  }

  choose(value) {
    const isRun = value.startsWith("run ");
    // Every run reads texts of up to 3 letters; whether it reads longer ones is known only when it is open.
    const letters = isRun ? this.state.letters : Math.min(Math.max(this.state.letters, 4), 6);
    const text = this.state.text.slice(0, isRun ? 3 : letters);
    this.set({
      start: isRun ? "run" : value,
      run: isRun ? value.slice(4) : null,
      letters,
      text,
      matrices: null,
      cell: null,
    });
    this.drawControls();
  }

  // State

  // Change the state. asks: whether something has to be computed.
  set(values, asks = true) {
    Object.assign(this.state, values);
    this.remember();
    if (!asks) {
      this.draw(this.answer);
      return;
    }
    this.stopTraining();
    if (["rule", "start", "letters"].some((name) => name in values)) this.askLater.stop(); // answers of other shapes
    this.showWaiting();
    this.askLater();
  }

  get question() {
    const { rule, start, run, letters, sharpness, seed, text, matrices } = this.state;
    const own = { by: { sharpness }, random: { seed }, run: { model: run } }[start.split(" ")[0]];
    const sizes = start === "run" && matrices === null ? {} : { rule, max_len: letters };
    return { text, start, ...sizes, ...own, ...(matrices === null ? {} : { matrices }) };
  }

  // What is chosen: the task, the weights to start from, and whether they were edited or trained.
  get selection() {
    const { rule, letters, start, run, seed, matrices } = this.state;
    return JSON.stringify([
      ...(start === "run" ? [run] : [rule, letters, start, start === "random" ? seed : null]),
      matrices !== null,
    ]);
  }

  // Whether the chosen matrices are on the page: edited or trained here, or in the last answer.
  get isFresh() {
    return (
      this.answer !== undefined &&
      (this.state.matrices !== null || this.answer.selection === this.selection)
    );
  }

  async compute(signal) {
    const { selection } = this;
    return { ...(await ask("run_smallest", this.question, { signal })), selection };
  }

  // While other matrices are being computed or learned, those on the page are pale and cannot be trained.
  showWaiting() {
    this.waiting.hidden = this.isFresh;
    this.waiting.textContent =
      this.state.start === "learned"
        ? "Learning the weights … this takes a few seconds."
        : "Computing …";
    this.body.classList.toggle("stale", !this.isFresh);
    this.trainer.disabled = this.training !== null || !this.isFresh;
  }

  fail(error) {
    this.waiting.hidden = true;
    this.resetter.disabled = this.state.matrices === null; // a reset helps if the matrices are wrong
    message(this.error, error);
  }

  edit(name, row, column, value) {
    if (!this.isFresh) return;
    const matrices = this.state.matrices ?? toMatrices(this.answer.parameters);
    matrices[name][row][column] = value;
    this.set({ matrices });
  }

  // Training

  async train() {
    if (!this.isFresh) return;
    this.stopTraining();
    const own = new AbortController();
    this.training = own;
    this.showWaiting();
    const { rule, letters, text } = this.state;
    const matrices = this.state.matrices ?? toMatrices(this.answer.parameters);
    const before = this.losses.at(-1)?.[0] ?? 0;
    try {
      for await (const answer of stream(
        "train_smallest",
        { text, matrices, rule, max_len: letters, steps: STEPS },
        { signal: own.signal },
      )) {
        await new Promise(requestAnimationFrame); // a picture for every answer
        if (own.signal.aborted) return;
        this.losses.push([before + answer.step, answer.loss]);
        this.trained = answer.python;
        this.state.matrices = toMatrices(answer.parameters);
        this.draw({
          ...answer,
          topics: this.answer.topics,
          bound: null,
          selection: this.selection,
        });
      }
      this.endTraining(own);
      this.set({ matrices: this.state.matrices });
    } catch (error) {
      this.endTraining(own);
      if (error.name !== "AbortError") message(this.error, error);
    }
  }

  endTraining(own) {
    if (this.training !== own) return;
    this.training = null;
    this.showWaiting();
  }

  stopTraining() {
    this.training?.abort();
    this.training = null;
    if (this.state.matrices === null) {
      this.losses = [];
      this.trained = null;
    }
  }

  // Drawing

  draw(answer) {
    this.answer = answer;
    if (this.state.start === "run" && this.state.matrices === null)
      Object.assign(this.state, { rule: answer.rule, letters: answer.max_len });
    this.showWaiting();
    clear(this.error);
    const bound =
      answer.bound === null || answer.bound === undefined
        ? ""
        : ` With sharpness ${this.state.sharpness}, no number can be wrong by more than ${number(answer.bound)}.`;
    this.rule.textContent = RULE_WORDS[answer.rule] + bound;
    this.resetter.disabled = this.state.matrices === null;
    this.words.show(answer);
    this.drawGrids(answer);
    const { name, row, column } = this.limitCell(answer);
    clear(this.explanation, explainEntry(answer, name, row, column));
    for (const each of COMPUTED)
      this.grids[each].grid.select(...(each === name ? [row, column] : [null]));
    clear(this.chart, this.drawLosses());
  }

  drawLosses() {
    if (!this.losses.length)
      return make("p", { class: "muted", text: "No step yet. The loss will appear here." });
    if (this.losses.every(([, loss]) => loss === 0))
      return make("p", { text: "The loss is 0: there is nothing to learn." }); // 0 has no logarithm
    return [
      make("p", { class: "muted", text: "Loss (mean squared error) by step:" }),
      lineChart({
        series: [{ name: "loss", points: this.losses }],
        x: "step",
        log: "y",
        label: "loss by step",
      }),
    ];
  }

  drawGrids(answer) {
    const topics = answer.topics ?? listNumbers(answer.parameters.Km.shape[1]);
    const columns = {
      Km: topics,
      Qm: topics,
      K: topics,
      Q: topics,
      Vm: answer.outputs,
      V: answer.outputs,
      Out: answer.outputs,
      Attn: answer.tokens,
    };
    for (const name of [...PARAMETERS, ...COMPUTED]) {
      const { grid, node, shape } = this.grids[name];
      // While a cell is dragged, the answer may be about an older number: edited parameters come from the state.
      const own = this.state.matrices?.[name];
      const values = PARAMETERS.includes(name)
        ? own
          ? toArray(own)
          : answer.parameters[name]
        : answer[name];
      node.hidden = values === null;
      if (values === null) continue;
      const rows =
        {
          Km: answer.inputs,
          Qm: answer.inputs,
          Vm: answer.inputs,
          pos: listNumbers(values.shape[0]).map((i) => `place ${i}`),
        }[name] ?? answer.tokens;
      grid.show(values, { rows, columns: columns[name] ?? listNumbers(values.shape[1]) });
      shape.textContent = `(${values.shape.join(", ")})`;
    }
  }

  // The chosen cell, limited to the size of its matrix; at first, what the last token attends to most.
  limitCell(answer) {
    const last = answer.tokens.length - 1;
    const { name, row, column } = this.state.cell ?? {
      name: "Attn",
      row: last,
      column: argmax(answer.Attn.part(last).data),
    };
    const [T, S] = answer[name].shape;
    return { name, row: Math.min(row, T - 1), column: Math.min(column, S - 1) };
  }

  leave() {
    this.isGone = true;
    this.askLater.stop();
    this.training?.abort();
    for (const { grid } of Object.values(this.grids)) grid.leave();
  }
}

const toArray = (rows) =>
  new NumberArray([rows.length, rows[0].length], Float64Array.from(rows.flat()));

// The parameters as lists of rows with six digits, so that they fit into an address.
function toMatrices(parameters) {
  const shorten = (x) => Number(x.toPrecision(6));
  return Object.fromEntries(
    Object.entries(parameters)
      .filter(([, values]) => values !== null)
      .map(([name, values]) => [name, values.toList().map((row) => row.map(shorten))]),
  );
}
