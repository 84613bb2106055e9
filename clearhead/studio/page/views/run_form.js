// Start a recipe: a form made from its typed settings. Only what is changed is sent.
import { ask, send } from "../api.js";
import { clear, make } from "../dom.js";
import { button, choice, field, message, panel } from "../panel.js";

const IMPORTANT = [
  "training.steps",
  "training.lr",
  "training.batch_size",
  "training.warmup",
  "training.seed",
]; // shown first
const IS_PATH = /(path|file|folder|directory)s?$/;

export function makeFormPanel(page) {
  const [head, body, foot] = [
    make("div", { class: "stack" }),
    make("div", { class: "stack" }),
    make("div", { class: "stack" }),
  ];
  const node = panel(
    "Start a training",
    {
      python: () => writePython(form),
      saves: false,
      note: "It runs in a process of its own, one at a time, and saves as it goes. Stop it whenever you like.",
    },
    head,
    body,
    foot,
  );
  const form = { recipe: null, described: null, inputs: new Map(), hasStarted: false };

  const begin = async () => {
    try {
      const { recipes } = await send("GET", "/api/recipes");
      const options = recipes.map(({ name, about, minutes }) => [
        name,
        `${name}: ${about} (${minutes})`,
      ]);
      const select = choice(
        "recipe",
        [["", "choose what to train …"], ...options],
        form.recipe ?? "",
        (name) => load(name),
      );
      select.classList.add("recipe-choice");
      clear(head, select);
    } catch (error) {
      message(head, error);
    }
  };

  const load = async (name) => {
    form.recipe = name || null;
    form.described = null;
    clear(body);
    clear(foot);
    if (form.recipe === null) return;
    try {
      const described = await ask("describe_recipe", { name });
      if (form.recipe !== name) return;
      form.described = described;
      drawForm(form, body, foot, page);
    } catch (error) {
      message(body, error);
    }
  };
  begin();
  return { node, draw: () => foot.refresh?.() };
}

function drawForm(form, body, foot, page) {
  form.inputs.clear();
  const command = make("p", { class: "mono command" });
  const fault = make("div");
  const state = make("div"); // on a narrow screen the list, which says the same, is far above
  const start = button("start training", () => startTraining(form, page, fault), {
    kind: "primary",
  });
  foot.refresh = () => {
    const { training } = page.list;
    start.disabled = training !== null && training.state !== "ended";
    start.title = start.disabled ? "a training is running; stop it, or wait until it ends" : "";
    command.textContent = writeCommand(form);
    clear(
      state,
      form.hasStarted && training !== null
        ? make("p", {
            class: training.error ? "error" : "note",
            text: training.error ?? page.describeTraining(),
          })
        : null,
    );
  };
  const sections = form.described.sections.map((section, i) =>
    drawSection(form, section, i === 0, foot.refresh),
  );
  clear(
    body,
    make("p", {
      class: "note",
      text: `Expected: ${form.described.result} after ${form.described.minutes} on two cores.`,
    }),
    sections,
  );
  clear(foot, command, fault, make("div", { class: "row" }, start), state);
  foot.refresh();
}

function drawSection(form, section, isOpen, onChange) {
  const fields = section.fields.filter(
    ({ name, is_decided_by_data: isDecided }) => !isDecided && !IS_PATH.test(name),
  );
  return make(
    "details",
    { class: "settings", open: isOpen },
    make(
      "summary",
      {},
      make("strong", { text: section.name }),
      make("span", { class: "muted", text: ` ${section.kind}, ${fields.length} settings` }),
    ),
    section.about ? make("p", { class: "note", text: section.about }) : null,
    drawSettings(form, fields, onChange),
  );
}

// The important settings; the others below them, folded.
function drawSettings(form, fields, onChange) {
  const drawGrid = (some) =>
    make(
      "div",
      { class: "setting-grid" },
      some.map((each) => drawSetting(form, each, onChange)),
    );
  const first = fields.filter(({ name }) => IMPORTANT.includes(name));
  if (!first.length) return drawGrid(fields);
  const rest = fields.filter(({ name }) => !IMPORTANT.includes(name));
  return [
    drawGrid(first),
    make(
      "details",
      { class: "other-settings" },
      make("summary", { text: `${rest.length} other settings` }),
      drawGrid(rest),
    ),
  ];
}

function drawSetting(form, setting, onChange) {
  const title = [setting.about, `${setting.type}; the recipe has ${setting.value}`]
    .filter(Boolean)
    .join("\n");
  const input =
    setting.choices === null
      ? make("input", {
          type: "text",
          value: setting.value,
          title,
          spellcheck: false,
          autocomplete: "off",
        })
      : make(
          "select",
          { title },
          setting.choices.map((each) =>
            make("option", { value: each, text: each, selected: each === setting.value }),
          ),
        );
  const holder = field(setting.name.split(".")[1], input);
  const update = () => {
    holder.classList.toggle("changed", input.value !== setting.value);
    onChange();
  };
  input.addEventListener("input", update);
  input.name = setting.name;
  holder.classList.add("setting");
  holder.title = title;
  form.inputs.set(setting.name, { input, setting });
  return holder;
}

function listChanged(form) {
  const all = [...form.inputs].filter(([, { input, setting }]) => input.value !== setting.value);
  return Object.fromEntries(all.map(([name, { input }]) => [name, input.value]));
}

const quoteWord = (word) =>
  /^[\w.,=+:@%/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

function writeCommand(form) {
  const words = Object.entries(listChanged(form)).map(([name, value]) =>
    quoteWord(`${name}=${value}`),
  );
  return ["clearhead train", form.recipe, ...words].join(" ");
}

function writePython(form) {
  if (form.recipe === null) throw new Error("Choose a recipe first.");
  const words = Object.entries(listChanged(form)).map(([name, value]) =>
    JSON.stringify(`${name}=${value}`),
  );
  return [
    "from clearhead.training import find_recipe, train, with_changes",
    `recipe = with_changes(find_recipe(${JSON.stringify(form.recipe)}), [${words.join(", ")}])`,
    'result = train(recipe, "runs")',
  ].join("\n");
}

async function startTraining(form, page, fault) {
  clear(fault);
  try {
    await page.start({ recipe: form.recipe, changes: listChanged(form) });
    form.hasStarted = true;
  } catch (error) {
    message(fault, error);
  }
}
