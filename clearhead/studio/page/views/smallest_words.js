// Input and output of the smallest transformer: letters to click, and the output of each token.
import { clear, make } from "../dom.js";
import { number } from "../format.js";
import { button } from "../panel.js";
import { redraw } from "./redraw.js";

const ALPHABET = ["A", "B", "C"];

// onText(text): another input was chosen. Without it (null) the input cannot be changed.
export class Words {
  constructor(onText) {
    this.onText = onText;
    this.row = make("div", {
      class: "words",
      attributes: { role: "group", "aria-label": "input and output" },
    });
    this.adders = ALPHABET.map((letter) =>
      button(`+ ${letter}`, () => onText(this.text + letter), {
        title: `add ${letter} at the end`,
      }),
    );
    this.remover = button("remove", () => onText(this.text.slice(0, -1)), {
      title: "remove the last letter",
    });
    this.count = make("p", { class: "count", attributes: { role: "status" } });
    this.bar = make("span", { class: "bar-fill" });
    this.mistakes = make("div", { class: "row mistakes" });
    this.node = make(
      "div",
      { class: "words-panel" },
      make(
        "div",
        { class: "stack" },
        make("div", { class: "row", hidden: onText === null }, this.adders, this.remover),
        this.row,
      ),
      make(
        "div",
        { class: "stack" },
        this.count,
        make("span", { class: "bar-track" }, this.bar),
        this.mistakes,
      ),
    );
  }

  show(answer) {
    this.text = answer.text;
    this.adders.forEach((node) => {
      node.disabled = answer.text.length >= answer.max_len;
    });
    this.remover.disabled = answer.text.length <= 1;
    redraw(
      this.row,
      answer.tokens.map((token, t) => this.makeToken(answer, token, t)),
    );
    this.showCount(answer.score, answer.max_len);
  }

  makeToken(answer, token, t) {
    const isRight = answer.is_right.at(t) === 1;
    const output = nameOutput(answer.outputs, [...answer.Out.part(t).data]);
    const wanted = nameOutput(answer.outputs, [...answer.targets.part(t).data]);
    return make(
      "div",
      { class: isRight ? "word" : "word wrong", dataset: { token: String(t) } },
      token === "CLS" || this.onText === null
        ? make("span", {
            class: "chip word-in",
            text: token,
            title: token === "CLS" ? "stands before every sequence" : "",
          })
        : make("button", {
            type: "button",
            class: "chip word-in",
            text: token,
            title: "another letter",
            ariaLabel: `letter ${t}: ${token}; press for the next letter`,
            on: { click: () => this.turn(answer, t) },
          }),
      make("span", { class: "word-arrow", text: "↓", attributes: { "aria-hidden": "true" } }),
      make("span", { class: "word-out", text: output.name }),
      make("span", { class: "word-number mono", text: number(output.value, 2) }),
      make("span", {
        class: isRight ? "word-mark good" : "word-mark",
        text: isRight ? "✓ right" : `✗ ${wanted.name}`,
        title: isRight ? "" : `should be ${wanted.name}`,
      }),
    );
  }

  // The next letter of the alphabet at this token.
  turn(answer, t) {
    const i = t - (answer.tokens.length - answer.text.length);
    const next = ALPHABET[(ALPHABET.indexOf(answer.text[i]) + 1) % ALPHABET.length];
    this.onText(answer.text.slice(0, i) + next + answer.text.slice(i + 1));
  }

  showCount({ n_right: right, n, worst, mistakes }, letters) {
    clear(
      this.count,
      make("b", { text: `${right} of ${n}` }),
      ` sequences of up to ${letters} letters are right. Largest error: ${worst === 0 ? "0" : number(worst)}.`,
    );
    this.bar.style.width = `${(100 * right) / n}%`;
    this.bar.classList.toggle("bar-negative", right < n);
    clear(
      this.mistakes,
      mistakes.length ? make("span", { class: "muted", text: "wrong:" }) : null,
      mistakes.map((text) =>
        make("button", {
          type: "button",
          class: "chip small",
          text,
          disabled: this.onText === null,
          title: "look at this sequence",
          on: { click: () => this.onText(text) },
        }),
      ),
      n - right > mistakes.length
        ? make("span", { class: "muted", text: `and ${n - right - mistakes.length} more` })
        : null,
    );
  }
}

// The answer that a row of numbers means: the letter with the largest number, or a sign.
function nameOutput(names, numbers) {
  if (names.length === 1) return { name: numbers[0] > 0 ? "+1" : "−1", value: numbers[0] };
  const value = Math.max(...numbers);
  return { name: names[numbers.indexOf(value)], value };
}
