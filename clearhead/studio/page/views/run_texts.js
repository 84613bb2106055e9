// What the model of a run wrote at each evaluation, and the settings in which two runs differ.
import { send } from "../api.js";
import { clear, make } from "../dom.js";
import { message, panel, slider, tabs } from "../panel.js";

export function makeSamplesPanel(page) {
  const body = make("div", { class: "stack" });
  const node = panel(
    "Samples",
    {
      python: () => writeSamples(page, own),
      saves: false,
      note: "What the model wrote each time it was evaluated: move the slider to see it learn.",
    },
    body,
  );
  let [own, first, place, isLast] = [null, null, 0, true];

  const draw = () => {
    if (!page.chosen.includes(own) || first !== page.chosen[0]) own = page.chosen[0] ?? null;
    first = page.chosen[0];
    const { samples } = page.data.get(own);
    const chooser =
      page.chosen.length > 1
        ? tabs("run", page.chosen, own, (id) => {
            [own, isLast] = [id, true];
            draw();
          })
        : null;
    if (!samples.length) {
      clear(
        body,
        chooser,
        make("p", {
          class: "note",
          text: own === null ? "Choose a run above." : "There is no sample yet.",
        }),
      );
      return;
    }
    if (isLast || place >= samples.length) place = samples.length - 1;
    const text = make("pre", { class: "mono sample", text: samples[place].text });
    const heading = (i) => samples[i]?.heading ?? "";
    const move = slider(
      "after",
      { min: 0, max: samples.length - 1, value: place, format: heading },
      (i) => {
        [place, isLast] = [i, i === samples.length - 1];
        text.textContent = samples[i].text;
      },
    );
    const hasFocus =
      body.contains(document.activeElement) && document.activeElement.type === "range";
    clear(body, chooser, move, text);
    if (hasFocus) move.querySelector("input").focus(); // a new sample must not take the focus away
  };

  // Draw only if something has changed: a slider must not be replaced while it is moved.
  let last = "";
  const drawChanged = () => {
    const now = JSON.stringify([
      page.chosen,
      page.chosen.map((id) => page.data.get(id).samples.length),
    ]);
    if (now !== last) draw();
    last = now;
  };
  return { node, draw: drawChanged };
}

function writeSamples(page, own) {
  const path = page.list.runs.find(({ id }) => id === own)?.run;
  if (path === undefined) throw new Error("Choose a run first.");
  return `from clearhead.runs import RunFolder\nsamples = RunFolder(${JSON.stringify(path)}).read_samples()`;
}

export function makeDifferencesPanel(page) {
  const body = make("div", { class: "scroll" });
  const node = panel(
    "What differs",
    {
      python: () => writeDifferences(page),
      saves: false,
      note: "The settings in which the first two chosen runs differ; all others are the same.",
    },
    body,
  );
  let shown = "";

  const draw = async () => {
    const pair = page.chosen.slice(0, 2);
    if (pair.join() === shown) return;
    shown = pair.join();
    if (pair.length < 2) {
      clear(body, make("p", { class: "note", text: "Choose two runs above." }));
      return;
    }
    try {
      const { differences } = await send(
        "GET",
        `/api/differences?runs=${pair.map(encodeURIComponent).join(",")}`,
      );
      if (pair.join() === shown) clear(body, drawDifferences(pair, differences));
    } catch (error) {
      message(body, error);
    }
  };
  return { node, draw };
}

function drawDifferences(pair, differences) {
  if (!differences.length)
    return make("p", { class: "note", text: `${pair[0]} and ${pair[1]} have the same settings.` });
  const cell = (value) =>
    make("td", { class: "mono", text: value === null ? "–" : JSON.stringify(value) });
  return make(
    "table",
    { class: "numbers differences" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ["setting", ...pair].map((name) => make("th", { text: name })),
      ),
    ),
    make(
      "tbody",
      {},
      differences.map(({ name, first, second }) =>
        make("tr", {}, make("td", { class: "name mono", text: name }), cell(first), cell(second)),
      ),
    ),
  );
}

function writeDifferences(page) {
  if (page.chosen.length < 2) throw new Error("Choose two runs first.");
  const paths = page.chosen
    .slice(0, 2)
    .map((id) => page.list.runs.find((run) => run.id === id)?.run ?? "");
  return [
    "from clearhead.runs import RunFolder",
    "from clearhead.runs.differences import list_differences",
    `configs = [RunFolder(path).config for path in ${JSON.stringify(paths)}]`,
    'differences = list(list_differences(*configs, ignore=("asked", "examples")))',
  ].join("\n");
}
