// The list of runs: which are shown, the progress of each, and buttons to stop, resume or open it.
import { LINES } from "../colours.js";
import { clear, make, svg } from "../dom.js";
import { number } from "../format.js";
import { button } from "../panel.js";

const AGES = [
  ["days", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

// page: the RunsPage. Every row has buttons and a box, so that everything can be reached by keyboard.
export function makeRunTable(page) {
  const body = make("tbody");
  const node = make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { class: "run-table" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ["show", "run", "recipe", "state", "step", "best", "age", ""].map((name) =>
            make("th", { text: name, class: `run-${name || "act"}` }),
          ),
        ),
      ),
      body,
    ),
  );
  const draw = ({ runs, training }) => {
    const focused = document.activeElement?.dataset?.key;
    clear(
      body,
      runs.map((run) => drawRun(page, run, training)),
    );
    if (focused) body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  };
  return { node, draw };
}

function drawRun(page, run, training) {
  const place = page.chosen.indexOf(run.id);
  const box = make("input", {
    type: "checkbox",
    checked: place >= 0,
    ariaLabel: `show ${run.id}`,
    dataset: { key: `show ${run.id}` },
    on: { change: () => page.toggle(run.id, box.checked) },
  });
  return make(
    "tr",
    { class: place >= 0 ? "chosen" : "", dataset: { run: run.id } },
    make("td", { class: "run-show" }, box, place >= 0 ? drawSample(place) : null),
    make("td", { class: "run-run mono", title: run.run, text: run.id }),
    make("td", { class: "run-recipe", text: run.recipe ?? "?" }),
    make(
      "td",
      { class: "run-state" },
      make("span", { class: `state ${run.state}`, text: run.state }),
    ),
    make("td", { class: "run-step" }, drawStep(page, run)),
    make("td", {
      class: "run-best",
      text:
        run.best === null || run.best === undefined ? "–" : `${run.measure} ${number(run.best)}`,
    }),
    make("td", { class: "run-age", text: run.is_lecture ? "built in" : formatAge(run.age) }),
    make("td", { class: "run-act" }, drawActions(page, run, training)),
  );
}

function drawSample(place) {
  const { colour, dashes } = LINES[place % LINES.length];
  return svg(
    "svg",
    { viewBox: "0 0 22 8", width: 22, height: 8, "aria-hidden": "true" },
    svg("line", {
      x1: 0,
      x2: 22,
      y1: 4,
      y2: 4,
      stroke: colour,
      "stroke-width": 2.5,
      "stroke-dasharray": dashes || null,
    }),
  );
}

// A run in training has written metrics of later steps than that of its last checkpoint.
function drawStep(page, run) {
  const step = Math.max(run.step ?? 0, page.data.get(run.id).metrics.at(-1)?.step ?? 0);
  const share = run.steps ? Math.min(1, step / run.steps) : 0;
  return [
    make("span", { class: "step-words", text: `${step}/${run.steps ?? "?"}` }),
    make(
      "span",
      { class: "step-track" },
      make("span", { class: "step-fill", style: { width: `${100 * share}%` } }),
    ),
  ];
}

function formatAge(seconds) {
  if (seconds === undefined) return "?";
  const [unit, size] = AGES.find((each) => seconds >= 2 * each[1]) ?? AGES.at(-1);
  return `${Math.floor(seconds / size)} ${unit}`;
}

function drawActions(page, run, training) {
  const isBusy = training !== null && training.state !== "ended";
  const actions = [];
  if (run.is_ours && run.state === "running")
    actions.push([
      "stop",
      () => page.stop(),
      "let it finish its step, save and end",
      training?.state === "stopping",
    ]);
  if (run.state === "stopped" && !run.is_lecture && run.error === undefined) {
    actions.push([
      "resume",
      () => page.resume(run.id),
      isBusy
        ? "a training is running; wait until it ends"
        : "train it further from its last checkpoint",
      isBusy,
    ]);
  }
  actions.push(["open", () => page.open(run.id), "see this model in the other views", false]);
  return actions.map(([text, action, title, disabled]) => {
    const node = button(text, action, { title, disabled });
    node.dataset.key = `${text} ${run.id}`;
    node.setAttribute("aria-label", `${text} ${run.id}`);
    return node;
  });
}
