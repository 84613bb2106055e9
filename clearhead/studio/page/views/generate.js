// The Generate view: write a text token by token, try other branches, and see what the cache saves.
import { ask, latest, stream } from "../api.js";
import { address } from "../address.js";
import { onColourScheme } from "../colours.js";
import { clear, debounce, eachFrame, make } from "../dom.js";
import { button, field, message } from "../panel.js";
import { makeBranchesPanel } from "./branches_panel.js";
import { makeCachePanel } from "./cache_panel.js";
import { GenerateControls, readSettings, readWhole, writeSettings } from "./generate_controls.js";
import { makeLensPanel } from "./lens_panel.js";
import { askNewest } from "./newest.js";
import { makeNextPanel } from "./next_token.js";
import { makeSurpriseRow } from "./surprise_row.js";
import { TextTree } from "./text_tree.js";

export const generateView = {
  name: "generate",
  title: "Generate",
  kinds: ["GPT"],
  about:
    "A language model writes one token at a time. Take the likeliest, draw one, or choose another branch, and see how sure the model is, what each layer would say, and what the cache keeps.",
  missing: "Open a run or weights of a GPT: clearhead studio runs/shakespeare-char-0001.",
  mount(root, studio) {
    const page = new GeneratePage(root, studio);
    page.start(readPath());
    return () => page.leave();
  },
};

// The prompt, the tree of tokens after it, and the answer for the current node.
class GeneratePage {
  constructor(root, studio) {
    this.studio = studio;
    this.state = readSettings(studio.model);
    this.changes = address.getJSON("changes");
    this.answer = null;
    this.tree = new TextTree([], []);
    this.writing = null; // the AbortController of the text that is being written
    this.nWaiting = 0; // how often "draw next" was pressed while an answer was under way
    [this.error, this.interruption] = [make("div"), make("div")];
    this.controls = new GenerateControls(this);
    this.tokens = makeSurpriseRow(this);
    this.next = makeNextPanel(this);
    this.lens = makeLensPanel(this);
    this.branches = makeBranchesPanel(this);
    this.cache = makeCachePanel(this);
    this.body = make(
      "div",
      { class: "generate-columns", hidden: true },
      make("div", { class: "view" }, this.next.node, this.lens.node),
      make("div", { class: "view" }, this.branches.node, this.cache.node),
    );
    root.append(
      make(
        "section",
        { class: "panel stack", attributes: { "aria-label": "text" } },
        this.makePrompt(),
        this.makeChangeNote(),
        this.tokens.node,
        this.controls.node,
        this.interruption,
        this.error,
      ),
      this.body,
    );
    this.read = latest();
    this.follow = askNewest(
      (signal, args) => ask("show_next", args, { signal }).then((answer) => ({ answer, args })),
      ({ answer, args }) => this.draw(answer, args.tokens),
      (error) => this.fail(error),
    );
    this.drawText = eachFrame(() => this.drawTree());
    this.stopColours = onColourScheme(() => this.redraw());
  }

  // The prompt and the settings

  makePrompt() {
    const input = make("textarea", {
      rows: 1,
      value: this.state.text,
      spellcheck: false,
      readOnly: this.studio.exported,
      class: "mono text-input",
      on: { input: debounce(200, () => this.setPrompt(input.value)) },
    });
    const holder = field("prompt", input);
    holder.classList.add("wide");
    const examples = this.studio.exported ? [] : (this.studio.model.examples ?? []);
    const tries = examples.map((text) =>
      button(
        text,
        () => {
          input.value = text;
          this.setPrompt(text);
        },
        { title: "begin with this text" },
      ),
    );
    return make(
      "div",
      { class: "stack" },
      tries.length
        ? make(
            "div",
            { class: "row examples" },
            make("span", { class: "muted", text: "try" }),
            tries,
          )
        : null,
      holder,
    );
  }

  makeChangeNote() {
    if (this.changes === null) return null;
    const forget = () => {
      this.changes = null;
      address.set({ changes: null });
      note.remove();
      this.ask();
    };
    const note = make(
      "p",
      { class: "note warm" },
      `The model is changed (${this.changes.length}): every token is computed with it. `,
      button("undo", forget),
    );
    return note;
  }

  // Questions

  // Read the prompt, then append the tokens of a path: their ids.
  async start(path) {
    try {
      const found = await this.read((signal) =>
        ask("start_text", { model: this.studio.model.id, text: this.state.text }, { signal }),
      );
      if (found === undefined) return;
      clear(this.error);
      this.tree = new TextTree(found.tokens, found.names);
      this.branches.forget();
      this.tree.walk(path);
      this.ask();
    } catch (error) {
      this.fail(error);
    }
  }

