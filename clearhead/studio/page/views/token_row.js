// The tokens of the text as chips: choose one to see its answer, or to swap it for another.
import { ask, latest } from "../api.js";
import { clear, debounce, make } from "../dom.js";
import { tokenName, whole } from "../format.js";
import { button, field, message } from "../panel.js";
import { acceptDrop } from "./head_grid.js";

export function makeTokenRow(page, copy) {
  const chips = make("div", {
    class: "chips",
    attributes: { role: "group", "aria-label": "tokens" },
  });
  const note = make("p", { class: "note", hidden: true });
  const swap = new TokenSwap(page);
  const row = {
    node: make("div", { class: "stack" }, chips, note, swap.node),
    draw(answer, shown) {
      if (chips.answer !== answer)
        clear(
          chips,
          answer.names.map((name, i) => makeChip(page, row, answer, name, i)),
        );
      chips.answer = answer;
      [...chips.children].forEach((node, i) => {
        node.setAttribute("aria-pressed", String(i === swap.place));
        node.classList.toggle("asked", i === shown.position && answer.kind === "GPT");
      });
      note.hidden = !answer.note;
      note.textContent = answer.note ? `Note: ${answer.note}.` : "";
      swap.draw(answer);
    },
    drop: (text, i) => copy.drop(text, i),
    choose(i) {
      swap.open(swap.place === i ? null : i);
      page.set({ position: i, row: i, column: null });
    },
  };
  return row;
}

function makeChip(page, row, answer, name, i) {
  const isSwapped = answer.tokens[i] !== answer.typed[i];
  const node = make("button", {
    type: "button",
    class: isSwapped ? "chip swapped" : "chip",
    text: tokenName(name),
    title: `token ${i}, id ${answer.tokens[i]}`,
    ariaLabel: `token ${i}: ${tokenName(name)}`,
    on: { click: () => row.choose(i) },
  });
  acceptDrop(node, (text) => row.drop(text, i));
  return node;
}

// Choose another token from the vocabulary.
class TokenSwap {
  constructor(page) {
    this.page = page;
    this.place = null;
    this.run = latest();
    this.input = make("input", { type: "text", on: { input: debounce(150, () => this.find()) } });
    this.found = make("div", { class: "chips found" });
    this.words = make("p", { class: "note" });
    this.undo = button("undo the swap", () => this.put(this.page.answer.typed[this.place]));
    this.node = make(
      "div",
      { class: "swap stack", hidden: true },
      make(
        "div",
        { class: "row" },
        this.words,
        field("find", this.input),
        this.undo,
        button("close", () => {
          this.open(null);
          page.draw();
        }),
      ),
      this.found,
    );
  }

  open(place) {
    this.place = this.page.studio.exported ? null : place;
    this.node.hidden = this.place === null;
    if (this.place !== null) this.find();
  }

  draw(answer) {
    if (this.place === null) return;
    if (this.place >= answer.names.length) this.open(null);
    else {
      this.words.textContent = `Swap “${tokenName(answer.names[this.place])}” at position ${this.place} for`;
      this.undo.hidden = answer.tokens[this.place] === answer.typed[this.place];
    }
  }

  async find() {
    try {
      const found = await this.run((signal) =>
        ask(
          "find_tokens",
          { model: this.page.studio.model.id, contains: this.input.value },
          { signal },
        ),
      );
      if (found === undefined) return;
      const rest = found.n_found - found.ids.length;
      this.input.parentElement.hidden = found.vocab_size < 30;
      clear(
        this.found,
        found.ids.map((id, i) =>
          make("button", {
            type: "button",
            class: "chip small",
            text: tokenName(found.texts[i]),
            title: `id ${id}`,
            on: { click: () => this.put(id) },
          }),
        ),
        rest > 0 ? make("span", { class: "muted", text: `and ${whole(rest)} more` }) : null,
      );
    } catch (error) {
      message(this.found, error);
    }
  }

  put(id) {
    const tokens = [...this.page.answer.tokens];
    tokens[this.place] = id;
    const isTyped = tokens.every((each, i) => each === this.page.answer.typed[i]);
    this.page.set({ tokens: isTyped ? null : tokens }, true);
  }
}
