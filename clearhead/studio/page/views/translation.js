// The translation view: what a translator writes, where each word looked, what else it could have written.
import { address } from "../address.js";
import { ask, hasChoices, latest } from "../api.js";
import { bars } from "../charts.js";
import { clear, debounce, make } from "../dom.js";
import { number, tokenName } from "../format.js";
import { button, field, message, panel, refreshExplanation } from "../panel.js";
import { TranslationAlignment } from "./translation_alignment.js";
import { TranslationBeams } from "./translation_beams.js";

const TRANSLATE_AFTER = 250; // milliseconds without a key before the text is translated
const [SURE_BITS, HESITANT_BITS] = [0.3, 1.5]; // below this entropy the model is sure, or hesitates

export const translationView = {
  name: "translation",
  title: "Translation",
  kinds: ["Seq2Seq"],
  about:
    "A translator reads a sentence and writes its translation word by word; for some models a word is a single letter. See where each word looked, and choose another word to see how it goes on.",
  missing: "Train one with: clearhead train translate-gru",
  mount: (root, studio) => new TranslationView(root, studio.model).close,
};

class TranslationView {
  constructor(root, { id, examples }) {
    Object.assign(this, { model: id, examples });
    this.text = address.get("text", examples[0] ?? "");
    this.prefix = readIds(address.getJSON("prefix", []));
    this.step = address.getWhole("step") ?? 0;
    this.beamState = {
      n_beams: address.getWithin("beams", 4, 1, 8),
      length_penalty: address.getWithin("penalty", 1, 0, 2),
    };
    this.run = latest();
    this.translateLater = debounce(TRANSLATE_AFTER, () => this.translate());
    this.build(root);
    this.close = () => [this, this.alignment, this.beams].forEach((part) => part.run.stop());
    this.translate();
  }

  build(root) {
    const shared = {
      args: () => ({ model: this.model, text: this.text }),
      onChange: () => this.keep(),
    };
    this.isFixed = !hasChoices("translate");
    this.input = make("input", {
      type: "text",
      readOnly: this.isFixed,
      class: "sentence-input",
      value: this.text,
      attributes: { maxlength: 2000, spellcheck: "false", autocomplete: "off" },
      on: { input: () => this.setText(this.input.value) },
    });
    const holder = field("sentence", this.input);
    holder.classList.add("wide");
    const tries = (this.isFixed ? [] : this.examples).map((text) =>
      make("button", {
        type: "button",
        class: "chip small",
        text,
        on: {
          click: () => {
            this.input.value = text;
            this.setText(text, true);
          },
        },
      }),
    );
    this.written = make("div", { class: "stack" });
    this.error = make("div");
    this.alignment = new TranslationAlignment(
      {
        layer: address.getWhole("layer"),
        head: address.getWhole("head"),
        place: address.getWhole("place"),
      },
      { ...shared, onStep: (step) => this.choose(step) },
    );
    this.buildStep();
    this.beams = new TranslationBeams(this.beamState, shared);
    this.results = make(
      "div",
      { class: "stack", hidden: true },
      make("div", { class: "columns translation-columns" }, this.alignment.node, this.stepPanel),
      this.beams.node,
    );
    root.append(
      panel(
        "Translate",
        { saves: false, python: () => this.answer.python },
        holder,
        make("div", { class: "chips" }, tries),
        this.error,
        this.written,
      ),
      this.results,
    );
  }

  buildStep() {
    this.stepWords = make("p");
    this.stepBars = make("div");
    this.stepButtons = make("div", { class: "row" });
    this.stepPanel = panel(
      "One step",
      {
        name: "step",
        note: `The probabilities of the next word.${this.isFixed ? "" : " Click another word: the translator must write it, and you see how it goes on."}`,
        python: () => this.answer.python,
        explain: () => this.explainStep(),
      },
      this.stepButtons,
      this.stepWords,
      this.stepBars,
    );
  }

  setText(text, isNow = false) {
    Object.assign(this, { text, prefix: [], step: 0 });
    this.keep();
    if (isNow) this.translateLater.now();
    else this.translateLater();
  }

  async translate() {
    const args = {
      model: this.model,
      text: this.text,
      ...(this.prefix.length ? { prefix: this.prefix } : {}),
    };
    try {
      const answer = await this.run((signal) => ask("translate", args, { signal }));
      if (answer === undefined) return;
      this.answer = answer;
      this.step = Math.min(Math.max(this.step, 0), answer.ids.length - 1);
      clear(this.error);
      this.results.hidden = false;
      this.draw();
      if (this.searched !== this.text) this.beams.search();
      this.searched = this.text;
    } catch (error) {
      clear(this.written);
      this.results.hidden = true;
      this.searched = null;
      message(this.error, error);
    }
  }

  keep() {
    const { layer, head, place } = this.alignment.state;
    address.set({
      text: this.text,
      prefix: this.prefix.length ? this.prefix : null,
      step: this.step || null,
      beams: this.beamState.n_beams === 4 ? null : this.beamState.n_beams,
      penalty: this.beamState.length_penalty === 1 ? null : this.beamState.length_penalty,
      layer,
      head,
      place,
    });
  }

  choose(step) {
    this.step = Math.min(Math.max(step, 0), this.answer.ids.length - 1);
    this.draw();
  }

