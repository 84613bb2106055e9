// The text as tokens, each coloured by how surprising it was: −log₂ of its probability.
import { cssColour, inkOn, signedColour } from "../colours.js";
import { clear, make } from "../dom.js";
import { number, tokenName } from "../format.js";

const MOST_BITS = 8;

export function makeSurpriseRow(page) {
  const chips = make("div", {
    class: "chips surprise-row",
    attributes: { role: "group", "aria-label": "tokens" },
  });
  const legend = make(
    "div",
    { class: "row surprise-legend" },
    make("span", { class: "note", text: "surprise, −log₂ p:" }),
    [0, 2, 4, 6, 8].map((bits) =>
      paint(
        make("span", { class: "chip small", text: `${bits}${bits === MOST_BITS ? "+" : ""} bits` }),
        bits,
      ),
    ),
    page.studio.exported
      ? null
      : make("span", { class: "note", text: "Click a token after the prompt to go back to it." }),
  );
  return {
    node: make("div", { class: "stack" }, chips, legend),
    // surprises: in bits, for the tokens of the prompt; each node of the tree has its own log probability.
    draw(tree, surprises) {
      const focused = [...chips.children].indexOf(document.activeElement);
      const path = tree.current.path;
      clear(
        chips,
        tree.names.map((name, i) => makePromptChip(name, i, surprises?.at(i))),
        path.map((node, i) =>
          makeTakenChip(page, node, tree.tokens.length + i, node === tree.current),
        ),
      );
      if (focused >= 0)
        chips.children[Math.min(focused, chips.children.length - 1)].focus({ preventScroll: true });
    },
  };
}

function paint(node, bits) {
  if (bits === undefined || Number.isNaN(bits)) return node;
  const colour = signedColour(-Math.min(1, bits / MOST_BITS) * 0.8);
  Object.assign(node.style, { background: cssColour(colour), color: inkOn(colour) });
  return node;
}

const describeSurprise = (name, i, bits) =>
  `token ${i}, ${tokenName(name)}${bits === undefined || Number.isNaN(bits) ? "" : `: ${number(bits)} bits`}`;

function makePromptChip(name, i, bits) {
  return paint(
    make("span", {
      class: "chip prompt-chip",
      text: tokenName(name),
      title: describeSurprise(name, i, bits),
    }),
    bits,
  );
}

function makeTakenChip(page, node, i, isCurrent) {
  const bits = node.logProb === null ? undefined : -node.logProb / Math.LN2;
  return paint(
    make("button", {
      type: "button",
      class: "chip taken-chip",
      text: tokenName(node.name),
      title: describeSurprise(node.name, i, bits),
      attributes: { "aria-current": isCurrent ? "true" : null },
      on: { click: () => page.goTo(node) },
    }),
    bits,
  );
}
