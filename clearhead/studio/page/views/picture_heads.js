// The patches that every head of a picture model looks at: small maps, and one of them large.
import { ask, latest } from "../api.js";
import { clear, make } from "../dom.js";
import { number } from "../format.js";
import { message, panel, refreshExplanation } from "../panel.js";
import { PatchPicture, drawHeatThumb, patchName } from "./patch_picture.js";
import { explainScoreTerms } from "./score_terms.js";

export class PictureHeads {
  // state: {layer, head, patch (who looks; null = the class token), key (the chosen patch)};
  // onLook(patch): another token looks; onChange(): another head or patch was chosen.
  constructor(state, { onLook, onChange, args }) {
    Object.assign(this, { state, onChange, args });
    this.run = latest();
    this.grid = make("div", {
      class: "picture-heads",
      attributes: { role: "group", "aria-label": "heads" },
    });
    this.who = new PatchPicture({
      label: "who looks: choose a patch",
      side: 150,
      onPick: (patch) => onLook(patch === this.state.patch ? null : patch),
    });
    this.where = new PatchPicture({
      label: "where it looks: choose a patch",
      onPick: (key) => this.choose({ key }),
    });
    this.whoWords = make("p", { class: "note" });
    this.whereWords = make("p", { class: "note" });
    this.own = make("button", {
      type: "button",
      class: "button",
      on: { click: () => onLook(null) },
    });
    this.node = panel(
      "Every head",
      {
        name: "heads",
        note: "Each small picture is one head: the bluer a patch, the more the head takes from it. Click one to see it large.",
        python: () => this.answer.python,
        explain: () => this.explain(),
      },
      make(
        "div",
        { class: "heads-layout" },
        make("div", { class: "scroll" }, this.grid),
        make(
          "div",
          { class: "row who-and-where" },
          make(
            "div",
            { class: "stack" },
            make("h3", { text: "who looks" }),
            this.who.node,
            this.own,
            this.whoWords,
          ),
          make(
            "div",
            { class: "stack" },
            make("h3", { text: "where it looks" }),
            this.where.node,
            this.whereWords,
          ),
        ),
      ),
    );
  }

  show(answer, picture) {
    Object.assign(this, { answer, picture });
    const [L, H] = answer.weights.shape;
    this.state.layer = Math.min(this.state.layer, L - 1);
    this.state.head = Math.min(this.state.head, H - 1);
    this.draw();
  }

  // The weights of one head on the patches, as a list.
  weightsOf(layer, head) {
    return [...this.answer.weights.part(layer, head).data.slice(this.answer.first)];
  }

  // In words: who looks.
  get looker() {
    const { patch } = this.state;
    if (patch !== null) return `the patch at ${patchName(patch, this.answer.grid[1])}`;
    return this.answer.pool === "class" ? "the class token" : "all patches, on average";
  }

  draw() {
    const { answer, picture, state } = this;
    const [L, H] = answer.weights.shape;
    this.grid.style.gridTemplateColumns = `max-content repeat(${H}, max-content)`;
    const names = [
      make("span"),
      ...Array.from({ length: H }, (_, h) =>
        make("span", { class: "heads-name", text: `head ${h}` }),
      ),
    ];
    clear(
      this.grid,
      names,
      Array.from({ length: L }, (_, l) => [
        make("span", { class: "heads-name", text: `layer ${l}` }),
        Array.from({ length: H }, (_unused, h) => this.drawHead(l, h)),
      ]),
    );
    const weights = this.weightsOf(state.layer, state.head);
    this.who.show({ picture, grid: answer.grid, chosen: state.patch });
    this.where.show({ picture, grid: answer.grid, values: weights, chosen: state.key });
    this.own.textContent = answer.pool === "class" ? "the class token looks" : "all patches look";
    this.own.disabled = state.patch === null;
    this.whoWords.textContent =
      state.patch === null
        ? `Now ${this.looker}: the answer is read from there. Click a patch to see where that patch looks.`
        : `Now ${this.looker}.`;
    this.whereWords.textContent = this.describe(weights);
    refreshExplanation(this.node);
  }

  drawHead(layer, head) {
    const canvas = make("canvas", { class: "heat-thumb" });
    const side = this.answer.weights.shape[1] <= 4 ? 92 : 60; // pixels
    drawHeatThumb(canvas, this.picture, this.weightsOf(layer, head), this.answer.grid, side);
    const isOpen = layer === this.state.layer && head === this.state.head;
    return make(
      "button",
      {
        type: "button",
        class: "heat-choice",
        title: `layer ${layer}, head ${head}`,
        ariaLabel: `layer ${layer}, head ${head}`,
        attributes: { "aria-pressed": String(isOpen) },
        on: { click: () => this.choose({ layer, head }) },
      },
      canvas,
    );
  }

  describe(weights) {
    const { layer, head, key } = this.state;
    const rest = this.answer.first
      ? ` The class token itself gets ${number(this.answer.weights.at(layer, head, 0))}.`
      : "";
    const words = `Layer ${layer}, head ${head}: the weights of ${this.looker} on the patches.${rest}`;
    return key === null
      ? `${words} Click a patch for its number.`
      : `${words} The patch at ${patchName(key, this.answer.grid[1])} gets ${number(weights[key])}.`;
  }

  choose(values) {
    Object.assign(this.state, values);
    this.draw();
    this.onChange();
  }

  explain() {
    const { layer, head, patch, key } = this.state;
    if (key === null)
      return make("p", { text: "Click a patch in the large map: its weight is explained here." });
    if (patch === null && this.answer.pool !== "class")
      return make("p", {
        text: "This is a mean over all patches that look. Choose one patch under “who looks” to see how its weight is computed.",
      });
    const holder = make("div", {}, make("p", { class: "muted", text: "…" }));
    const names = {
      kind: "dot product",
      column: this.answer.first + key,
      query: this.looker,
      key: `the patch at ${patchName(key, this.answer.grid[1])}`,
    };
    this.run((signal) =>
      ask("explain_patch", { ...this.args(), layer, head, key, patch }, { signal }),
    ).then(
      (found) => {
        if (found !== undefined) clear(holder, explainScoreTerms(found, names));
      },
      (error) => message(holder, error),
    );
    return holder;
  }
}
