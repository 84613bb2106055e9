// The metrics of the chosen runs: a chart for each metric, all runs in it, and their last numbers.
import { lineChart } from "../charts.js";
import { clear, make } from "../dom.js";
import { number } from "../format.js";
import { message, panel, refreshExplanation } from "../panel.js";

const LOG_FACTOR = 20; // a loss that falls by more than this factor gets a logarithmic scale
const MOST_POINTS = 600; // of a line; more could not be told apart

export function makeCurvesPanel(page) {
  const charts = make("div", { class: "run-charts" });
  const numbers = make("div", { class: "scroll" });
  const node = panel(
    "Curves",
    {
      python: () => writeCurves(page),
      explain: () => explainLoss(page),
      name: "curves",
      note: "One chart for each metric; choose up to six runs above to compare them. Runs in training grow as you watch.",
    },
    charts,
    numbers,
  );
  const draw = () => {
    const shown = page.chosen.map((id) => [id, page.data.get(id)]);
    const names = listMetrics(shown.map(([, { metrics }]) => metrics));
    const faults = shown.filter(([, { error }]) => error);
    if (faults.length) message(charts, `${faults[0][0]}: ${faults[0][1].error}`);
    else if (!names.length)
      clear(
        charts,
        make("p", {
          class: "note",
          text: page.chosen.length ? "Nothing was measured yet." : "Choose a run above.",
        }),
      );
    else
      clear(
        charts,
        names.map((name) => drawMetric(name, shown)),
      );
    clear(numbers, names.length ? drawLastNumbers(names, shown) : null);
    refreshExplanation(node);
  };
  return { node, draw };
}

// The names of all metrics: loss and val_loss first, the learning rate last.
function listMetrics(runs) {
  const names = new Set(runs.flatMap((lines) => lines.flatMap((line) => Object.keys(line))));
  names.delete("step");
  const place = (name) => ({ loss: 0, val_loss: 1, lr: 3 })[name] ?? 2;
  return [...names].sort((a, b) => place(a) - place(b));
}

const readSeries = (metrics, name) =>
  metrics.filter((line) => name in line).map((line) => [line.step, line[name]]);

function drawMetric(name, shown) {
  const series = shown.map(([id, { metrics }]) => ({
    name: id,
    points: thinPoints(readSeries(metrics, name)),
  }));
  const values = series.flatMap(({ points }) => points.map(([, value]) => value));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const isLog = name.includes("loss") && low > 0 && LOG_FACTOR * low < high;
  return make(
    "div",
    { class: "run-chart", dataset: { metric: name } },
    lineChart({
      series,
      x: "step",
      y: isLog ? `${name}, log scale` : name,
      log: isLog ? "y" : "",
      label: `${name} over steps`,
    }),
  );
}

// At most `most` points: the lowest and the highest of each stretch, so that no peak is lost.
export function thinPoints(points, most = MOST_POINTS) {
  if (points.length <= most) return points;
  const size = Math.ceil(points.length / (most / 2));
  const kept = [];
  for (let i = 0; i < points.length; i += size) {
    const part = points.slice(i, i + size);
    const low = part.reduce((a, b) => (b[1] < a[1] ? b : a));
    const high = part.reduce((a, b) => (b[1] > a[1] ? b : a));
    kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
  }
  kept[0] = points[0];
  kept[kept.length - 1] = points.at(-1);
  return kept;
}

function drawLastNumbers(names, shown) {
  const rows = shown.map(([id, { metrics }]) =>
    make(
      "tr",
      { dataset: { run: id } },
      make("td", { class: "name mono", text: id }),
      make("td", { text: String(metrics.at(-1)?.step ?? "–") }),
      names.map((name) =>
        make("td", {
          dataset: { metric: name },
          text: number(readSeries(metrics, name).at(-1)?.[1]),
        }),
      ),
    ),
  );
  return make(
    "table",
    { class: "numbers run-last" },
    make("caption", { class: "visually-hidden", text: "the last measured numbers" }),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ["last numbers of", "step", ...names].map((name) => make("th", { text: name })),
      ),
    ),
    make("tbody", {}, rows),
  );
}

const SQUARED = ["SequenceData", "PublishedSequenceData"]; // data whose loss is the mean squared error

// What the last loss of the first chosen run means.
function explainLoss(page) {
  const [id] = page.chosen;
  const { metrics, config } = page.data.get(id);
  const name = ["val_loss", "loss"].find((each) => readSeries(metrics, each).length);
  if (name === undefined) return make("p", { text: "Choose a run that has measured a loss." });
  const [step, loss] = readSeries(metrics, name).at(-1);
  const isSquared = SQUARED.includes(config?.data?.kind);
  const [words, lines] = isSquared
    ? [
        "The loss is the mean of (output − target)² over all outputs.",
        [
          `√${name} = √${number(loss)} = ${number(Math.sqrt(loss))}: the root mean square error of an output`,
        ],
      ]
    : [
        "The loss is the mean of −ln p over all examples; p is the probability that the model gives to the right answer (the right token, class or word).",
        [
          `exp(−${name}) = exp(−${number(loss)}) = ${number(Math.exp(-loss))}: the geometric mean of these p`,
          `exp(${name}) = exp(${number(loss)}) = ${number(Math.exp(loss))}: the perplexity; as uncertain as a choice among that many equally likely answers`,
        ],
      ];
  return make(
    "div",
    { class: "stack" },
    make("p", { text: `${id}, step ${step}. ${words}` }),
    lines.map((text) => make("p", { class: "mono", text })),
  );
}

const listPaths = (page) =>
  page.chosen.map((id) => page.list.runs.find((run) => run.id === id)?.run).filter(Boolean);

function writeCurves(page) {
  if (!page.chosen.length) throw new Error("Choose a run first.");
  return [
    "from clearhead.runs import RunFolder",
    `paths = ${JSON.stringify(listPaths(page))}`,
    "metrics = {path: RunFolder(path).read_metrics() for path in paths}",
  ].join("\n");
}