  setPrompt(text) {
    this.writing?.abort();
    clear(this.interruption);
    this.nWaiting = 0;
    this.tree = new TextTree([], []); // until the prompt is read, there is nothing to continue
    this.state.text = text;
    address.set({ text, path: null });
    this.start([]);
  }

  set(values) {
    Object.assign(this.state, values);
    writeSettings(this.state);
    if (this.hasPrompt) this.ask();
  }

  // The arguments that all questions about the current text share.
  get question() {
    const { temperature, topK, topP, seed } = this.state;
    return {
      model: this.studio.model.id,
      tokens: this.tree.text,
      n_prompt: this.tree.tokens.length,
      temperature,
      top_k: topK,
      top_p: topP === 1 ? null : topP,
      seed,
      changes: this.changes,
    };
  }

  ask() {
    clear(this.interruption);
    address.set({ path: this.tree.current.path.map(({ id }) => id).join(",") });
    this.follow(this.question);
  }

  // Moving in the tree

  goTo(node) {
    if (this.writing || !this.tree.nodes.includes(node)) return;
    this.nWaiting = 0;
    this.tree.goTo(node);
    this.drawTree();
    this.ask();
  }

  // Append a token; values: its id, name and log probability.
  take(values) {
    if (this.isFull || this.writing || !this.hasPrompt) return;
    this.tree.take(values);
    this.drawTree();
    this.ask();
  }

  // Append the token that the settings and the seed choose, now or when the answer under way has arrived.
  takeNext() {
    if (this.isFull || this.writing) return;
    if (!this.isCurrent) {
      this.nWaiting += 1;
      return;
    }
    const { id, name, log_prob: logProb } = this.answer.chosen;
    this.take({ id, name, logProb });
  }

  // Whether the prompt in the field has been read; the model may have refused it.
  get hasPrompt() {
    return this.tree.tokens.length > 0;
  }

  // Whether the answer is about the current text.
  get isCurrent() {
    return this.answer !== null && this.answerTokens.join() === this.tree.text.join();
  }

  get isFull() {
    return this.answer !== null && this.tree.text.length >= this.answer.max_len;
  }

  async write() {
    if (this.writing || this.answer === null || !this.hasPrompt) return;
    const { tree } = this; // another prompt makes another tree
    const room = this.answer.max_len - tree.text.length;
    const n = Math.min(this.controls.nTokens, room);
    if (n < 1) return;
    this.writing = new AbortController();
    this.showWriting();
    const [start, timer] = [tree.text.length, performance.now()];
    let failure = null;
    try {
      for await (const { token } of stream(
        "write",
        { ...this.question, n_tokens: n },
        { signal: this.writing.signal },
      )) {
        tree.take({ id: token.id, name: token.name, logProb: token.log_prob });
        this.controls.showSpeed(tree.text.length - start, n, performance.now() - timer);
        this.drawText();
      }
    } catch (error) {
      if (error.name !== "AbortError") failure = error;
    }
    this.writing = null;
    this.showWriting();
    if (!this.body.isConnected || tree !== this.tree) return;
    this.ask();
    if (failure !== null)
      message(
        this.interruption, // not this.error, which the next answer clears
        `Writing stopped after ${tree.text.length - start} of ${n} tokens: ${failure.message}`,
      );
  }

  showWriting() {
    this.body.classList.toggle("stale", this.writing !== null);
    this.controls.draw();
  }

  // Drawing

  draw(answer, tokens) {
    clear(this.error);
    if (tokens.join() !== this.tree.text.join()) return; // a newer question is under way
    const isOther = this.answerTokens?.join() !== tokens.join();
    this.answer = answer;
    this.answerTokens = tokens;
    this.tree.describe(answer.names, answer.log_probs);
    this.body.hidden = false;
    this.body.classList.remove("stale");
    this.drawTree();
    this.next.draw(answer);
    this.cache.draw(answer);
    if (isOther || this.lens.answer === null) this.lens.show(tokens);
    if (this.nWaiting > 0) {
      this.nWaiting -= 1;
      this.takeNext();
    }
  }

  drawTree() {
    this.tokens.draw(this.tree, this.answer?.surprise);
    this.branches.draw();
    this.controls.draw();
  }

  redraw() {
    if (this.answer === null) return;
    this.drawTree();
    this.next.draw(this.answer);
    this.cache.draw(this.answer);
    this.lens.redraw();
  }

  fail(error) {
    this.nWaiting = 0;
    message(this.error, error);
    this.body.classList.add("stale");
    this.controls.draw();
  }

  leave() {
    this.writing?.abort();
    this.read.stop();
    this.branches.leave();
    this.follow.stop();
    this.lens.leave();
    this.stopColours();
  }
}

const readPath = () =>
  address
    .get("path", "")
    .split(",")
    .map((text) => readWhole(text, 0))
    .filter((id) => id !== null);
