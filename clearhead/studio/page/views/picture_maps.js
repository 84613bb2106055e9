// Which patches a picture model uses: five heat maps, one of them large.
import { ask, latest } from "../api.js";
import { argmax } from "../array.js";
import { clear, make } from "../dom.js";
import { inBrackets, number } from "../format.js";
import { message, panel, refreshExplanation } from "../panel.js";
import { PatchPicture, drawHeatThumb, patchName } from "./patch_picture.js";

const MOST_MEASURED = 100; // patches; with more, covering is measured only on request

// name → title, and what the map shows.
export const PICTURE_MAPS = {
  mean: [
    "attention",
    "Where the model looked: the mean over all heads and layers of the attention from which the answer is read.",
  ],
  rollout: [
    "rollout",
    "Attention followed through all layers, from the answer back to the patches.",
  ],
  gradient: ["gradient", "Only attention that raises the logit of the answer."],
  covering: [
    "covering",
    "Measured: by how much the logit of the answer falls when this patch alone is covered. Orange: it rises.",
  ],
  untrained: ["untrained", "The attention of the same model before training, for comparison."],
};

export class PictureMaps {
  // state: {map, key}: the large map and its chosen patch; args(): the arguments that name the picture.
  constructor(state, { args, onChange }) {
    Object.assign(this, { state, args, onChange, effects: null });
    this.run = latest();
    this.large = new PatchPicture({
      label: "heat map: choose a patch",
      onPick: (key) => this.choose({ key }),
    });
    this.words = make("p", { class: "note" });
    this.cell = make("p", { class: "map-cell", attributes: { "aria-live": "polite" } });
    this.choices = make("div", {
      class: "map-choices",
      attributes: { role: "group", "aria-label": "heat maps" },
    });
    this.node = panel(
      "Which patches it uses",
      {
        name: "maps",
        note: "Five ways to ask. They need not agree: attention says where the model looked, covering what its answer depends on.",
        python: () =>
          (state.map === "covering" && this.effects ? this.effects : this.answer).python,
        explain: () => this.explain(),
      },
      this.choices,
      make(
        "div",
        { class: "picture-row" },
        this.large.node,
        make("div", { class: "stack" }, this.words, this.cell),
      ),
    );
  }

  // heads: (layer, head) → the weights on the patches, for the token that the answer is read from; null if the
  // attention of another token is shown.
  show(answer, picture, { isNew, heads }) {
    Object.assign(this, { answer, picture, heads });
    if (isNew) this.effects = null;
    this.draw();
    const count = answer.grid[0] * answer.grid[1];
    if (this.effects === null && (count <= MOST_MEASURED || this.state.map === "covering"))
      this.measure();
  }

  async measure() {
    try {
      const found = await this.run((signal) => ask("measure_covering", this.args(), { signal }));
      if (found === undefined) return;
      this.effects = found;
      this.draw();
    } catch (error) {
      message(this.cell, error);
    }
  }

  // The numbers of a map, one for each patch; null before they are measured.
  valuesOf(map) {
    const values = map === "covering" ? this.effects?.effects : this.answer.maps[map];
    return values ? [...values.data] : null;
  }

  draw() {
    const { answer, picture, state } = this;
    clear(
      this.choices,
      Object.entries(PICTURE_MAPS).map(([name, [title]]) => {
        const canvas = make("canvas", { class: "heat-thumb" });
        drawHeatThumb(canvas, picture, this.valuesOf(name), answer.grid);
        return make(
          "button",
          {
            type: "button",
            class: "heat-choice",
            attributes: { "aria-pressed": String(name === state.map) },
            on: { click: () => this.choose({ map: name }) },
          },
          canvas,
          make("span", { text: title }),
        );
      }),
    );
    const values = this.valuesOf(state.map);
    this.words.textContent = PICTURE_MAPS[state.map][1];
    this.large.show({ picture, grid: answer.grid, values, chosen: state.key });
    this.cell.textContent = this.describe(values);
    refreshExplanation(this.node);
  }

  describe(values) {
    const { key } = this.state;
    if (values === null) return "Measuring …";
    if (key === null || key >= values.length) return "Click a patch for its number.";
    return `The patch at ${patchName(key, this.answer.grid[1])}: ${number(values[key])}`;
  }

  choose(values) {
    Object.assign(this.state, values);
    this.draw();
    this.onChange();
    if (this.state.map === "covering" && this.effects === null) this.measure();
  }

  explain() {
    const { map, key } = this.state;
    const values = this.valuesOf(map);
    if (key === null || values === null || key >= values.length)
      return make("p", { text: "Click a patch in the map: its number is explained here." });
    const value = number(values[key]);
    if (map === "mean") return this.explainMean(value);
    if (map === "covering") return this.explainCovering(value);
    const words = {
      untrained: `The same mean as for attention, of a model with the same sizes and random weights: ${value}.`,
      rollout: `Each layer becomes the matrix (mean over heads + I) ÷ 2, its rows divided by their sums; I stands for the residual path. In the product of these matrices, the row of the answer has ${value} in the column of this patch.`,
      gradient: `For each layer, R ← R + Ā R. Ā is the mean over heads of max(0, weight × ∂logit/∂weight), and R starts as I. The row of the answer has ${value} in the column of this patch.`,
    };
    return make("p", { text: words[map] });
  }

  // The weight of the chosen patch in every head.
  explainMean(value) {
    const words = `The mean over all heads of all layers is ${value}.`;
    if (this.heads === null) {
      const who = this.answer.pool === "class" ? "the class token looks" : "all patches look";
      return make("p", {
        text: `${words} In “Every head” below, a patch looks; press “${who}” there to see the weight in each head here.`,
      });
    }
    const [L, H] = this.answer.weights.shape;
    const weights = Array.from({ length: L }, (_, l) =>
      Array.from({ length: H }, (_unused, h) => this.heads(l, h)[this.state.key]),
    );
    const rows = weights.map((each, l) =>
      make(
        "tr",
        {},
        make("th", { text: `layer ${l}` }),
        each.map((weight) => make("td", { text: number(weight) })),
      ),
    );
    const sum = weights.flat().reduce((total, weight) => total + weight, 0);
    return make(
      "div",
      { class: "stack" },
      make("p", { text: "The weight of this patch in each head:" }),
      make("table", { class: "numbers" }, make("tbody", {}, rows)),
      make("p", {
        class: "equation mono",
        text: `mean = Σ weights / n = ${number(sum)} / ${L * H} = ${value}`,
      }),
    );
  }

  explainCovering(value) {
    const holder = make("div", {}, make("p", { class: "muted", text: "…" }));
    ask("cover_picture", { ...this.args(), covered: [this.state.key] }).then(
      (found) => {
        const logits = [...found.logits.part(0).data];
        const best = argmax(logits);
        const [before, after] = [0, 1].map((i) => found.logits.at(i, best));
        clear(
          holder,
          make("p", {
            text: `The logit of ${this.answer.classes[best]}, with the whole picture and with this patch covered:`,
          }),
          make("p", {
            class: "mono",
            text: `${number(before)} − ${inBrackets(after)} = ${value}`,
          }),
          make("p", {
            text: `Its probability goes from ${number(found.probs.at(0, best))} to ${number(found.probs.at(1, best))}.`,
          }),
        );
      },
      (error) => message(holder, error),
    );
    return holder;
  }
}
