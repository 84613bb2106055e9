// Why this answer? The effect of silencing each head, of copying activations from B, the answer after each
// layer, and the logit as a sum of parts.
import { ask, latest } from "../api.js";
import { argmax } from "../array.js";
import { bars } from "../charts.js";
import { clear, make } from "../dom.js";
import { number, percent, tokenName } from "../format.js";
import { Matrix } from "../matrix.js";
import { button, message, panel, refreshExplanation, tabs } from "../panel.js";
import { largest } from "../thumb.js";
import { explainCopy, explainLayers, explainSilence } from "./effect_equation.js";

const MEASURES = {
  heads: { name: "silence each head", question: "measure_heads", draw: drawHeads },
  copies: {
    name: "copy each head from B",
    question: "sweep_patches",
    needsOther: true,
    draw: drawSweep,
  },
  positions: {
    name: "copy each token from B",
    question: "sweep_patches",
    needsOther: true,
    draw: drawSweep,
  },
  layers: { name: "what each layer would say", question: "read_layers", draw: drawLayers },
  parts: { name: "the logit as a sum", question: "attribute", draw: drawParts },
};
const MOST_WORK = 4e9; // multiplications of a measurement that starts by itself
const MEASURE_AFTER = 150; // milliseconds without another letter: a measurement would delay the answer to it
const MOST_PARTS = 16;
const MOST_LAYER_TOKENS = 12;

export function makeEffectsPanel(page) {
  return new EffectsPanel(page);
}

class EffectsPanel {
  constructor(page) {
    Object.assign(this, { page, run: latest(), found: null, key: "", isMissing: false, timer: 0 });
    const names = Object.entries(MEASURES).map(([key, { name }]) => [key, name]);
    this.tabs = tabs("measure", names, page.state.measure, (measure) => page.set({ measure }));
    this.result = make("div", { class: "stack" });
    this.node = panel(
      "Why this answer?",
      {
        python: () => this.found?.python ?? "",
        explain: () => this.explain(),
        name: "effects",
        note: "What does the answer depend on? Each tab measures it in another way.",
      },
      make("div", { class: "scroll" }, this.tabs),
      this.result,
    );
    this.tabs.hidden = page.studio.exported;
  }

  draw(answer, shown) {
    this.node.hidden = answer.answer === null || this.isMissing;
    if (this.node.hidden) return;
    clearTimeout(this.timer);
    this.result.classList.remove("stale");
    const { question, key } = this.plan(answer, shown);
    if (question === null) return;
    if (key === this.key) this.show();
    else if (estimateWork(answer, shown.measure) > MOST_WORK) {
      clear(
        this.result,
        button("measure", () => this.measure(question, key)),
        make("p", { class: "note", text: "The model is large: this takes a few seconds." }),
      );
    } else {
      const isSameTab = this.found !== null && this.measured === shown.measure; // so the text or a change is new
      this.result.classList.toggle("stale", isSameTab);
      this.timer = setTimeout(() => this.measure(question, key), isSameTab ? MEASURE_AFTER : 0);
    }
  }

  // The question of the open tab, and a key that changes with it. Without a sentence B that it needs: null.
  plan(answer, shown) {
    const { needsOther } = MEASURES[shown.measure] ?? MEASURES.heads;
    const { changes, ...plain } = this.page.question;
    if (needsOther && !shown.other) {
      this.key = "";
      clear(
        this.result,
        make("p", {
          class: "note",
          text: "Add a sentence B below the text first: as long as the text, with another answer.",
        }),
      );
      return { question: null };
    }
    const question = needsOther
      ? { ...plain, other: shown.other, over: shown.measure === "copies" ? "head" : "position" }
      : {
          ...plain,
          changes,
          ...(shown.measure === "layers" || answer.kind !== "GPT"
            ? {}
            : { position: shown.position }),
        };
    return { question, key: JSON.stringify([shown.measure, shown.position, question]) };
  }

  async measure(question, key) {
    this.key = key;
    const { measure } = this.page.shown;
    this.measured = measure;
    try {
      const found = await this.run((signal) =>
        ask(MEASURES[measure].question, question, { signal }),
      );
      if (found === undefined || key !== this.key) return;
      this.found = found;
      this.drawn = MEASURES[measure].draw(this.page, found);
      clear(this.result, this.drawn.nodes);
      this.result.classList.remove("stale");
      this.show();
    } catch (error) {
      this.result.classList.remove("stale");
      this.found = null;
      this.drawn = null;
      message(this.result, error);
      this.isMissing = this.node.hidden = this.page.studio.exported; // a saved page may not hold this answer
    }
  }

