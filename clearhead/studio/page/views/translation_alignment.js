// Where each word of a translation looked: lines, a matrix, and any layer and head of a transformer.
import { ask, latest } from "../api.js";
import { argmax } from "../array.js";
import { clear, make } from "../dom.js";
import { number, tokenName } from "../format.js";
import { Matrix } from "../matrix.js";
import { choice, message, panel, refreshExplanation } from "../panel.js";
import { AlignmentLines } from "./alignment_lines.js";
import { explainScoreTerms } from "./score_terms.js";

export class TranslationAlignment {
  // state: {layer, head (null = the mean of all), place (the chosen source token)}; onStep(step): another
  // target word was chosen.
  constructor(state, { args, onStep, onChange }) {
    Object.assign(this, { state, args, onStep, onChange });
    this.run = latest();
    this.lines = new AlignmentLines({ onPick: onStep });
    this.matrix = new Matrix({
      label: "alignment: rows are words of the translation, columns tokens of the source",
      onPick: (step, place) => this.pick(step, place),
    });
    this.choices = make("div", { class: "row" });
    this.words = make("p", { attributes: { "aria-live": "polite" } });
    this.node = panel(
      "Where each word looked",
      {
        name: "alignment",
        note: "Above, the sentence; below, the translation. The thicker a line, the more the word took from there. Point at a word to see only its lines. A line may end next to the token that a word comes from: the encoder's state at a token also holds the tokens around it (in a GRU: those before it).",
        python: () => this.answer.python,
        explain: () => this.explain(),
      },
      this.choices,
      this.lines.node,
      this.words,
      this.matrix.node,
    );
  }

  show(answer, step) {
    Object.assign(this, { answer, step });
    const L = answer.layers.length;
    if (this.state.layer === null || this.state.layer >= L) this.state.layer = L - 1;
    const H = this.layer.weights.shape[0];
    if (H === 1 || this.state.head >= H) this.state.head = null;
    if (this.state.place !== null && this.state.place >= answer.source.length)
      this.state.place = null;
    this.drawChoices(L, H);
    this.draw();
  }

  get layer() {
    return this.answer.layers[this.state.layer];
  }

  get map() {
    return this.state.head === null ? this.layer.mean : this.layer.weights.part(this.state.head);
  }

  drawChoices(L, H) {
    const change = (values) => {
      Object.assign(this.state, values);
      this.draw();
      this.onChange();
    };
    clear(
      this.choices,
      L > 1
        ? choice(
            "layer",
            Array.from({ length: L }, (_, l) => [l, `layer ${l}`]),
            this.state.layer,
            (value) => change({ layer: Number(value) }),
          )
        : null,
      H > 1
        ? choice(
            "head",
            [["", "mean of all heads"], ...Array.from({ length: H }, (_, h) => [h, `head ${h}`])],
            this.state.head ?? "",
            (value) => change({ head: value === "" ? null : Number(value) }),
          )
        : null,
    );
    this.choices.hidden = L === 1 && H === 1;
  }

  draw() {
    const { source, target } = this.answer;
    this.lines.show(this.map, source, target, this.step);
    this.matrix.show(this.map, { rows: target, columns: source });
    const { place } = this.state;
    if (place === null) this.matrix.select(null);
    else this.matrix.select(this.step, place);
    this.words.textContent = this.describe();
    refreshExplanation(this.node);
  }

  describe() {
    const { source, target } = this.answer;
    const row = [...this.map.part(this.step).data];
    const place = this.state.place ?? argmax(row);
    const rest = this.state.place === null ? " That is where it looked most." : "";
    return `Step ${this.step}, “${tokenName(target[this.step])}”: weight ${number(row[place])} on “${tokenName(source[place])}” at position ${place}.${rest}`;
  }

  pick(step, place) {
    this.state.place = place;
    this.onStep(step);
  }

  explain() {
    const { layer, place } = this.state;
    const H = this.layer.weights.shape[0];
    if (place === null)
      return make("p", { text: "Click a cell of the matrix: its weight is explained here." });
    if (this.state.head === null && H > 1) {
      const values = Array.from({ length: H }, (_, h) =>
        this.layer.weights.at(h, this.step, place),
      );
      return make("p", {
        class: "mono",
        text: `(${values.map((x) => number(x)).join(" + ")}) ÷ ${H} heads = ${number(this.map.at(this.step, place))}`,
      });
    }
    const holder = make("div", {}, make("p", { class: "muted", text: "…" }));
    const args = {
      ...this.args(),
      ids: this.answer.ids,
      step: this.step,
      place,
      layer,
      head: this.state.head ?? 0,
    };
    this.run((signal) => ask("explain_alignment", args, { signal })).then(
      (found) => {
        if (found === undefined) return;
        const key = `“${tokenName(this.answer.source[place])}” at position ${place}`;
        clear(
          holder,
          explainScoreTerms(found, {
            kind: found.kind,
            column: place,
            query: `step ${this.step}`,
            key,
          }),
        );
      },
      (error) => message(holder, error),
    );
    return holder;
  }
}
