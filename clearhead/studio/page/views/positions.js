// Positions: what each scheme tells attention about the order of tokens, as pictures that follow the sliders.
import { ask, hasChoices } from "../api.js";
import { address } from "../address.js";
import { clear, debounce, make } from "../dom.js";
import { button, choice, message, slider, tabs, toggle } from "../panel.js";
import { askNewest } from "./newest.js";
import { makeBiasParts } from "./position_bias.js";
import { makeRotaryParts } from "./position_rotary.js";
import { makeTableParts } from "./position_table.js";

const SCHEME_WORDS = {
  sinusoidal:
    "Sinusoidal: each pair of columns is a wave, a sine and a cosine; each wave is slower than the one before. A row of the table is added to the token at that position.",
  learned:
    "Learned: a table of numbers, drawn at random before the training. A row is added to the token at that position; there is no row beyond the last.",
  rotary:
    "Rotary: nothing is added. The numbers of q and k are turned in pairs, like clock hands, by an angle that grows with the position.",
  toeplitz:
    "Toeplitz: one learned number m for every distance is added to q · k. Its matrix is the same along every diagonal.",
  alibi:
    "ALiBi: every step of distance lowers the score by a fixed slope; each head has its own. Nothing is learned.",
};
const BASES = [2, 10, 100, 1000, 10_000, 100_000, 1_000_000];
// The settings that each scheme has.
const SETTINGS = {
  sinusoidal: ["n", "d", "base"],
  learned: ["n", "d", "seed"],
  rotary: ["n", "d", "base", "seed"],
  toeplitz: ["n", "d", "causal"],
  alibi: ["n", "heads", "causal"],
};

export const positionsView = {
  name: "positions",
  title: "Positions",
  kinds: null,
  about:
    "Attention alone sees a set of tokens, without an order. Five ways to tell it where each token stands.",
  mount(root) {
    const view = new PositionsPage(root);
    view.askLater();
    return () => view.leave();
  },
};

class PositionsPage {
  constructor(root) {
    this.state = readPositions();
    this.isGone = false;
    this.remember = debounce(200, () => {
      if (!this.isGone) writePositions(this.state);
    });
    this.askLater = askNewest(
      (signal) => ask("show_positions", this.question, { signal }),
      (answer) => this.draw(answer),
      (error) => message(this.error, error),
    );
    [this.controls, this.words, this.error] = [
      make("div", { class: "row" }),
      make("p", { class: "note" }),
      make("div"),
    ];
    this.body = make("div", { class: "view" });
    this.controls.hidden = !hasChoices("show_positions");
    root.append(
      make(
        "section",
        { class: "panel stack", attributes: { "aria-label": "scheme" } },
        this.controls.hidden
          ? null
          : tabs(
              "scheme",
              Object.keys(SCHEME_WORDS).map((name) => [
                name,
                name === "alibi" ? "ALiBi" : name === "toeplitz" ? "Toeplitz" : name,
              ]),
              this.state.scheme,
              (scheme) => this.choose(scheme),
            ),
        this.words,
        this.controls,
        this.error,
      ),
      this.body,
    );
    this.choose(this.state.scheme, false);
  }

  choose(scheme, asks = true) {
    if (asks) Object.assign(this.state, { scheme, cell: null });
    this.askLater.stop(); // an answer about the scheme before
    this.words.textContent = SCHEME_WORDS[scheme];
    const makeParts =
      { rotary: makeRotaryParts, toeplitz: makeBiasParts, alibi: makeBiasParts }[scheme] ??
      makeTableParts;
    this.parts?.leave?.();
    this.parts = makeParts(this);
    clear(this.body, this.parts.nodes);
    this.body.hidden = true;
    this.drawControls();
    if (asks) this.set({});
  }

