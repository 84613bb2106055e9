// Bars and lines as SVG.
import { LINES } from "./colours.js";
import { make, svg } from "./dom.js";
import { number } from "./format.js";

// A row for each label: its name, a bar, its number. compare: other values, drawn as a thin bar behind.
// onPick(index) makes the rows buttons; chosen: the index of the highlighted one; max: of the longest bar.
export function bars({
  labels,
  values,
  compare = null,
  format = (x) => number(x),
  onPick = null,
  chosen = null,
  max = null,
  label = "",
}) {
  const size = (x) => (Number.isFinite(x) ? Math.abs(x) : 0);
  const most = max ?? Math.max(1e-12, ...values.map(size), ...(compare ?? []).map(size));
  const rows = labels.map((name, i) => {
    const parts = [
      make("span", { class: "bar-name", text: name, title: name }),
      make(
        "span",
        { class: "bar-track" },
        compare === null ? null : barPart("bar-before", compare[i], most),
        barPart(values[i] < 0 ? "bar-fill bar-negative" : "bar-fill", values[i], most),
      ),
      make("span", {
        class: "bar-number",
        text: compare === null ? format(values[i]) : `${format(compare[i])} → ${format(values[i])}`,
      }),
    ];
    const className = i === chosen ? "bar-row chosen" : "bar-row";
    if (onPick === null) return make("div", { class: className }, parts);
    return make(
      "button",
      {
        class: className,
        type: "button",
        attributes: { "aria-pressed": String(i === chosen) },
        on: { click: () => onPick(i) },
      },
      parts,
    );
  });
  return make("div", { class: "bars", attributes: { role: "group", "aria-label": label } }, rows);
}

function barPart(className, value, most) {
  const share = Number.isFinite(value) ? Math.min(1, Math.abs(value) / most) : 0;
  return make("span", { class: className, style: { width: `${100 * share}%` } });
}

const CHART = { width: 560, height: 260, left: 74, right: 12, top: 12, bottom: 40 };

// series: [{name, points: [[x, y], …]}]; x, y: the names of the axes; log: "" | "x" | "y" | "xy".
export function lineChart({ series, x = "", y = "", log = "", label = "" }) {
  const shown = series.map(({ name, points }) => ({
    name,
    points: points.filter(
      ([a, b]) => isShown(a, log.includes("x")) && isShown(b, log.includes("y")),
    ),
  }));
  const all = shown.flatMap(({ points }) => points);
  const across = makeAxis(
    all.map(([a]) => a),
    CHART.left,
    CHART.width - CHART.right,
    log.includes("x"),
  );
  const up = makeAxis(
    all.map(([, b]) => b),
    CHART.height - CHART.bottom,
    CHART.top,
    log.includes("y"),
  );
  const picture = svg("svg", {
    class: "chart",
    viewBox: `0 0 ${CHART.width} ${CHART.height}`,
    role: "img",
    "aria-label": label || `${y} over ${x}`,
  });
  picture.append(...drawAxes(across, up, x, y));
  shown.forEach(({ name, points }, i) =>
    picture.append(drawLine(points, across, up, LINES[i % LINES.length], name)),
  );
  if (series.length < 2) return picture;
  return make("div", { class: "chart-box" }, drawLegend(series), picture);
}

const isShown = (value, isLog) => Number.isFinite(value) && (!isLog || value > 0);

// toPixel: a function from a value to its pixel; ticks: the values to label.
function makeAxis(values, start, end, isLog) {
  const change = isLog ? Math.log10 : (v) => v;
  const finite = values.map(change);
  let [low, high] = finite.length ? [Math.min(...finite), Math.max(...finite)] : [0, 1];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const margin = 0.03 * (high - low);
  if (!(low === 0 && !isLog)) low -= margin;
  high += margin;
  const toPixel = (v) => start + ((change(v) - low) / (high - low)) * (end - start);
  const ticks = isLog ? logTicks(low, high) : plainTicks(low, high);
  return { toPixel, ticks };
}

function plainTicks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step)
    ticks.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return ticks;
}

const MOST_POWERS = 7; // labels of a logarithmic axis

function logTicks(low, high) {
  const ticks = [];
  const step = Math.max(1, Math.ceil((high - low) / MOST_POWERS));
  for (let power = Math.ceil(Math.floor(low) / step) * step; power <= high; power += step) {
    for (const n of high - low < 2 ? [1, 2, 5] : [1]) ticks.push(n * 10 ** power);
  }
  return ticks.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high);
}

function formatTick(v) {
  const size = Math.abs(v);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return v.toExponential(0).replace("-", "−");
  return String(Number(v.toPrecision(3))).replace("-", "−");
}

function drawAxes(across, up, x, y) {
  const [bottom, right] = [CHART.height - CHART.bottom, CHART.width - CHART.right];
  const lines = up.ticks.map((v) =>
    svg("line", {
      class: "chart-grid",
      x1: CHART.left,
      x2: right,
      y1: up.toPixel(v),
      y2: up.toPixel(v),
    }),
  );
  const numbers = [
    ...up.ticks.map((v) =>
      svg(
        "text",
        { class: "chart-number", x: CHART.left - 6, y: up.toPixel(v) + 4, "text-anchor": "end" },
        formatTick(v),
      ),
    ),
    ...across.ticks.map((v) =>
      svg(
        "text",
        { class: "chart-number", x: across.toPixel(v), y: bottom + 16, "text-anchor": "middle" },
        formatTick(v),
      ),
    ),
  ];
  const names = [
    svg(
      "text",
      {
        class: "chart-name",
        x: (CHART.left + right) / 2,
        y: CHART.height - 6,
        "text-anchor": "middle",
      },
      x,
    ),
    svg(
      "text",
      {
        class: "chart-name",
        x: 12,
        y: (CHART.top + bottom) / 2,
        "text-anchor": "middle",
        transform: `rotate(-90 12 ${(CHART.top + bottom) / 2})`,
      },
      y,
    ),
  ];
  return [
    ...lines,
    svg("line", { class: "chart-axis", x1: CHART.left, x2: right, y1: bottom, y2: bottom }),
    ...numbers,
    ...names,
  ];
}

function drawLine(points, across, up, { colour, dashes }, name) {
  const places = points.map(
    ([a, b]) => `${across.toPixel(a).toFixed(1)},${up.toPixel(b).toFixed(1)}`,
  );
  const last = points.at(-1);
  return svg(
    "g",
    {},
    svg(
      "title",
      {},
      last === undefined ? name : `${name}: ${number(last[1])} at ${formatTick(last[0])}`,
    ),
    svg("polyline", {
      points: places.join(" "),
      fill: "none",
      stroke: colour,
      "stroke-width": 2,
      "stroke-dasharray": dashes || null,
      "stroke-linejoin": "round",
    }),
    points.length < 30
      ? points.map(([a, b]) =>
          svg("circle", { cx: across.toPixel(a), cy: up.toPixel(b), r: 2.5, fill: colour }),
        )
      : null,
  );
}

function drawLegend(series) {
  return make(
    "div",
    { class: "legend" },
    series.map(({ name }, i) => {
      const { colour, dashes } = LINES[i % LINES.length];
      const sample = svg(
        "svg",
        { viewBox: "0 0 26 8", width: 26, height: 8, "aria-hidden": "true" },
        svg("line", {
          x1: 0,
          x2: 26,
          y1: 4,
          y2: 4,
          stroke: colour,
          "stroke-width": 2.5,
          "stroke-dasharray": dashes || null,
        }),
      );
      return make("span", { class: "legend-entry" }, sample, name);
    }),
  );
}
