// A box for code: a textarea with line numbers, marked lines, and files dropped onto it.
import { clear, make } from "../dom.js";

const INDENT = "    ";
const MOST_BYTES = 900_000; // the server takes 1 MiB
const MOST_NUMBERED = 20_000; // lines that get a number

// onInput(text): the user has typed, or opened or dropped a file. onFault(sentence): it cannot be read.
export class CodeBox {
  constructor({ onInput, onFault }) {
    Object.assign(this, { onInput, onFault });
    this.marks = new Map(); // line → words
    this.gutter = make("div", { class: "code-gutter", attributes: { "aria-hidden": "true" } });
    this.strips = make("div", { class: "code-strips", attributes: { "aria-hidden": "true" } });
    this.area = make("textarea", {
      class: "code-area",
      ariaLabel: "code",
      spellcheck: false,
      wrap: "off",
      autocapitalize: "off",
      autocomplete: "off",
      placeholder: "Paste a function or a class here, or drop a .py file or a notebook.",
      on: {
        input: () => this.update(),
        scroll: () => this.scroll(),
        keydown: (event) => this.indent(event),
      },
    });
    this.node = make(
      "div",
      { class: "code-box" },
      this.gutter,
      make("div", { class: "code-paper" }, this.strips, this.area),
    );
    this.listenForFiles();
    this.drawLines();
  }

  get text() {
    return this.area.value;
  }

  write(text) {
    this.area.value = text;
    this.mark([]);
    this.area.scrollTop = 0;
    this.drawLines();
  }

  update() {
    if (isNotebook(this.text)) this.area.value = notebookToText(this.text); // the text of an .ipynb file was pasted
    this.mark([]); // the lines may have moved
    this.drawLines();
    this.onInput(this.text);
  }

  // lines: [[number from 1, words], …]
  mark(lines) {
    this.marks = new Map(lines);
    this.drawLines();
  }

  showLine(line) {
    const lines = this.text.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    this.area.scrollTop = (line - 4) * this.lineHeight;
  }

  get lineHeight() {
    return parseFloat(getComputedStyle(this.area).lineHeight) || 20;
  }

  drawLines() {
    const n = Math.min(this.text.split("\n").length, MOST_NUMBERED);
    const key = `${n} ${JSON.stringify([...this.marks])}`;
    if (key === this.drawn) return;
    this.drawn = key;
    clear(
      this.gutter,
      Array.from({ length: n }, (_, i) =>
        make("div", { class: this.marks.has(i + 1) ? "marked" : "", text: String(i + 1) }),
      ),
    );
    clear(
      this.strips,
      [...this.marks].map(([line, words]) =>
        make("div", {
          class: "code-strip",
          title: words,
          style: { top: `calc(${line - 1} * 1lh + 8px)` },
        }),
      ),
    );
    this.scroll();
  }

  scroll() {
    this.gutter.style.transform =
      this.strips.style.transform = `translateY(${-this.area.scrollTop}px)`;
  }

  // Tab indents; after Escape, Tab moves the focus, as everywhere else.
  indent(event) {
    if (event.key === "Escape") this.isFree = true;
    if (event.key !== "Tab" || event.shiftKey || this.isFree) {
      if (event.key === "Tab") this.isFree = false;
      return;
    }
    event.preventDefault();
    this.area.setRangeText(INDENT, this.area.selectionStart, this.area.selectionEnd, "end");
    this.update();
  }

  listenForFiles() {
    this.node.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.node.classList.add("drop-here");
    });
    this.node.addEventListener("dragleave", () => this.node.classList.remove("drop-here"));
    this.node.addEventListener("drop", (event) => {
      event.preventDefault();
      this.node.classList.remove("drop-here");
      const [file] = event.dataTransfer.files;
      if (file !== undefined) this.readFile(file);
    });
  }

  async readFile(file) {
    try {
      const text = (await file.text()).replaceAll("\r\n", "\n");
      this.write(file.name.endsWith(".ipynb") ? notebookToText(text) : text);
      this.onInput(this.text);
    } catch (error) {
      this.onFault(error.message);
    }
  }
}

// Whether a text is the content of an .ipynb file.
function isNotebook(text) {
  if (!/^\s*\{/.test(text)) return false; // nearly every text ends here, without the slow JSON.parse
  try {
    return Array.isArray(JSON.parse(text).cells);
  } catch {
    return false;
  }
}

// The code cells of a notebook, each after a line "# %%", which editors read as the beginning of a cell.
export function notebookToText(text) {
  let cells;
  try {
    cells = JSON.parse(text).cells.filter(({ cell_type: kind }) => kind === "code");
  } catch {
    throw new Error(
      "This file is not a notebook: its JSON has no list of cells. Open a .py file or another notebook.",
    );
  }
  const sources = cells.map(({ source }) =>
    (Array.isArray(source) ? source.join("") : source).replace(/^# %%.*\n/, ""),
  );
  return sources.map((source) => `# %%\n${source}`).join("\n\n");
}

// The code as the server takes it. A text with "# %%" lines becomes a notebook; its lines keep their numbers.
export function packCode(text) {
  if (new Blob([text]).size > MOST_BYTES)
    throw new Error(
      `This is more than ${MOST_BYTES.toLocaleString("en-US")} bytes; check a smaller file.`,
    );
  if (!/^# %%/.test(text)) return { code: text, kind: "python" };
  const cells = text
    .split(/\n(?=# %%)/)
    .map((source) => ({
      cell_type: "code",
      metadata: {},
      outputs: [],
      execution_count: null,
      source,
    }));
  return {
    code: JSON.stringify({ cells, metadata: {}, nbformat: 4, nbformat_minor: 5 }),
    kind: "notebook",
  };
}