  drawControls() {
    const { scheme, n, d, base, heads, causal } = this.state;
    const uses = (name) => SETTINGS[scheme].includes(name);
    clear(
      this.controls,
      slider("length n", { min: 4, max: 64, value: n }, (value) =>
        this.set({ n: value, weights: resizeWeights(this.state.weights, value) }),
      ),
      uses("d")
        ? slider("width d", { min: 4, max: 64, step: 2, value: d }, (value) =>
            this.set({ d: value }),
          )
        : null,
      uses("base")
        ? slider(
            "base",
            {
              min: 0,
              max: BASES.length - 1,
              value: Math.max(0, BASES.indexOf(base)),
              format: (i) => BASES[i].toLocaleString("en-US"),
            },
            (i) => this.set({ base: BASES[i] }),
          )
        : null,
      uses("heads")
        ? choice("heads", [1, 2, 4, 8, 12, 16], heads, (value) =>
            this.set({ heads: Number(value) }),
          )
        : null,
      uses("seed")
        ? button("draw others", () => this.set({ seed: this.state.seed + 1 }), {
            title: "other random numbers",
          })
        : null,
      uses("causal")
        ? toggle("only earlier tokens (causal)", causal, (value) => this.set({ causal: value }))
        : null,
    );
  }

  // asks: whether something has to be computed.
  set(values, asks = true) {
    Object.assign(this.state, values);
    this.remember();
    if (asks) this.askLater();
    else this.draw(this.answer);
  }

  get question() {
    const { scheme, n, d, base, seed, heads, causal, weights } = this.state;
    const own = {
      n: { n },
      d: { d },
      base: { base },
      seed: { seed },
      heads: { n_heads: heads },
      causal: { causal },
    };
    const used = SETTINGS[scheme].map((name) => own[name]);
    return Object.assign(
      { scheme, ...(scheme === "toeplitz" ? { weights: weights ?? resizeWeights(null, n) } : {}) },
      ...used,
    );
  }

  draw(answer) {
    if (answer === undefined) return;
    this.answer = answer;
    clear(this.error);
    this.body.hidden = false;
    this.parts.draw(answer);
  }

  leave() {
    this.isGone = true;
    this.askLater.stop();
    this.parts?.leave?.();
  }
}

// The weights for distances −(n − 1) … n − 1: the old ones, and 0 for new distances. If weights is null, the
// pattern "the token before".
export function resizeWeights(weights, n) {
  const half = weights === null ? 0 : (weights.length - 1) / 2;
  return Array.from({ length: 2 * n - 1 }, (_, i) => {
    const distance = i - (n - 1);
    if (weights === null) return distance === -1 ? 16 : 0;
    return Math.abs(distance) <= half ? weights[distance + half] : 0;
  });
}

function readPositions() {
  const n = address.getClamped("n", 24, 4, 64);
  const weights = address.getJSON("weights");
  const cell = (address.get("cell") ?? "").split(".");
  const dims = address.getJSON("dims", [0, 1, 4, 5]);
  return {
    scheme: address.getOneOf("scheme", Object.keys(SCHEME_WORDS), "sinusoidal"),
    n,
    d: 2 * Math.round(address.getClamped("d", 16, 4, 64) / 2),
    base: BASES.includes(Number(address.get("base"))) ? Number(address.get("base")) : 10_000,
    seed: address.getClamped("seed", 0, 0, 1e6),
    heads: address.getClamped("heads", 4, 1, 16),
    head: address.getClamped("head", 0, 0, 15),
    causal: address.get("causal") === "true",
    weights: Array.isArray(weights) && weights.length === 2 * n - 1 ? weights : null,
    dims: Array.isArray(dims) ? dims : [0, 1],
    cell:
      cell.length === 3
        ? { name: cell[0], row: Number(cell[1]) || 0, column: Number(cell[2]) || 0 }
        : null,
  };
}

function writePositions({ cell, weights, scheme, ...others }) {
  address.set({
    scheme,
    ...others,
    weights: scheme === "toeplitz" ? weights : null,
    cell: cell === null ? null : `${cell.name}.${cell.row}.${cell.column}`,
  });
}
