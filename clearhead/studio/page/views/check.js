// The Check view: paste code, and `clearhead check` names the mistake, the term of the formula and the line.
import { address } from "../address.js";
import { latest, send } from "../api.js";
import { clear, make } from "../dom.js";
import { button, choice, field, message, panel } from "../panel.js";
import { CodeBox, packCode } from "./code_box.js";
import { drawReport } from "./check_report.js";

const STORED_CODE = "clearhead-code"; // the key in sessionStorage; stored code survives a change of the view
const KEYS = "code-keys"; // the id of the sentence about the keys

export const checkView = {
  name: "check",
  title: "Check",
  kinds: null,
  isLive: true, // a saved page could not show it
  about:
    "Paste your own attention, mask or transformer and see whether it is right – and if not, which term on which line is wrong. Your code runs in a sandbox on this machine.",
  mount(root, studio) {
    if (studio.exported) {
      root.append(
        make("p", {
          class: "note",
          text: "This page was saved without its server. Start clearhead studio to check code.",
        }),
      );
      return null;
    }
    const page = new CheckPage(root);
    return () => page.leave();
  },
};

class CheckPage {
  constructor(root) {
    this.exercises = [];
    this.run = latest();
    this.code = new CodeBox({
      onInput: (text) => this.keep(text),
      onFault: (words) => message(this.result, words),
    });
    this.code.write(sessionStorage.getItem(STORED_CODE) ?? "");
    this.result = make("div", { class: "stack", attributes: { "aria-live": "polite" } });
    this.choice = make("div", { class: "row end" });
    this.about = make("div");
    this.start = button("check", () => this.check(), { kind: "primary", title: "Ctrl + Enter" });
    this.seed = make("input", {
      type: "text",
      value: address.get("seed", ""),
      placeholder: "random",
      class: "seed-input",
      title: "the same seed gives the same inputs",
      attributes: { inputmode: "numeric" },
    });
    this.code.area.setAttribute("aria-describedby", KEYS);
    this.code.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.check();
    });
    root.append(
      make(
        "div",
        { class: "check-columns" },
        panel(
          "Your code",
          { saves: false, python: () => this.writePython() },
          this.choice,
          this.about,
          this.code.node,
          make("p", {
            class: "note",
            id: KEYS,
            text: "Ctrl + Enter checks. Tab indents; to leave the box by keyboard, press Escape, then Tab.",
          }),
          make(
            "div",
            { class: "row" },
            this.start,
            field("seed", this.seed),
            this.makeFileButton(),
            button("clear", () => this.write("")),
          ),
        ),
        panel("What was found", { name: "check", explainAt: () => this.findTerm() }, this.result),
      ),
    );
    this.showHint();
    this.begin();
  }

  showHint() {
    clear(
      this.result,
      make("p", { text: "Nothing was checked yet." }),
      make(
        "div",
        { class: "row" },
        button("try an example with a mistake", () => this.tryExample(), { kind: "primary" }),
      ),
      make("p", {
        class: "note",
        text: "Or paste your own code into the box, drop a file onto it, or choose an exercise and start from its template.",
      }),
    );
  }

  async begin() {
    try {
      const { exercises, example } = await send("GET", "/api/exercises");
      Object.assign(this, { exercises, example });
    } catch (error) {
      message(this.result, error);
      return;
    }
    this.drawChoice();
    this.isReady = true;
  }

  get exercise() {
    return this.exercises.find(({ name }) => name === address.get("exercise")) ?? null;
  }

  drawChoice() {
    const options = this.exercises.map(({ name, title }) => [name, title]);
    const select = choice(
      "exercise",
      [["", "every exercise found in the code"], ...options],
      this.exercise?.name ?? "",
      (name) => {
        address.set({ exercise: name || null });
        this.drawChoice();
      },
    );
    clear(
      this.choice,
      select,
      button("start from the template", () => this.startFromTemplate(), {
        disabled: this.exercise === null,
        title: this.exercise === null ? "choose an exercise first" : "",
      }),
    );
    clear(this.about, this.exercise === null ? null : drawExercise(this.exercise));
  }

  makeFileButton() {
    const input = make("input", {
      type: "file",
      class: "visually-hidden",
      ariaLabel: "a .py file or a notebook",
      attributes: { accept: ".py,.ipynb" },
      on: {
        change: () => {
          if (input.files.length) this.code.readFile(input.files[0]);
          input.value = "";
        },
      },
    });
    return make(
      "span",
      {},
      input,
      button("open a file …", () => input.click()),
    );
  }

  keep(text) {
    sessionStorage.setItem(STORED_CODE, text);
  }

  write(text) {
    this.code.write(text);
    this.keep(text);
  }

  startFromTemplate() {
    this.write(this.exercise.template);
    this.code.area.focus();
  }

  tryExample() {
    if (!this.isReady) return;
    address.set({ exercise: null });
    this.drawChoice();
    this.write(this.example.code);
    this.check();
  }

  async check() {
    const seed = this.seed.value.trim();
    address.set({ seed: seed || null });
    this.code.mark([]);
    try {
      if (seed && !/^\d{1,15}$/.test(seed))
        throw new Error("The seed must be a whole number, or empty for a random one.");
      const request = {
        ...packCode(this.code.text),
        exercise: this.exercise?.name ?? null,
        seed: seed ? Number(seed) : null,
      };
      clear(
        this.result,
        make("p", { class: "checking", text: "Checking … this takes a few seconds." }),
      );
      const report = await this.run((signal) => send("POST", "/api/check", request, { signal }));
      if (report !== undefined) this.show(report);
    } catch (error) {
      this.showError(error);
    }
  }

  // Why the code could not be checked; the line that cannot be read is marked.
  showError({ message: words }) {
    const line = / cannot be read as Python: .* in line (\d+)$/.exec(words);
    if (line !== null) this.code.mark([[Number(line[1]), words]]);
    const isUnknown = words.endsWith("no part of a known exercise");
    message(
      this.result,
      isUnknown
        ? `${words}. Choose the exercise above the code; the function is then found by its parameters.`
        : words,
    );
  }

  show(report) {
    const lines = report.parts
      .filter(({ line, verdict }) => line && verdict !== "passed")
      .map(({ line, sentence }) => [line, sentence]);
    this.code.mark(lines);
    clear(
      this.result,
      drawReport(report, this.exercises, (line) => this.code.showLine(line)),
    );
  }

  // The node of the report that names the wrong term of the formula.
  findTerm() {
    const place = this.result.querySelector(".part-place");
    if (place === null) throw new Error("There is no mistake to explain here.");
    return place;
  }

  // Lines that write the code to a file in a new folder, so that no file of the reader is overwritten, and check it.
  writePython() {
    const { code, kind } = packCode(this.code.text);
    const name = this.exercise === null ? "" : `, ${JSON.stringify(this.exercise.name)}`;
    const seed = this.seed.value.trim() ? `, seed=${this.seed.value.trim()}` : "";
    return [
      "import tempfile",
      "from pathlib import Path",
      "import clearhead",
      `code = ${quoteCode(code)}`,
      `path = Path(tempfile.mkdtemp(), "${kind === "notebook" ? "my_notebook.ipynb" : "my_file.py"}")`,
      'path.write_text(code, encoding="utf-8")',
      `report = clearhead.check(path${name}${seed})`,
      "report",
    ].join("\n");
  }

  leave() {
    this.run.stop();
  }
}

// A text as a Python literal: between triple quotes and raw if that is possible, because it is the easiest to read.
function quoteCode(code) {
  const isPlain = !code.includes("'''") && !/['\\]$/.test(code);
  return isPlain ? `r'''${code}'''` : JSON.stringify(code);
}

function drawExercise({ signature, formula, points, n_mistakes: n }) {
  return make(
    "dl",
    { class: "exercise-about" },
    make("dt", { text: "formula" }),
    make("dd", { class: "mono", text: formula }),
    make("dt", { text: "signature" }),
    make("dd", { class: "mono", text: signature }),
    make("dt", { text: "checks for" }),
    make("dd", { text: `${n} known mistakes; ${points} points` }),
  );
}
