// The page: a bar with the views and the models, and below it the view in the address.
import { ask, savedAnswers, send, showStatus } from "./api.js";
import { address } from "./address.js";
import { clear, make } from "./dom.js";
import { button, field, message } from "./panel.js";
import { savePage } from "./save_page.js";
import { textView } from "./views/text.js";
import { generateView } from "./views/generate.js";
import { pictureView } from "./views/picture.js";
import { translationView } from "./views/translation.js";
import { smallestView } from "./views/smallest.js";
import { positionsView } from "./views/positions.js";
import { kernelsView } from "./views/kernels.js";
import { runsView } from "./views/runs.js";
import { checkView } from "./views/check.js";

const VIEWS = [
  textView,
  generateView,
  pictureView,
  translationView,
  smallestView,
  positionsView,
  kernelsView,
  runsView,
  checkView,
];

const studio = { models: [], model: null, exported: savedAnswers !== null, goTo };
const leftStates = new Map(); // by the name of a view, or of a view and a model: its state when the user left it
let leaveView = null;

async function start() {
  const root = document.getElementById("view");
  try {
    studio.models = (await ask("list_models")).models;
    for (const name of ["model", "run"]) await openRun(address.get(name)); // the view Smallest has its model under "run"
  } catch (error) {
    message(root, error);
    return;
  }
  address.onChange(showView);
  showView();
}

// Open the run that the address names, unless it is open: it may be older than those that open at the start.
async function openRun(id) {
  if (id === null || studio.exported || studio.models.some((each) => each.id === id)) return;
  const { runs } = await send("GET", "/api/runs");
  if (runs.some((run) => run.id === id))
    studio.models.push((await ask("add_run", { run: id })).model);
}

function showView() {
  const view = VIEWS.find(({ name }) => name === address.get("view")) ?? chooseFirst();
  const fitting = listFitting(view);
  const wanted = address.get("model");
  studio.model = fitting.find(({ id }) => id === wanted) ?? fitting[0] ?? null;
  address.set({ view: view.name, model: studio.model?.id ?? null });
  document.title = `${view.title} – clearhead studio`;
  drawTop(view, fitting);
  mount(view);
  if (wanted !== null && studio.model !== null && studio.model.id !== wanted)
    explainOtherModel(wanted);
}

// Say why another model is shown than the one that the address names.
function explainOtherModel(wanted) {
  const model = studio.models.find(({ id }) => id === wanted);
  const reason = model === undefined ? "is not open in this studio" : "does not fit this view";
  const words = model?.kind === null ? `cannot be opened: ${model.about}` : reason;
  document
    .getElementById("view")
    .prepend(
      make("p", {
        class: "note",
        text: `The model ${wanted.slice(0, 80)} ${words}. This is ${studio.model.id}.`,
        attributes: { role: "status" },
      }),
    );
}

function chooseFirst() {
  return VIEWS.find((view) => view.kinds !== null && listFitting(view).length) ?? VIEWS[0];
}

const listFitting = ({ kinds }) =>
  kinds === null ? [] : studio.models.filter(({ kind }) => kinds.includes(kind));

function mount(view) {
  const root = document.getElementById("view");
  leaveView?.();
  leaveView = null;
  showStatus("");
  clear(
    root,
    make("h1", { class: "visually-hidden", text: view.title }),
    view.about ? make("p", { class: "about", text: view.about }) : null,
    view.kinds === null ? null : describeTask(),
  );
  if (view.kinds !== null && studio.model === null) {
    root.append(
      make("p", {
        class: "note",
        text: `None of the open models fits this view. ${view.missing ?? ""}`,
      }),
    );
    return;
  }
  const content = make("div", { class: "view", dataset: { view: view.name } });
  root.append(content);
  leaveView = view.mount(content, studio) ?? null;
}

// What the model was trained for, if that is known.
function describeTask() {
  const { id, task } = studio.model ?? {};
  return task ? make("p", { class: "about" }, make("b", { text: id }), `: ${task}`) : null;
}

function drawTop(view, fitting) {
  const shown = studio.exported ? [view] : VIEWS;
  const links = shown.map((each) =>
    make("button", {
      type: "button",
      class: "view-link",
      text: each.title,
      attributes: each === view ? { "aria-current": "page" } : {},
      on: { click: () => goTo(chooseState(each)) },
    }),
  );
  clear(
    document.getElementById("top"),
    make(
      "span",
      { class: "brand" },
      make("img", { src: "icon.svg", alt: "", width: 22, height: 22 }),
      "clearhead",
    ),
    make("nav", { ariaLabel: "views" }, links),
    fitting.length ? chooseModel(fitting) : null,
    studio.exported || view.isLive
      ? null
      : button("save page", savePage, {
          title: "save this view as one HTML file that needs no server",
        }),
  );
  links.at(-1).parentElement.scrollLeft = links[shown.indexOf(view)].offsetLeft - 24; // on a narrow screen
}

function chooseModel(fitting) {
  const select = make(
    "select",
    { on: { change: () => goTo(chooseModelState(select.value)) } },
    fitting.map(({ id, about }) =>
      make("option", { value: id, text: id, title: about, selected: id === studio.model.id }),
    ),
  );
  const holder = field("model", select);
  holder.classList.add("model-choice");
  holder.title = studio.model.about;
  return holder;
}

// The state in which a view opens: the one in which it was left, or a new one, with the same model if it fits.
// The button of the view that is open resets it.
function chooseState(view) {
  const isOpen = view.name === address.get("view");
  if (!isOpen && leftStates.has(view.name)) return leftStates.get(view.name);
  return {
    view: view.name,
    model: listFitting(view).find(({ id }) => id === studio.model?.id)?.id,
  };
}

function chooseModelState(model) {
  const view = address.get("view");
  return leftStates.get(`${view} ${model}`) ?? { view, model };
}

// Go to another view or model, with these values in its address; the old state is kept for the way back.
function goTo(values) {
  const state = Object.fromEntries(address.list());
  leftStates.set(state.view, state).set(`${state.view} ${state.model}`, state);
  address.set({ view: values.view, model: values.model ?? null }, { push: true });
  address.keep("view", "model");
  address.set(values);
  showView();
}

start();
