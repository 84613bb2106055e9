// Attention as lines between tokens: from each query on the left to the keys it looks at, on the right.
import { clear, listenPress, make, svg } from "../dom.js";
import { number, shortenText, tokenName } from "../format.js";

const LINES_WIDTH = 420;
const LINES_SIDE = 130; // pixels for the names
const LEAST_WEIGHT = 0.02; // fainter lines cannot be seen
const MOST_LINES = 1200;
const LONGEST_NAME = 14;

export class TokenLines {
  // onPick(row): a query was chosen.
  constructor({ onPick }) {
    this.onPick = onPick;
    this.node = make("div", { class: "lines-box" });
  }

  // map (T, S); row: the chosen query.
  show(map, names, row) {
    const isSame =
      this.map?.data.buffer === map.data.buffer &&
      this.map.data.byteOffset === map.data.byteOffset &&
      this.row === row;
    Object.assign(this, { map, names, row });
    if (isSame) return;
    const [T, S] = map.shape;
    this.step = T > 40 ? 16 : 24;
    const height = Math.max(T, S) * this.step + 8;
    this.lines = svg("g", {});
    this.numbers = svg("g", {});
    const tokens = [
      names.slice(0, T).map((name, t) => this.drawToken(name, t, true)),
      names.slice(0, S).map((name, s) => this.drawToken(name, s, false)),
    ];
    clear(
      this.node,
      svg(
        "svg",
        {
          class: "lines",
          viewBox: `0 0 ${LINES_WIDTH} ${height}`,
          role: "group",
          "aria-label": "lines between tokens",
        },
        this.lines,
        this.numbers,
        tokens,
      ),
    );
    this.drawAll();
  }

  drawToken(name, i, isQuery) {
    const shown = shortenText(tokenName(name), LONGEST_NAME);
    const look = () => this.drawOne(isQuery ? i : null, isQuery ? null : i);
    const side = isQuery
      ? { x: LINES_SIDE - 8, "text-anchor": "end" }
      : { x: LINES_WIDTH - LINES_SIDE + 8 };
    return svg(
      "g",
      {
        class: isQuery && i === this.row ? "lines-token chosen" : "lines-token",
        tabindex: isQuery ? 0 : null,
        role: isQuery ? "button" : null,
        "aria-label": isQuery ? `lines of ${shown}, position ${i}` : null,
        on: {
          mouseenter: look,
          mouseleave: () => this.drawAll(),
          focus: look,
          blur: () => this.drawAll(),
          ...(isQuery ? listenPress(() => this.onPick(i)) : {}),
        },
      },
      svg("rect", {
        x: isQuery ? 0 : LINES_WIDTH - LINES_SIDE,
        y: this.heightOf(i) - this.step / 2,
        width: LINES_SIDE,
        height: this.step,
        fill: "transparent",
      }),
      svg("text", { ...side, y: this.heightOf(i) + 4 }, shown),
    );
  }

  heightOf(i) {
    return 4 + (i + 0.5) * this.step;
  }

  // The strongest lines; those of the chosen query in colour.
  drawAll() {
    const [T, S] = this.map.shape;
    const found = [];
    for (let t = 0; t < T; t += 1) {
      for (let s = 0; s < S; s += 1) {
        const weight = this.map.data[t * S + s];
        if (weight >= LEAST_WEIGHT) found.push([t, s, weight]);
      }
    }
    found.sort((a, b) => (a[0] === this.row) - (b[0] === this.row) || a[2] - b[2]);
    clear(this.numbers);
    clear(
      this.lines,
      found.slice(-MOST_LINES).map(([t, s, weight]) => this.drawLine(t, s, weight, t === this.row)),
    );
  }

  // Only the lines of one query, or those that end at one key, with their weights.
  drawOne(query, key) {
    const [T, S] = this.map.shape;
    const ends =
      query === null
        ? Array.from({ length: T }, (_, t) => [t, key])
        : Array.from({ length: S }, (_, s) => [query, s]);
    clear(
      this.lines,
      ends.map(([t, s]) => this.drawLine(t, s, this.map.at(t, s), true)),
    );
    clear(
      this.numbers,
      ends
        .filter(([t, s]) => this.map.at(t, s) >= 0.005)
        .map(([t, s]) =>
          svg(
            "text",
            {
              class: "lines-number",
              x: query === null ? LINES_SIDE + 6 : LINES_WIDTH - LINES_SIDE - 6,
              y: this.heightOf(query === null ? t : s) + 4,
              "text-anchor": query === null ? "start" : "end",
            },
            number(this.map.at(t, s), 2),
          ),
        ),
    );
  }

  drawLine(t, s, weight, isStrong) {
    return svg("line", {
      class: isStrong ? "lines-line strong" : "lines-line",
      x1: LINES_SIDE,
      y1: this.heightOf(t),
      x2: LINES_WIDTH - LINES_SIDE,
      y2: this.heightOf(s),
      "stroke-opacity": weight.toFixed(3),
    });
  }
}
