// The Text view: type a text, see every head attend, open one, click a cell, change something.
import { ask, latest } from "../api.js";
import { address } from "../address.js";
import { argmax } from "../array.js";
import { onColourScheme } from "../colours.js";
import { clear, debounce, make } from "../dom.js";
import { button, field, message } from "../panel.js";
import { makeAnswerPanel } from "./answer.js";
import { makeCopy } from "./copy.js";
import { makeEffectsPanel } from "./effects.js";
import { makeHeadPanels } from "./head.js";
import { makeChangePanel, nameChanges } from "./intervene.js";
import { makeTokenRow } from "./token_row.js";

const READ_AFTER = 50; // milliseconds without a key before the text is read

export const textView = {
  name: "text",
  title: "Text",
  kinds: ["GPT", "SequenceClassifier", "TextEncoder"],
  about:
    "Type a text and see where every head looks. Open a head, click a cell to see its numbers, then change something and watch the answer.",
  missing:
    "Open a run or weights of a model that reads a text: clearhead studio runs/substring-0001.",
  mount(root, studio) {
    const page = new TextPage(root, studio);
    page.ask();
    return () => page.leave();
  },
};

// The view: its state is in the address, and each part draws itself from the last answer and the state.
class TextPage {
  constructor(root, studio) {
    this.studio = studio;
    this.answer = null;
    this.state = readState(studio.model);
    this.input = this.makeInput();
    this.error = make("div");
    const copy = makeCopy(this);
    const [tokens, heads, answer, change, effects] = [
      makeTokenRow,
      makeHeadPanels,
      makeAnswerPanel,
      makeChangePanel,
      makeEffectsPanel,
    ].map((makePart) => makePart(this, copy));
    this.tokens = tokens.node;
    this.parts = [tokens, heads, answer, change, copy, effects];
    this.body = make(
      "div",
      { class: "view text-body", hidden: true },
      make("div", { class: "text-first" }, heads.grid, answer.node, change.node),
      heads.map,
      heads.cell,
      effects.node,
    );
    root.append(
      make(
        "section",
        { class: "panel stack", attributes: { "aria-label": "your text" } },
        this.makeExamples(),
        this.input,
        tokens.node,
        this.error,
        copy.sentence,
      ),
      this.body,
    );
    this.run = latest();
    this.stopColours = onColourScheme(() => this.draw());
  }

  makeInput() {
    const input = make("textarea", {
      rows: 2,
      value: this.state.text,
      spellcheck: false,
      readOnly: this.studio.exported,
      class: "mono text-input",
    });
    const read = debounce(READ_AFTER, () => this.setText(input.value));
    input.addEventListener("input", read);
    const holder = field("text", input);
    holder.classList.add("wide");
    holder.write = (text) => {
      input.value = text;
    };
    return holder;
  }

  makeExamples() {
    const examples = this.studio.model?.examples ?? [];
    if (this.studio.exported || !examples.length) return null;
    return make(
      "div",
      { class: "row examples" },
      make("span", { class: "muted", text: "try" }),
      examples.map((text) => button(text, () => this.setText(text), { title: "read this text" })),
    );
  }

  // Set another text. Changes of whole heads stay; those of cells and positions belong to the old text.
  setText(text) {
    if (text === this.state.text && this.state.tokens === null) return;
    this.input.write(text);
    const changes = this.state.changes.filter(
      ({ kind, position }) => (kind === "silence" && position === undefined) || kind === "sharpen",
    );
    this.set({ text, tokens: null, row: null, column: null, position: null, changes }, true);
  }

  // Change the state; asks: whether the model has to compute again.
  set(values, asks = false) {
    Object.assign(this.state, values);
    writeState(this.state);
    if (asks) this.ask();
    else this.draw();
  }

  // The arguments of a question about this text with all changes.
  get question() {
    const { text, tokens, changes } = this.state;
    return { model: this.studio.model.id, text, tokens, changes: changes.length ? changes : null };
  }

  // One question at a time: while one is under way, later ones wait and only the last is asked.
  async ask() {
    this.isStale = true;
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.isStale) {
      this.isStale = false;
      const { temperature } = this.state;
      try {
        const answer = await this.run((signal) =>
          ask(
            "attend",
            { ...this.question, temperature: temperature === 1 ? undefined : temperature },
            { signal },
          ),
        );
        if (answer === undefined) break;
        clear(this.error);
        this.draw(answer);
      } catch (error) {
        message(this.error, error);
        this.markStale(true);
      }
    }
    this.isAsking = false;
  }

  draw(answer = this.answer) {
    if (answer === null) return;
    this.answer = answer;
    this.body.hidden = false;
    this.markStale(false);
    this.shown = this.limit(answer);
    for (const part of this.parts) part.draw(answer, this.shown);
  }

  // Dim the tokens and the panels if they belong to an earlier text.
  markStale(isStale) {
    for (const node of [this.tokens, this.body]) node.classList.toggle("stale", isStale);
  }

  // The state with indices that this answer has: the open head, the chosen cell, the position of the answer.
  limit(answer) {
    const { state } = this;
    const n = answer.names.length;
    const inside = (i, count, fallback) => (i === null || i >= count ? fallback : i);
    const layer = inside(state.layer, answer.layers.length, 0);
    const head = inside(state.head, answer.layers[layer].heads, 0);
    const position = answer.kind === "SequenceClassifier" ? 0 : inside(state.position, n, n - 1);
    const row = inside(state.row, n, position);
    const column = inside(
      state.column,
      n,
      argmax(answer.layers[layer].weights.part(head, row).data),
    );
    return {
      ...state,
      layer,
      head,
      row,
      column,
      position,
      changed: nameChanges(answer, state.changes),
    };
  }

  leave() {
    this.run.stop();
    this.stopColours();
    for (const part of this.parts) part.leave?.();
  }
}

function readState(model) {
  const changes = address.getJSON("changes", []);
  const tokens = address.getJSON("tokens");
  const isOpen = ["layer", "head"].some((name) => address.get(name) !== null);
  const start = (isOpen ? null : model?.start) ?? { layer: 0, head: 0 };
  return {
    text: address.get("text", model?.examples?.[0] ?? ""),
    tokens: Array.isArray(tokens) ? tokens : null,
    changes: Array.isArray(changes) ? changes : [],
    layer: address.getWhole("layer") ?? start.layer,
    head: address.getWhole("head") ?? start.head,
    row: address.getWhole("row"),
    column: address.getWhole("column"),
    position: address.getWhole("position"),
    temperature: address.getWithin("temperature", 1, 0.01, 100),
    other: address.get("other", ""),
    measure: address.get("measure", "heads"),
    unit: address.get("unit") === "logits" ? "logits" : "probs",
    paint: "off",
  };
}

function writeState(state) {
  const { paint, changes, temperature, ...others } = state;
  address.set({
    ...others,
    changes: changes.length ? changes : null,
    temperature: temperature === 1 ? null : temperature,
    measure: state.measure === "heads" ? null : state.measure,
    unit: state.unit === "probs" ? null : state.unit,
  });
}
