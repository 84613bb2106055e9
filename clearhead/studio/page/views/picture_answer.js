// The answer to a picture, and how it changes when patches are covered.
import { ask, latest } from "../api.js";
import { argmax } from "../array.js";
import { bars } from "../charts.js";
import { clear, debounce, make } from "../dom.js";
import { number } from "../format.js";
import { button, message, panel, refreshExplanation } from "../panel.js";
import { PatchPicture } from "./patch_picture.js";

const MOST_CLASSES = 12; // bars

export class PictureAnswer {
  // args(): the arguments that name the picture; onChange(): other patches are covered.
  constructor(covered, { args, onChange }) {
    Object.assign(this, { args, onChange, covered: new Set(covered), after: null });
    this.run = latest();
    this.askLater = debounce(30, () => this.coverPatches());
    this.canvas = new PatchPicture({
      label: "the picture: choose patches to cover",
      onPaint: (patch, isFirst) => this.paint(patch, isFirst),
    });
    this.verdict = make("p", { class: "picture-verdict", attributes: { "aria-live": "polite" } });
    this.bars = make("div", { class: "class-bars" });
    const buttons = make(
      "div",
      { class: "row" },
      button("uncover all", () => this.setCovered([])),
      button(
        "swap covered and seen",
        () => this.setCovered(this.listPatches().filter((patch) => !this.covered.has(patch))),
        { title: "cover the patches that are seen, and show the covered ones" },
      ),
    );
    this.node = panel(
      "The answer",
      {
        name: "picture",
        note: "Click patches, or drag over them, to cover them with the mean colour of the picture, and see the probabilities move.",
        python: () => (this.after ?? this.answer).python,
        explain: () => this.explain(),
      },
      make(
        "div",
        { class: "picture-row" },
        make("div", { class: "stack" }, this.canvas.node, buttons),
        make("div", { class: "stack" }, this.verdict, this.bars),
      ),
    );
  }

  // Another picture is shown; covered: its covered patches.
  show(answer, picture, covered) {
    Object.assign(this, { answer, picture, after: null });
    this.covered = new Set([...covered].filter((patch) => this.listPatches().includes(patch)));
    this.drawPicture();
    this.draw();
    if (this.covered.size) this.coverPatches();
  }

  listPatches() {
    return Array.from({ length: this.answer.grid[0] * this.answer.grid[1] }, (_, patch) => patch);
  }

  // The first patch of a drag decides whether the others are covered or uncovered.
  paint(patch, isFirst) {
    if (isFirst) this.isCovering = !this.covered.has(patch);
    if (this.covered.has(patch) === this.isCovering) return;
    const next = new Set(this.covered);
    if (this.isCovering) next.add(patch);
    else next.delete(patch);
    this.setCovered(next);
  }

  setCovered(covered) {
    this.covered = new Set(covered);
    this.drawPicture();
    this.onChange();
    this.askLater();
  }

  async coverPatches() {
    const covered = [...this.covered].sort((a, b) => a - b);
    try {
      const after = await this.run((signal) =>
        covered.length ? ask("cover_picture", { ...this.args(), covered }, { signal }) : null,
      );
      if (after === undefined) return;
      this.after = after;
      this.draw();
    } catch (error) {
      message(this.bars, error);
    }
  }

  drawPicture() {
    const colour = [...this.answer.colour.data].map(Math.round);
    const cover = `rgb(${(colour.length === 3 ? colour : [colour[0], colour[0], colour[0]]).join(" ")})`;
    this.canvas.show({
      picture: this.picture,
      grid: this.answer.grid,
      covered: this.covered,
      cover,
    });
  }

  // The logits and probabilities that are shown: of the covered picture, if patches are covered.
  get now() {
    const { answer, after } = this;
    return {
      logits: [...(after ? after.logits.part(1) : answer.logits).data],
      probs: [...(after ? after.probs.part(1) : answer.probs).data],
    };
  }

  draw() {
    const before = [...this.answer.probs.data];
    const { probs } = this.now;
    const shown = chooseClasses(before, probs);
    const best = argmax(probs);
    this.verdict.textContent = this.describe(best, probs[best]);
    const labels = shown.map((i) => this.answer.classes[i]);
    this.bars.style.setProperty(
      "--name",
      `${Math.min(12, Math.max(...labels.map((name) => name.length)) + 1)}ch`,
    );
    clear(
      this.bars,
      bars({
        labels,
        values: shown.map((i) => probs[i]),
        compare: this.after ? shown.map((i) => before[i]) : null,
        chosen: shown.indexOf(best),
        max: 1,
        label: "probability of each class",
      }),
    );
    refreshExplanation(this.node);
  }

  describe(best, p) {
    const { classes, label, probs } = this.answer;
    const old = argmax(probs.data);
    const says = `It says ${classes[best]}, with probability ${number(p)}.`;
    if (this.after && best !== old)
      return `${says} With the whole picture it said ${classes[old]}.`;
    if (label === null) return says;
    return label === best
      ? `${says} That is right.`
      : `${says} The right class is ${classes[label]}.`;
  }

  // probability = exp(logit) ÷ sum, for each class.
  explain() {
    const { answer, after } = this;
    const { logits, probs } = this.now;
    const most = Math.max(...logits);
    const total = logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
    const head = [
      "class",
      "logit",
      "exp(logit − largest)",
      "÷ sum = probability",
      ...(after ? ["whole picture"] : []),
    ];
    const rows = chooseClasses(probs, probs).map((i) => {
      const cells = [
        number(logits[i]),
        number(Math.exp(logits[i] - most)),
        number(probs[i]),
        ...(after ? [number(answer.probs.at(i))] : []),
      ];
      return make(
        "tr",
        {},
        make("td", { class: "name mono", text: answer.classes[i] }),
        cells.map((text) => make("td", { text })),
      );
    });
    return make(
      "div",
      { class: "stack" },
      make("p", {
        text: `The model gives each class a logit${after ? ", here for the covered picture" : ""}. Softmax makes them probabilities: the sum of all exp(logit − ${number(most)}) is ${number(total)}.`,
      }),
      make(
        "table",
        { class: "numbers heads-right" },
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
}

// All classes in their order; of many, the most likely ones before or after.
function chooseClasses(before, after) {
  const all = before.map((_, i) => i);
  if (all.length <= MOST_CLASSES) return all;
  const size = (i) => Math.max(before[i], after[i]);
  return all.sort((a, b) => size(b) - size(a)).slice(0, MOST_CLASSES);
}
