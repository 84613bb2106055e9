// The Runs view: curves live and compared, samples, what differs, weights; start, stop and resume.
import { address } from "../address.js";
import { ask, send, showStatus } from "../api.js";
import { LINES } from "../colours.js";
import { clear, eachFrame, make } from "../dom.js";
import { message, panel } from "../panel.js";
import { makeCurvesPanel } from "./run_curves.js";
import { RunData } from "./run_data.js";
import { makeFormPanel } from "./run_form.js";
import { makeRunTable } from "./run_table.js";
import { makeDifferencesPanel, makeSamplesPanel } from "./run_texts.js";
import { makeWeightsPanel } from "./run_weights.js";

const POLL = 1500; // milliseconds between two requests for the list
const FITTING_VIEWS = {
  VisionTransformer: "picture",
  Seq2Seq: "translation",
  TorchTransformer: "smallest",
};

export const runsView = {
  name: "runs",
  title: "Runs",
  kinds: null,
  isLive: true, // a saved page could not show it
  about:
    "Watch models learn. Choose runs to compare their curves, see what they wrote as they learned, or start a training of your own.",
  mount(root, studio) {
    if (studio.exported) {
      root.append(
        make("p", {
          class: "note",
          text: "This page was saved without its server. Start clearhead studio to see runs.",
        }),
      );
      return null;
    }
    const page = new RunsPage(root, studio);
    return () => page.leave();
  },
};

class RunsPage {
  constructor(root, studio) {
    this.studio = studio;
    this.list = { runs: [], training: null };
    this.chosen = address.get("runs", "").split(",").filter(Boolean);
    this.hasChosen = this.chosen.length > 0;
    this.choosesNext = false; // whether to choose the run of the training that was just started
    this.draw = eachFrame(() => this.render());
    this.data = new RunData(
      () => this.draw(),
      () => this.refresh(),
    );
    this.table = makeRunTable(this);
    this.training = make("div", { attributes: { "aria-live": "polite" } });
    this.error = make("div");
    const [curves, samples, differences, weights, form] = [
      makeCurvesPanel,
      makeSamplesPanel,
      makeDifferencesPanel,
      makeWeightsPanel,
      makeFormPanel,
    ].map((makePart) => makePart(this));
    this.parts = [curves, samples, differences, weights, form];
    root.append(
      make(
        "div",
        { class: "runs-first" },
        make(
          "div",
          { class: "runs-left" },
          panel(
            "Runs",
            {
              saves: false,
              note: "The runs given on the command line and those in the folder runs/.",
            },
            this.error,
            this.training,
            this.table.node,
          ),
          curves.node,
        ),
        form.node,
      ),
      make("div", { class: "columns" }, samples.node, differences.node),
      weights.node,
    );
    this.refresh();
    this.timer = setInterval(() => {
      if (!document.hidden) this.refresh();
    }, POLL);
  }

  leave() {
    clearInterval(this.timer);
    this.data.leave();
    this.isLeft = true;
  }

  async refresh() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      this.take(await send("GET", "/api/runs"));
      clear(this.error);
    } catch (error) {
      message(this.error, error);
    }
    this.isAsking = false;
  }

  // Show a new list. At first the newest run is chosen, later each training that is started here.
  take(list) {
    if (this.isLeft) return;
    this.list = list;
    const ids = list.runs.map(({ id }) => id);
    this.dropMissing(ids);
    if (!this.hasChosen && ids.length) this.choose([ids[0]]);
    const started = this.choosesNext ? list.training?.run : null;
    if (started && list.training.state !== "ended") {
      this.choosesNext = false;
      this.choose([started, ...this.chosen.filter((id) => id !== started)]);
    }
    this.data.update(
      this.chosen.map((id) => list.runs.find((run) => run.id === id)).filter(Boolean),
    );
    this.draw();
  }

  // Drop the chosen runs that do not exist: a folder was deleted, or the address names a run of another studio.
  dropMissing(ids) {
    const missing = this.chosen.filter((id) => !ids.includes(id));
    if (!missing.length) return;
    this.choose(this.chosen.filter((id) => ids.includes(id)));
    this.hasChosen = this.chosen.length > 0;
    this.data.forget(missing);
    showStatus(`There is no run ${missing.map((id) => id.slice(0, 80)).join(", ")} here.`);
  }

  choose(ids) {
    this.hasChosen = true;
    this.chosen = ids.slice(0, LINES.length);
    address.set({ runs: this.chosen.join(",") || null });
  }

  toggle(id, isShown) {
    const others = this.chosen.filter((each) => each !== id);
    if (isShown && others.length >= LINES.length)
      showStatus(`At most ${LINES.length} runs are compared at once.`);
    this.choose(isShown ? [...others, id] : others);
    this.take(this.list);
  }

  render() {
    if (this.isLeft) return;
    this.table.draw(this.list);
    clear(this.training, this.drawTraining());
    for (const part of this.parts) part.draw();
  }

  // What the studio is training now, or why the last training ended.
  drawTraining() {
    const { training } = this.list;
    if (training === null) return null;
    if (training.error)
      return make("p", { class: "error", text: training.error, attributes: { role: "alert" } });
    return make("p", {
      class: "note training-words",
      title: training.command,
      text: this.describeTraining(),
    });
  }

  // The state of the training in a sentence.
  describeTraining() {
    const { runs, training } = this.list;
    const run = runs.find(({ id }) => id === training.run);
    const hasBegun = run?.step > 0 || this.data.get(training.run).metrics.length > 0;
    const words = {
      starting: "The training is starting; its run appears in the list in a moment.",
      training: hasBegun
        ? `${training.run} is being trained.`
        : `${training.run} prepares its data and takes its first steps …`,
      stopping: hasBegun ? "The training finishes its step and saves." : "The training stops.",
      ended:
        run?.step > 0
          ? `The training of ${run.id} has ended; everything is saved.`
          : "The training ended before its first step; there was nothing to save.",
    };
    return words[training.state];
  }

  async start(training) {
    this.choosesNext = true;
    this.take(await send("POST", "/api/trainings", training));
  }

  stop() {
    return this.act("/api/trainings/stop");
  }

  resume(id) {
    this.choosesNext = true;
    return this.act(`/api/runs/${encodeURIComponent(id)}/resume`);
  }

  async act(path) {
    try {
      this.take(await send("POST", path, {}));
      clear(this.error);
    } catch (error) {
      message(this.error, error);
    }
  }

  // Go to the view that shows the model of this run.
  async open(id) {
    try {
      const { model } = await ask("add_run", { run: id });
      if (model.kind === null) throw new Error(model.about);
      const { models } = this.studio;
      const place = models.findIndex((each) => each.id === model.id);
      models.splice(place < 0 ? models.length : place, 1, model);
      const view = FITTING_VIEWS[model.kind] ?? "text";
      location.hash = new URLSearchParams({
        view,
        [view === "smallest" ? "run" : "model"]: model.id,
      });
    } catch (error) {
      message(this.error, error);
    }
  }
}
