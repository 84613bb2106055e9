// Beam search: sliders, the sentences it finds, and the tree of the beams it keeps.
import { ask, hasChoices, latest } from "../api.js";
import { clear, debounce, make } from "../dom.js";
import { number, tokenName } from "../format.js";
import { message, panel, refreshExplanation, slider } from "../panel.js";
import { BeamTreePicture, tracePath } from "./beam_tree.js";
import { writeSum } from "./score_terms.js";

export class TranslationBeams {
  // state: {n_beams, length_penalty}; args(): the model and the text; onChange(): a slider was moved.
  constructor(state, { args, onChange }) {
    Object.assign(this, { state, args, onChange, chosen: null });
    this.run = latest();
    this.searchLater = debounce(120, () => this.search());
    this.tree = new BeamTreePicture({ onPick: (t, i) => this.choose(t, i) });
    this.table = make("div", { class: "scroll" });
    this.words = make("p", { attributes: { "aria-live": "polite" } });
    this.error = make("div");
    this.node = panel(
      "Beam search",
      {
        name: "beams",
        note: "Greedy search always takes the likeliest word. Beam search keeps several beginnings at once and compares whole sentences. In the tree, each box is a word with the log probability of the sentence so far; the thick line is the winner.",
        python: () => this.answer.python,
        explain: () => this.explain(),
      },
      make(
        "div",
        { class: "row", hidden: !hasChoices("search_beams") },
        slider("beams", { min: 1, max: 8, value: state.n_beams }, (value) =>
          this.set({ n_beams: value }),
        ),
        slider(
          "length penalty",
          { min: 0, max: 2, step: 0.1, value: state.length_penalty, format: (x) => x.toFixed(1) },
          (value) => this.set({ length_penalty: value }),
        ),
      ),
      this.error,
      this.tree.node,
      this.words,
      this.table,
    );
  }

  set(values) {
    Object.assign(this.state, values);
    this.onChange();
    this.searchLater();
  }

  async search() {
    const asked = { ...this.state };
    try {
      const answer = await this.run((signal) =>
        ask("search_beams", { ...this.args(), ...asked }, { signal }),
      );
      if (answer === undefined) return;
      Object.assign(this, { answer, asked, chosen: null, result: 0 });
      clear(this.error);
      this.draw();
    } catch (error) {
      message(this.error, error);
    }
  }

  // The places of the highlighted beam: of the chosen node, or of the chosen sentence.
  get path() {
    if (this.chosen !== null) return tracePath(this.answer.steps, ...this.chosen);
    return this.answer.results[this.result]?.path ?? [];
  }

  draw() {
    this.tree.show(this.answer.steps, this.path, this.chosen);
    this.drawTable();
    this.words.textContent = this.describe();
    refreshExplanation(this.node);
  }

  choose(t, i) {
    this.chosen = [t, i];
    this.draw();
  }

  // The words on the highlighted path, each with its own log p.
  get terms() {
    let before = 0;
    return this.path.map((place, t) => {
      const step = this.answer.steps[t];
      const i = step.places.indexOf(place);
      const own = step.log_probs[i] - before;
      before = step.log_probs[i];
      return { word: step.words[i], own, log_prob: step.log_probs[i] };
    });
  }

  describe() {
    const { results } = this.answer;
    if (this.chosen !== null)
      return `Chosen: ${this.terms.map(({ word }) => tokenName(word)).join(" ")}`;
    const kept = this.answer.steps.reduce((sum, { places }) => sum + places.length, 0);
    return `${results.length} ${results.length === 1 ? "sentence was" : "sentences were"} found; ${kept} beams were kept in ${this.answer.steps.length} steps.`;
  }

  drawTable() {
    const head = ["translation", "log p", "words", "score", "p"];
    const rows = this.answer.results.map((found, i) =>
      make(
        "tr",
        { class: i === this.result && this.chosen === null ? "chosen" : "" },
        make(
          "td",
          { class: "name" },
          make("button", {
            type: "button",
            class: "chip",
            text: found.text,
            attributes: { "aria-pressed": String(i === this.result && this.chosen === null) },
            on: { click: () => this.open(i) },
          }),
        ),
        [
          number(found.log_prob),
          String(found.length),
          number(found.score),
          number(Math.exp(found.log_prob)),
        ].map((text) => make("td", { text })),
      ),
    );
    clear(
      this.table,
      make(
        "table",
        { class: "numbers heads-right beam-results" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            head.map((text) => make("th", { text })),
          ),
        ),
        make("tbody", {}, rows),
      ),
    );
  }

  open(i) {
    Object.assign(this, { result: i, chosen: null });
    this.draw();
  }

  // log p is the sum of the log p of the words; the score divides it by the length.
  explain() {
    const terms = this.terms;
    if (!terms.length) return make("p", { text: "Click a box of the tree." });
    const last = terms[terms.length - 1].log_prob;
    const power = this.asked.length_penalty;
    const score = last / terms.length ** power;
    return make(
      "div",
      { class: "stack" },
      make("p", {
        text: "The log probability of a sentence is the sum over its words, each given those before it:",
      }),
      make("p", {
        class: "mono",
        text: `log p = ${writeSum(terms.map(({ word, own }) => `${number(own)} (${tokenName(word)})`))} = ${number(last)}`,
      }),
      make("p", {
        class: "mono",
        text: `score = log p ÷ words^penalty = ${number(last)} ÷ ${terms.length}^${power.toFixed(1)} = ${number(score)}`,
      }),
      make("p", {
        text: "Every word lowers log p, so without a penalty (0) short sentences win for being short.",
      }),
    );
  }
}
