// What `clearhead check` found: for each part the verdict, the mistake, its line and an example.
import { make } from "../dom.js";
import { button } from "../panel.js";

const VERDICTS = {
  passed: "passed",
  failed: "not right yet",
  error: "stopped with an error",
  missing: "not found",
};

// exercises: the list of the server; onLine(line): show a line of the code.
export function drawReport(report, exercises, onLine) {
  const points = report.parts.reduce((sum, part) => sum + part.points, 0);
  const most = report.parts.reduce((sum, part) => sum + part.max_points, 0);
  const n = report.parts.filter(({ verdict }) => verdict === "passed").length;
  return make(
    "div",
    { class: "stack saved-text" },
    report.parts.map((part) =>
      drawPart(
        part,
        exercises.find(({ name }) => name === part.exercise),
        onLine,
      ),
    ),
    report.notes.map((note) => make("p", { class: "note", text: note })),
    make(
      "p",
      { class: "report-sum" },
      make("strong", {
        text: `${n} of ${report.parts.length} parts passed, ${formatPoints(points)} of ${formatPoints(most)} points`,
      }),
    ),
    describeSandbox(report.sandbox),
  );
}

const LAYERS = 5; // of protection

// sandbox: the layers that were on, such as "limits + Landlock + seccomp".
function describeSandbox(sandbox) {
  const n = sandbox.split(" + ").length;
  const words =
    n === LAYERS
      ? `all ${LAYERS} layers of protection on`
      : `${n} of ${LAYERS} layers of protection on`;
  return make("p", {
    class: "note",
    text: `The code ran in a sandbox with ${words}.`,
    title: sandbox,
  });
}

const formatPoints = (points) => String(Math.round(points * 100) / 100);

function drawPart(part, exercise, onLine) {
  return make(
    "article",
    { class: `part ${part.verdict}`, dataset: { exercise: part.exercise } },
    make(
      "div",
      { class: "part-head" },
      make("h3", { text: exercise?.title ?? part.exercise }),
      make("span", {
        class: `verdict ${part.verdict}`,
        text: VERDICTS[part.verdict] ?? part.verdict,
      }),
      make("span", {
        class: "muted",
        text: `${formatPoints(part.points)} of ${formatPoints(part.max_points)} points`,
      }),
    ),
    part.sentence ? make("p", { class: "part-sentence", text: part.sentence }) : null,
    drawPlace(part, exercise, onLine),
    part.verdict !== "passed" && part.example ? drawExample(part.example) : null,
    part.notes.map((note) => make("p", { class: "note", text: note })),
  );
}

// Where to look: the term of the formula, and the line.
function drawPlace(part, exercise, onLine) {
  const term = exercise?.terms[part.term];
  if (part.verdict === "passed" || (!term && !part.where)) return null;
  return make(
    "dl",
    { class: "part-place" },
    term
      ? [
          make("dt", { text: "look at" }),
          make("dd", { text: term }),
          make("dt", { text: "formula" }),
          make("dd", { class: "mono", text: exercise.formula }),
        ]
      : null,
    part.where
      ? [
          make("dt", { text: "where" }),
          make(
            "dd",
            {},
            button(part.where, () => onLine(part.line), { title: "show this line in the code" }),
          ),
        ]
      : null,
    part.mistake
      ? [
          make("dt", { text: "name" }),
          make("dd", {
            class: "mono",
            text: part.mistakes.length ? part.mistakes.join(", ") : part.mistake,
          }),
        ]
      : null,
  );
}

function drawExample(example) {
  const rows = [
    ...Object.entries({ ...example.sizes, ...example.inputs }).map(([name, value]) => [
      name,
      value,
      "",
    ]),
    ...listResults("expected", example.expected),
    ...listResults("got", example.got),
  ];
  return make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { class: "example" },
      make("caption", { text: "A small example" }),
      make(
        "tbody",
        {},
        rows.map(([name, value, kind]) =>
          make(
            "tr",
            { class: kind },
            make("th", { text: name }),
            make("td", { class: "mono", text: formatValue(value) }),
          ),
        ),
      ),
    ),
  );
}

function listResults(word, value) {
  const isNamed = value !== null && typeof value === "object" && !Array.isArray(value);
  const entries = isNamed ? Object.entries(value) : [["", value]];
  return entries.map(([name, each]) => [entries.length > 1 ? `${word} ${name}` : word, each, word]);
}

// As Python writes it. NaN and infinities stand in quotes, since JSON has no such numbers.
function formatValue(value) {
  if (Array.isArray(value)) return `[${value.map(formatValue).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value === null) return "None";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
