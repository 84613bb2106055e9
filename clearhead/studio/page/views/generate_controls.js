// The buttons and settings of the Generate view: back, draw next, write; temperature, top-k, top-p, seed.
import { address } from "../address.js";
import { make } from "../dom.js";
import { number, tokenName } from "../format.js";
import { button, field, slider } from "../panel.js";

const FIRST_PROMPT = "The"; // for a model without examples
const N_WRITTEN = 40;

export class GenerateControls {
  constructor(page) {
    this.page = page;
    this.back = button("← back", () => page.goTo(page.tree.current.parent), {
      title: "take the last token back",
    });
    this.next = button("draw next", () => page.takeNext(), {
      kind: "primary",
      title:
        "take the token that is drawn with these settings and this seed; it need not be the likeliest",
    });
    this.write = button("write", () => page.write(), { title: "take this many tokens" });
    this.stop = button("stop", () => page.writing?.abort(), { kind: "primary" });
    this.count = make("input", {
      type: "number",
      value: N_WRITTEN,
      class: "count-input",
      ariaLabel: "how many tokens to write",
      attributes: { min: 1, max: 1024 },
    });
    this.speed = make("span", { class: "muted", attributes: { role: "status" } });
    this.node = page.studio.exported
      ? make("div")
      : make(
          "div",
          { class: "stack" },
          make(
            "div",
            { class: "row" },
            this.back,
            this.next,
            make("span", { class: "row tight" }, this.write, this.count, "tokens", this.stop),
            this.speed,
          ),
          make("div", { class: "row" }, this.makeSettings()),
        );
  }

  makeSettings() {
    const { page } = this;
    const { temperature, topK, topP, seed } = page.state;
    const numberInput = (value, more, read) => {
      const input = make("input", {
        type: "number",
        value,
        class: "count-input",
        ...more,
        on: { input: () => page.set(read(input.value)) },
      });
      return input;
    };
    const two = (x) => number(x, 2);
    return [
      slider(
        "temperature",
        { min: 0, max: 2, step: 0.05, value: temperature, format: two },
        (next) => page.set({ temperature: next }),
      ),
      field(
        "top-k",
        numberInput(topK ?? "", { placeholder: "all", attributes: { min: 1 } }, (text) => ({
          topK: readWhole(text, 1),
        })),
      ),
      slider("top-p", { min: 0.05, max: 1, step: 0.05, value: topP, format: two }, (next) =>
        page.set({ topP: next }),
      ),
      field(
        "seed",
        numberInput(seed, { attributes: { min: 0 } }, (text) => ({
          seed: readWhole(text, 0) ?? 0,
        })),
      ),
    ];
  }

  get nTokens() {
    return readWhole(this.count.value, 1) ?? 1;
  }

  draw() {
    const { page } = this;
    const isWriting = page.writing !== null;
    this.back.disabled = isWriting || page.tree.current === page.tree.root;
    this.next.disabled = this.write.disabled = isWriting || page.isFull || !page.hasPrompt;
    this.next.textContent =
      page.isCurrent && !page.isFull
        ? `draw next: ${tokenName(page.answer.chosen.name)}`
        : "draw next";
    const wasHidden = this.stop.hidden;
    this.stop.hidden = !isWriting;
    if (isWriting && wasHidden) this.stop.focus();
  }

  showSpeed(n, all, milliseconds) {
    this.speed.textContent = `${n} of ${all} tokens, ${Math.round((1000 * n) / milliseconds)} a second`;
  }
}

// The whole number in a text; null if there is none, or if it is less than `least`.
export function readWhole(text, least) {
  const value = Number(text);
  return text !== "" && Number.isSafeInteger(value) && value >= least ? value : null;
}

// The settings in the address. With the defaults, the model's own probabilities are used.
export function readSettings(model) {
  return {
    text: address.get("text", model.examples?.[0] ?? FIRST_PROMPT),
    temperature: address.getWithin("temperature", 1, 0, 2),
    topK: readWhole(address.get("top_k", ""), 1),
    topP: address.getWithin("top_p", 1, 0.05, 1),
    seed: readWhole(address.get("seed", ""), 0) ?? 0,
  };
}

export function writeSettings({ temperature, topK, topP, seed }) {
  address.set({
    temperature: temperature === 1 ? null : temperature,
    top_k: topK,
    top_p: topP === 1 ? null : topP,
    seed: seed || null,
  });
}
