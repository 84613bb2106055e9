// The key-value cache: what the model keeps of each token, and how much work this saves.
import { lineChart } from "../charts.js";
import { clear, make, svg } from "../dom.js";
import { number, whole } from "../format.js";
import { panel, refreshExplanation } from "../panel.js";

const SLOTS = { width: 560, least: 280, name: 66, height: 16, gap: 6, right: 92 };

export function makeCachePanel(page) {
  const picture = make("div", { class: "scroll" });
  const figures = make("div", { class: "figures" });
  const chart = make("div");
  const node = panel(
    "The cache grows",
    {
      python: () => page.answer.cache.python,
      explain: () => explainCache(page.answer, page.tree.tokens.length),
      note: "Each layer keeps the keys and values of every token it has read. So each token is computed only once; without the cache, every new token would compute all tokens again. Grey: the prompt; blue: new tokens.",
      name: "cache",
    },
    picture,
    figures,
    chart,
  );
  return {
    node,
    draw(answer) {
      const nPrompt = page.tree.tokens.length;
      clear(picture, drawSlots(answer, nPrompt, picture.clientWidth));
      clear(figures, listFigures(answer.cache, answer.names.length));
      clear(
        chart,
        answer.names.length > nPrompt
          ? drawGrowth(answer, nPrompt)
          : page.studio.exported
            ? null
            : make("p", { class: "note", text: "Take some tokens to see the difference grow." }),
      );
      refreshExplanation(node);
    },
  };
}

// A row for each layer, a slot for each token that fits. room: the pixels there are for the picture; on a narrow
// screen the slots shrink, not the text.
function drawSlots(answer, nPrompt, room) {
  const { cache, max_len: length, names } = answer;
  const width = Math.min(SLOTS.width, Math.max(SLOTS.least, room));
  const step = (width - SLOTS.name - SLOTS.right) / length;
  const height = cache.bytes.length * (SLOTS.height + SLOTS.gap);
  const rows = cache.bytes.map((bytes, layer) => {
    const y = layer * (SLOTS.height + SLOTS.gap);
    const part = (first, last, kind) =>
      last > first
        ? svg("rect", {
            class: `slots ${kind}`,
            x: SLOTS.name + first * step,
            y,
            width: (last - first) * step,
            height: SLOTS.height,
          })
        : null;
    const lines =
      step < 3
        ? []
        : Array.from({ length: names.length }, (_, i) =>
            svg("line", {
              class: "slot-line",
              x1: SLOTS.name + (i + 1) * step,
              x2: SLOTS.name + (i + 1) * step,
              y1: y,
              y2: y + SLOTS.height,
            }),
          );
    return svg(
      "g",
      { class: "slot-row" },
      svg("text", { class: "slot-name", x: 0, y: y + 12 }, `layer ${layer}`),
      part(0, length, "empty"),
      part(0, nPrompt, "prompt"),
      part(nPrompt, names.length, "new"),
      lines,
      svg(
        "text",
        { class: "slot-bytes", x: width, y: y + 12, "text-anchor": "end" },
        `${whole(bytes)} bytes`,
      ),
    );
  });
  return svg(
    "svg",
    {
      class: "slots-picture",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `${names.length} of ${length} tokens in the cache of each layer`,
    },
    rows,
  );
}

function listFigures(cache, n) {
  const total = cache.bytes.reduce((sum, bytes) => sum + bytes, 0);
  const figure = (value, words) =>
    make(
      "div",
      { class: "figure" },
      make("b", { text: value }),
      make("span", { class: "muted", text: words }),
    );
  return [
    figure(whole(total), `bytes kept for ${whole(n)} tokens`),
    figure(whole(cache.with), "numbers computed with the cache"),
    figure(whole(cache.without), "without it"),
    figure(`${number(cache.without / cache.with, 1)} ×`, "as many"),
  ];
}

// How many keys and values were computed after each new token.
function drawGrowth({ cache, names }, nPrompt) {
  const [kept, again] = [[], []];
  let sum = 0;
  for (let n = nPrompt; n <= names.length; n += 1) {
    sum += n;
    kept.push([n, (n * cache.per_token) / 1000]);
    again.push([n, (sum * cache.per_token) / 1000]);
  }
  return lineChart({
    series: [
      { name: "with the cache", points: kept },
      { name: "without", points: again },
    ],
    x: "tokens",
    y: "thousand numbers",
    label: "numbers computed with and without the cache",
  });
}

function explainCache({ cache, names }, nPrompt) {
  const n = names.length;
  const sum =
    n === nPrompt
      ? `${n}`
      : n === nPrompt + 1
        ? `${nPrompt} + ${n}`
        : `${nPrompt} + ${nPrompt + 1} + … + ${n}`;
  const perLayer = `2 · ${cache.heads} heads · ${cache.d_head}`;
  return make("div", {
    class: "mono equation",
    text: [
      `one token in one layer: a key and a value for each head, ${perLayer} = ${whole(cache.per_token / cache.bytes.length)} numbers`,
      `one layer: ${n} tokens · ${perLayer} · ${cache.bytes_per_number} bytes = ${whole(cache.bytes[0])} bytes`,
      `with the cache:  ${whole(cache.per_token)} · ${n} = ${whole(cache.with)} numbers computed`,
      `without it:      ${whole(cache.per_token)} · (${sum}) = ${whole(cache.without)}, since each new token reads the whole text again`,
    ].join("\n"),
  });
}