  // Mark the open head, and update an open explanation.
  show() {
    this.drawn?.mark?.(this.page.shown);
    refreshExplanation(this.node);
  }

  explain() {
    return (
      this.drawn?.explain?.(this.page.shown) ?? make("p", { text: "Nothing is measured yet." })
    );
  }

  leave() {
    clearTimeout(this.timer);
    this.run.stop();
  }
}

// An estimate of the multiplications: one forward pass per head, of which about half is shared.
function estimateWork(answer, measure) {
  const { layers } = answer;
  const d_model = layers[0].heads * layers[0].v.shape[2];
  const T = answer.names.length;
  const pass = 12 * layers.length * d_model ** 2 * T;
  const n = {
    heads: layers[0].heads * layers.length,
    copies: layers[0].heads * layers.length,
    positions: T * layers.length,
  }[measure];
  return n === undefined ? pass : (pass * n) / 2;
}

// A matrix of effects; a cell opens its head or position.
function makeEffectMap(page, found, values, { label, columns, onPick }) {
  const matrix = new Matrix({ label, colour: "signed", onPick });
  const keepBlank = (name) => name.replaceAll(" ", "\u00a0"); // a matrix shows plain blanks, as those of tokens, as ·
  matrix.show(values, { rows: found.titles.map(keepBlank), columns, scale: largest(values) });
  return matrix;
}

function drawHeads(page, found) {
  const columns = Array.from({ length: found.effect.shape[1] }, (_, h) => `head\u00a0${h}`);
  const matrix = makeEffectMap(page, found, found.effect, {
    label: "effect of silencing each head",
    columns,
    onPick: (layer, head) => page.set({ layer, head, column: null }),
  });
  return {
    nodes: [
      make("p", {
        text: `Measured: ${found.metric}, now ${number(found.unchanged)}. Each cell shows by how much it changes if that head is silenced.`,
      }),
      matrix.node,
      make("p", {
        class: "note",
        text: `Orange: without this head the answer is weaker, so the head supports it. Blue: without it the answer is stronger. ${describeStrongest(found)} Click a cell to open the head.`,
      }),
    ],
    mark: ({ layer, head }) => matrix.select(layer, head),
    explain: ({ layer, head }) => explainSilence(found, layer, head),
  };
}

function describeStrongest(found) {
  const [L, H] = found.effect.shape;
  let best = 0;
  found.effect.data.forEach((value, i) => {
    if (value < found.effect.data[best]) best = i;
  });
  const [layer, head] = [Math.floor(best / H), best % H];
  return L && found.effect.data[best] < 0
    ? `Most support comes from ${found.titles[layer]}, head ${head} (${number(found.effect.data[best], 2)}).`
    : "";
}

function drawSweep(page, found) {
  const isHead = found.over === "head";
  const { names } = page.answer;
  const values = found.recovered ?? found.effect;
  const columns = isHead
    ? Array.from({ length: values.shape[1] }, (_, h) => `head\u00a0${h}`)
    : names;
  const titles = isHead ? found.titles : found.layers.map((_, i) => `after layer ${i}`);
  const matrix = makeEffectMap(page, { titles }, values, {
    label: isHead ? "effect of copying each head" : "effect of copying each token",
    columns,
    onPick: (layer, i) =>
      page.set(isHead ? { layer, head: i, column: null } : { layer, row: i, column: null }),
  });
  const own = page.state.changes.length ? " Your changes are left out here." : "";
  const goal = `Measured: ${found.metric}.${own} It is ${number(found.unchanged)} for A and ${number(found.goal)} for B.`;
  const words =
    found.recovered === null
      ? "A and B have the same value, so there is nothing to restore: choose a B with another answer."
      : `1 (blue) = copying ${isHead ? "this head" : "the state of this token"} from B alone gives the answer of B; 0 = no effect.`;
  return {
    nodes: [make("p", { text: goal }), matrix.node, make("p", { class: "note", text: words })],
    mark: ({ layer, head, row }) => matrix.select(layer, isHead ? head : row),
    explain: ({ layer, head, row }) =>
      isHead
        ? explainCopy(found, layer, head, `${found.titles[layer]}, head ${head}`)
        : explainCopy(found, layer, row, `token ${row} after layer ${layer}`),
  };
}

