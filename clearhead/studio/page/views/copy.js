// Copy an activation from a sentence B into the text A: drag a head or a token of B onto A, or choose it and
// press “copy to A”.
import { ask, latest } from "../api.js";
import { clear, debounce, make } from "../dom.js";
import { tokenName } from "../format.js";
import { button, choice, field, message } from "../panel.js";
import { HeadGrid, makeDraggable } from "./head_grid.js";

// It has three nodes: .sentence below the text, .heads below the heads of A, .tools among the other changes.
export function makeCopy(page) {
  return new Copy(page);
}

class Copy {
  constructor(page) {
    Object.assign(this, {
      page,
      other: null,
      source: null,
      block: null,
      target: null,
      run: latest(),
    });
    this.input = make("textarea", {
      rows: 1,
      value: page.state.other,
      spellcheck: false,
      class: "mono text-input",
      on: { input: debounce(150, () => this.write(this.input.value)) },
    });
    this.chips = make("div", {
      class: "chips",
      attributes: { role: "group", "aria-label": "tokens of B" },
    });
    this.grid = new HeadGrid({
      label: "all heads of B",
      onOpen: (layer, head) => this.choose({ head: [layer, head] }),
      drag: (layer, head) => JSON.stringify({ head: [layer, head] }),
    });
    this.error = make("div");
    this.sentence = this.makeSentence();
    this.heads = make(
      "div",
      { class: "stack", hidden: true },
      make("h3", { text: "The same heads, reading B" }),
      make("div", { class: "scroll" }, this.grid.node),
    );
    this.choices = make("div", { class: "row" });
    this.tools = make(
      "div",
      { class: "stack" },
      make("h3", { text: "Copy from another sentence" }),
      this.choices,
    );
    if (page.state.other) this.read();
  }

  // A button that opens the field of B.
  makeSentence() {
    const holder = field("sentence B", this.input);
    holder.classList.add("wide");
    const examples = (this.page.studio.model?.examples ?? []).slice(0, 4).map((text) =>
      button(text, () => {
        this.input.value = text;
        this.write(text);
      }),
    );
    const close = button("remove B", () => {
      this.input.value = "";
      show(false);
      this.write("");
    });
    const inside = make(
      "div",
      { class: "stack" },
      make(
        "div",
        { class: "row examples" },
        make("span", { class: "muted", text: "try as B" }),
        examples,
        close,
      ),
      holder,
      this.chips,
      this.error,
    );
    const open = button("+ a second sentence B, to copy from", () => {
      show(true);
      this.input.focus();
    });
    const show = (isOpen) => {
      inside.hidden = !isOpen;
      open.hidden = isOpen;
    };
    show(this.page.state.other !== "");
    return make("div", { class: "stack", hidden: this.page.studio.exported }, open, inside);
  }

  write(other) {
    this.page.set({ other });
    this.read();
  }

  async read() {
    const { other } = this.page.state;
    if (other === "" || this.page.studio.exported) {
      this.other = this.source = null;
      this.heads.hidden = true;
      clear(this.error);
      clear(this.chips);
      this.draw();
      return;
    }
    try {
      const answer = await this.run((signal) =>
        ask("attend", { model: this.page.studio.model.id, text: other }, { signal }),
      );
      if (answer === undefined) return;
      clear(this.error);
      this.show(answer);
    } catch (error) {
      message(this.error, error);
    }
  }

  show(answer) {
    this.other = answer;
    this.heads.hidden = false;
    this.source = null;
    clear(
      this.chips,
      answer.names.map((name, position) => this.makeChip(name, position)),
    );
    this.draw();
  }

  makeChip(name, position) {
    const node = make("button", {
      type: "button",
      class: "chip",
      text: tokenName(name),
      ariaLabel: `token ${position} of B: ${tokenName(name)}`,
      on: { click: () => this.choose({ position }) },
    });
    makeDraggable(node, () => JSON.stringify({ position }));
    return node;
  }

  // Choose what will be copied. Choosing it again removes the choice.
  choose(source) {
    this.source = JSON.stringify(source) === JSON.stringify(this.source) ? null : source;
    this.target = source.position ?? null;
    this.draw();
  }

  draw() {
    if (this.page.answer === null) return;
    clear(this.choices, this.makeChoices());
    if (this.other === null) return;
    const [layer, head] = this.source?.head ?? [null, null];
    this.grid.show(this.other.layers, { layer, head });
    if (layer === null) this.grid.buttons[0][0].tabIndex = 0;
    [...this.chips.children].forEach((node, i) =>
      node.setAttribute("aria-pressed", String(this.source?.position === i)),
    );
  }

  makeChoices() {
    const { answer } = this.page;
    if (this.other === null)
      return make("p", {
        class: "note",
        text: "The model reads A, but one part is computed as if it read B. If this changes the answer, that part carries the information. Add a sentence B below the text.",
      });
    const copy = button("copy to A", () => this.copy(this.source, this.target), {
      kind: "primary",
      disabled: this.source === null,
    });
    if (this.source === null)
      return [
        copy,
        make("p", {
          class: "note",
          text: "Drag a head of B onto the heads of A, or a token of B onto a token of A. Or choose one of them and press this button.",
        }),
      ];
    const positions = answer.names.map((name, i) => [i, `${i} ${tokenName(name)}`]);
    const isEqual = answer.names.length === this.other.names.length;
    if (this.source.head) {
      if (!isEqual && this.target === null)
        this.target = Math.min(answer.names.length, this.other.names.length) - 1;
      const shared = positions.slice(0, this.other.names.length);
      const options = isEqual ? [["", "all tokens"], ...shared] : shared;
      return [
        copy,
        choice("for", options, this.target ?? "", (value) => {
          this.target = value === "" ? null : Number(value);
        }),
        isEqual
          ? null
          : make("span", {
              class: "muted",
              text: `A has ${answer.names.length} tokens and B ${this.other.names.length}, so one is copied at a time.`,
            }),
      ];
    }
    this.target = Math.min(this.target ?? this.source.position, answer.names.length - 1);
    this.block ??= this.page.shown.layer;
    const blocks = answer.blocks.map((_, i) => [i, `after layer ${i}`]);
    return [
      copy,
      choice("onto token", positions, this.target, (value) => {
        this.target = Number(value);
      }),
      choice("its state", blocks, this.block, (value) => {
        this.block = Number(value);
      }),
    ];
  }

  // A head or token of B was dropped on A: on the token at `position`, or on the heads (null).
  drop(text, position) {
    let source = null;
    try {
      source = JSON.parse(text);
    } catch {
      return; // dragged from elsewhere
    }
    if (this.other === null || (source.head === undefined && source.position === undefined)) return;
    if (source.position !== undefined && position === null) return;
    this.source = source;
    this.target =
      source.head && this.other.names.length === this.page.answer.names.length ? null : position;
    this.draw();
    this.copy(source, this.target);
  }

  copy(source, target) {
    const { layers, blocks } = this.page.answer;
    const from = { from_text: this.other.text };
    const own = source.head
      ? {
          kind: "patch",
          layer: layers[source.head[0]].name,
          head: source.head[1],
          ...(target === null ? {} : { position: target }),
          ...from,
        }
      : {
          kind: "patch",
          layer: blocks[this.block ?? this.page.shown.layer],
          position: target,
          from_position: source.position,
          ...from,
        };
    const isOther = (change) =>
      change.kind !== "patch" ||
      change.layer !== own.layer ||
      change.head !== own.head ||
      change.position !== own.position;
    this.page.set({ changes: [...this.page.state.changes.filter(isOther), own] }, true);
  }

  leave() {
    this.run.stop();
  }
}
