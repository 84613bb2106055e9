// Where each word of a translation looked: lines from the source above to the target below.
import { clear, listenPress, make, svg } from "../dom.js";
import { number, tokenName } from "../format.js";

const LINE_GAP = 130; // pixels between the two rows of tokens
const TOKEN_HEIGHT = 26;
const LEAST_SHARE = 0.03; // fainter lines cannot be seen
const LETTER_WIDTH = 8.6;

export class AlignmentLines {
  // onPick(step): a target word was chosen.
  constructor({ onPick }) {
    this.onPick = onPick;
    this.node = make("div", { class: "scroll" });
  }

  // map (T, S): the weights; source, target: the tokens; step: the chosen target word.
  show(map, source, target, step) {
    Object.assign(this, { map, source, target, step });
    const [above, below] = [placeTokens(source), placeTokens(target)];
    const width = Math.max(above.width, below.width);
    this.above = above.places.map((place) => ({
      ...place,
      x: place.x + (width - above.width) / 2,
    }));
    this.below = below.places.map((place) => ({
      ...place,
      x: place.x + (width - below.width) / 2,
    }));
    this.lines = svg("g", {});
    const height = 2 * TOKEN_HEIGHT + LINE_GAP;
    clear(
      this.node,
      svg(
        "svg",
        {
          class: "alignment",
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "group",
          "aria-label": "lines from the source to the translation",
        },
        this.lines,
        source.map((name, s) => this.drawToken(name, this.above[s], 0, s, false)),
        target.map((name, t) =>
          this.drawToken(name, this.below[t], TOKEN_HEIGHT + LINE_GAP, t, true),
        ),
      ),
    );
    this.draw(step, null);
  }

  drawToken(name, place, y, i, isTarget) {
    const look = () => this.draw(isTarget ? i : null, isTarget ? null : i);
    const rest = () => this.draw(this.step, null);
    return svg(
      "g",
      {
        class: isTarget && i === this.step ? "alignment-token chosen" : "alignment-token",
        ...(isTarget
          ? { tabindex: 0, role: "button", "aria-label": `step ${i}: ${tokenName(name)}` }
          : {}),
        on: {
          mouseenter: look,
          mouseleave: rest,
          focus: look,
          blur: rest,
          ...(isTarget ? listenPress(() => this.onPick(i)) : {}),
        },
      },
      svg("rect", { x: place.x, y: y + 1, width: place.width, height: TOKEN_HEIGHT - 2, rx: 5 }),
      svg(
        "text",
        { x: place.x + place.width / 2, y: y + 18, "text-anchor": "middle" },
        tokenName(name),
      ),
    );
  }

  // All lines are faint; those of one target word or one source token are strong. Titles show the weights.
  draw(step, place) {
    const [T, S] = this.map.shape;
    const found = [];
    for (let t = 0; t < T; t += 1) {
      for (let s = 0; s < S; s += 1) {
        const weight = this.map.at(t, s);
        if (weight < LEAST_SHARE) continue;
        const isStrong = t === step || s === place;
        found.push([isStrong, this.drawLine(t, s, weight, isStrong)]);
      }
    }
    found.sort(([a], [b]) => a - b); // the strong ones on top
    clear(
      this.lines,
      found.map(([, line]) => line),
    );
  }

  drawLine(t, s, weight, isStrong) {
    const [from, to] = [centreOf(this.above[s]), centreOf(this.below[t])];
    const [top, bottom] = [TOKEN_HEIGHT, TOKEN_HEIGHT + LINE_GAP];
    const middle = (top + bottom) / 2;
    return svg(
      "path",
      {
        class: isStrong ? "alignment-line strong" : "alignment-line",
        d: `M ${from} ${top} C ${from} ${middle}, ${to} ${middle}, ${to} ${bottom}`,
        fill: "none",
        "stroke-width": 0.6 + 4 * weight,
        "stroke-opacity": isStrong ? 0.25 + 0.75 * weight : 0.12 + 0.25 * weight,
      },
      svg(
        "title",
        {},
        `${tokenName(this.target[t])} ← ${tokenName(this.source[s])}: ${number(weight)}`,
      ),
    );
  }
}

const centreOf = ({ x, width }) => x + width / 2;

function placeTokens(names) {
  let x = 1;
  const places = names.map((name) => {
    const place = { x, width: Math.max(18, tokenName(name).length * LETTER_WIDTH + 8) };
    x += place.width + 3;
    return place;
  });
  return { places, width: x };
}