// What the model would answer if it ended after each layer.
function drawLayers(page, found) {
  const { answer, titles } = found;
  if (answer.kind === "class") {
    const rows = titles.map((title, l) => {
      const probs = [...answer.probs.part(l).data];
      const best = argmax(probs);
      return make(
        "tr",
        {},
        make("td", { class: "name", text: title }),
        make("td", { class: "name", text: answer.texts[best] }),
        make("td", { text: percent(probs[best]) }),
        make("td", { text: number(answer.logits.at(l, best)) }),
      );
    });
    return {
      nodes: [
        make("p", { text: "If the model ended after a layer, it would say at [CLS]:" }),
        layerTable(["", "answer", "probability", "logit"], rows),
      ],
      explain: ({ position }) => explainLayers(found, position),
    };
  }
  const [, T] = answer.probs.shape;
  const last = Math.min(T, Math.max(page.shown.position + 4, MOST_LAYER_TOKENS)); // near the chosen token
  const first = Math.max(0, last - MOST_LAYER_TOKENS);
  const places = Array.from({ length: last - first }, (_, i) => first + i);
  const rows = titles.map((title, l) =>
    make(
      "tr",
      {},
      make("td", { class: "name", text: title }),
      places.map((t) => layerCell(answer, l, t)),
    ),
  );
  const heads = ["after", ...places.map((t) => `${t} ${tokenName(page.answer.names[t])}`)];
  return {
    nodes: [
      make("p", {
        text: "If the model ended after a layer, this would be its next token; the stronger the colour, the more certain. The last row is its answer.",
      }),
      layerTable(heads, rows),
      places.length < T
        ? make("p", {
            class: "note",
            text: `Tokens ${first} to ${last - 1} of ${T}; choose another token above to see those around it.`,
          })
        : null,
    ],
    explain: ({ position }) => explainLayers(found, position),
  };
}

function layerCell(answer, l, t) {
  const best = answer.texts[l][t][0];
  const p = answer.probs.at(l, t, 0);
  const list = answer.texts[l][t]
    .slice(0, 5)
    .map((text, i) => `${tokenName(text)} ${percent(answer.probs.at(l, t, i))}`)
    .join("\n");
  return make(
    "td",
    {
      class: "lens-cell",
      title: list,
      style: {
        backgroundColor: `color-mix(in srgb, var(--accent) ${Math.round(55 * p)}%, transparent)`,
      },
    },
    make("span", { class: "mono", text: tokenName(best) }),
    make("small", { text: percent(p, 0) }),
  );
}

const layerTable = (heads, rows) =>
  make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { class: "numbers lens" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          heads.map((text) => make("th", { text })),
        ),
      ),
      make("tbody", {}, rows),
    ),
  );

// The contributions of all parts to the logit, the largest first.
function drawParts(page, found) {
  const order = [...found.values.data.keys()].sort(
    (a, b) => Math.abs(found.values.data[b]) - Math.abs(found.values.data[a]),
  );
  const shown = order.slice(0, MOST_PARTS);
  const rest = order.slice(MOST_PARTS).reduce((sum, i) => sum + found.values.data[i], 0);
  const labels = shown.map((i) => found.names[i]);
  const values = shown.map((i) => found.values.data[i]);
  if (order.length > MOST_PARTS) {
    labels.push(`${order.length - MOST_PARTS} others`);
    values.push(rest);
  }
  const isCapped = Math.abs(found.total - found.logit) > 1e-3 * (1 + Math.abs(found.logit));
  return {
    nodes: [
      make("p", {
        text: `The logit of ${page.answer.kind === "GPT" ? `“${tokenName(found.target_name)}”` : found.target_name} is a sum: every head and every layer adds its share.`,
      }),
      make(
        "div",
        { class: "parts" },
        bars({ label: "contributions", labels, values, onPick: (i) => openPart(page, labels[i]) }),
      ),
      make(
        "p",
        { class: "sum-line" },
        make("span", { class: "muted", text: "sum of all parts" }),
        make("b", { class: "mono", text: number(found.total) }),
      ),
      isCapped
        ? make("p", {
            class: "note",
            text: `This model limits its logits (soft cap), which makes it ${number(found.logit)}.`,
          })
        : null,
    ],
    explain: () =>
      make("p", {
        class: "equation mono",
        text: `logit = ${values
          .map((x) => number(x))
          .join(" + ")
          .replaceAll("+ −", "− ")} = ${number(found.total)}`,
      }),
  };
}

function openPart(page, name) {
  const found = /^layer (\d+) head (\d+)$/.exec(name);
  if (found) page.set({ layer: Number(found[1]), head: Number(found[2]), column: null });
}