  // Write this word at the chosen step; the words before it stay.
  force(id) {
    this.prefix =
      id === this.answer.ids[this.step] && this.step >= this.prefix.length
        ? []
        : [...this.answer.ids.slice(0, this.step), id];
    this.translate();
  }

  draw() {
    this.keep();
    this.drawWritten();
    this.alignment.show(this.answer, this.step);
    this.drawStep();
  }

  drawWritten() {
    const { answer, prefix } = this;
    const chips = answer.target.map((name, t) =>
      make("button", {
        type: "button",
        class: t === prefix.length - 1 ? "chip forced" : "chip",
        text: tokenName(name),
        title: `step ${t}: probability ${number(answer.probs.at(t))}${t === prefix.length - 1 ? ", forced by you" : ""}`,
        attributes: { "aria-pressed": String(t === this.step) },
        on: { click: () => this.choose(t) },
      }),
    );
    clear(
      this.written,
      make(
        "div",
        { class: "row" },
        make("output", { class: "translation-text", text: answer.text }),
        make("span", {
          class: "muted",
          text: `p = ${number(Math.exp(answer.log_prob))}, log p = ${number(answer.log_prob)}`,
        }),
      ),
      make(
        "div",
        { class: "chips", attributes: { role: "group", "aria-label": "words of the translation" } },
        chips,
      ),
      prefix.length
        ? make(
            "div",
            { class: "row" },
            make("span", {
              class: "muted",
              text: "You forced the orange word; all words after it follow from it.",
            }),
            button("let the model choose", () => {
              this.prefix = [];
              this.translate();
            }),
          )
        : null,
      answer.is_ended
        ? null
        : make("p", {
            class: "note",
            text: "The translation was cut off: it reached the largest number of words.",
          }),
      answer.note ? make("p", { class: "note", text: `Note: ${answer.note}.` }) : null,
    );
  }

  drawStep() {
    const { answer, step } = this;
    const probs = [...answer.likely.probs.part(step).data];
    const ids = [...answer.likely.ids.part(step).data];
    const names = answer.likely.texts[step].map(tokenName);
    const before = answer.target.slice(0, step).map(tokenName).join(" ");
    clear(
      this.stepButtons,
      make("button", {
        type: "button",
        class: "button",
        text: "‹",
        ariaLabel: "the step before",
        disabled: step === 0,
        on: { click: () => this.choose(step - 1) },
      }),
      make("span", { text: `step ${step} of ${answer.ids.length - 1}` }),
      make("button", {
        type: "button",
        class: "button",
        text: "›",
        ariaLabel: "the next step",
        disabled: step === answer.ids.length - 1,
        on: { click: () => this.choose(step + 1) },
      }),
    );
    this.stepWords.textContent = `${before ? `After “${before}”` : "At the beginning"}, ${this.describeStep(names[0])}`;
    clear(
      this.stepBars,
      bars({
        labels: names,
        values: probs,
        chosen: ids.indexOf(answer.ids[step]),
        max: 1,
        label: "probabilities of the next word",
        onPick: this.isFixed ? null : (i) => this.force(ids[i]),
      }),
    );
    refreshExplanation(this.stepPanel);
  }

  // What the model writes at this step, and how sure it is. best: the likeliest word.
  describeStep(best) {
    const { answer, step } = this;
    const word = tokenName(answer.target[step]);
    const bits = answer.entropy.at(step);
    const entropy = `Entropy ${number(bits)} bits`;
    const [isSure, hesitates] = [bits < SURE_BITS, bits < HESITANT_BITS];
    if (step < this.prefix.length && word !== best) {
      const verdict = isSure
        ? `it was sure of “${best}”.`
        : hesitates
          ? "it hesitated."
          : "it was unsure.";
      return `you made it write “${word}” (probability ${number(answer.probs.at(step))}); it would have written “${best}” (${number(answer.likely.probs.at(step, 0))}). ${entropy}: ${verdict}`;
    }
    return `it writes “${word}”. ${entropy}: ${isSure ? "it is sure." : hesitates ? "it hesitates." : "it is unsure."}`;
  }

  // p = exp(logit) ÷ sum over the vocabulary; the sum follows from the largest p.
  explainStep() {
    const { answer, step } = this;
    const rows = answer.likely.texts[step].map((name, i) =>
      make(
        "tr",
        {},
        make("td", { class: "name mono", text: tokenName(name) }),
        [answer.logits.at(step, i), answer.likely.probs.at(step, i)].map((x) =>
          make("td", { text: number(x) }),
        ),
      ),
    );
    const chosen = answer.probs.at(step);
    return make(
      "div",
      { class: "stack" },
      make("p", {
        text: "The decoder gives every word of its vocabulary a logit; softmax over all of them makes probabilities. The likeliest word is written.",
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
            ["word", "logit", "probability"].map((text) => make("th", { text })),
          ),
        ),
        make("tbody", {}, rows),
      ),
      make("p", {
        class: "mono",
        text: `log ${number(chosen)} = ${number(answer.log_probs.at(step))} is what this word adds to log p.`,
      }),
    );
  }
}

// The value if it is a list of ids, else an empty list.
function readIds(value) {
  return Array.isArray(value) && value.every((id) => Number.isInteger(id) && id >= 0) ? value : [];
}
