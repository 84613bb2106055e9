// How a cell of the smallest transformer is computed: every product and every sum, in numbers.
//   K, Q, V = x Km, x Qm, x Vm      Attn = softmax(Q Kᵀ / √d_qk)      Out = Attn V
import { make } from "../dom.js";
import { number } from "../format.js";

const FROM = { K: "Km", Q: "Qm", V: "Vm" };

// answer: the answer to run_smallest; name: K, Q, V, Attn or Out.
export function explainEntry(answer, name, row, column) {
  if (name === "Attn") return explainAttention(answer, row, column);
  return make(
    "div",
    { class: "steps" },
    name === "Out"
      ? explainOutput(answer, row, column)
      : explainProjection(answer, name, row, column),
  );
}

const nameToken = (answer, t) => `${answer.tokens[t]} at ${t}`;

function explainProjection(answer, name, t, column) {
  const matrix = answer.parameters[FROM[name]];
  const x = answer.x.part(t).data;
  const rows = answer.inputs.map((input, i) => [
    input,
    x[i],
    matrix.at(i, column),
    x[i] * matrix.at(i, column),
  ]);
  const place = answer.parameters.pos ? "its letter, then its place" : "its letter";
  return entryStep(
    `${name}[${t}, ${column}] = x[${t}] · ${FROM[name]}[:, ${column}]`,
    `x[${t}] is the token ${nameToken(answer, t)} as numbers: ${place}. Each is multiplied by its row of ${FROM[name]}.`,
    productTable(["input", "x", FROM[name], "product"], rows),
    totalLine(`${name}[${t}, ${column}]`, answer[name].at(t, column)),
  );
}

function explainOutput(answer, t, column) {
  const rows = answer.tokens.map((_, s) => [
    nameToken(answer, s),
    answer.Attn.at(t, s),
    answer.V.at(s, column),
    answer.Attn.at(t, s) * answer.V.at(s, column),
  ]);
  return entryStep(
    `Out[${t}, ${column}] = Σ Attn[${t}, s] · V[s, ${column}]`,
    `Token ${nameToken(answer, t)} takes the value of every token, each by its share of the attention.`,
    productTable(["token", "Attn", "V", "product"], rows),
    totalLine(`Out[${t}, ${column}]`, answer.Out.at(t, column)),
  );
}

function explainAttention(answer, t, s) {
  const [Q, K] = [answer.Q.part(t).data, answer.K.part(s).data];
  const d = Q.length;
  const dot = [...Q].reduce((sum, x, i) => sum + x * K[i], 0);
  const scores = [...answer.scores.part(t).data];
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((total, x) => total + x, 0);
  const [query, key] = [nameToken(answer, t), nameToken(answer, s)];
  const terms = [...Q].map((x, i) => [answer.topics?.[i] ?? String(i), x, K[i], x * K[i]]);
  const shares = scores.map((score, i) => [
    nameToken(answer, i),
    score,
    powers[i],
    answer.Attn.at(t, i),
  ]);
  return make(
    "div",
    { class: "steps" },
    entryStep(
      `1  Compare: Q[${t}] · K[${s}]`,
      `What ${query} asks for, times what ${key} offers, number by number.`,
      productTable([answer.topics ? "topic" : "column", "Q", "K", "product"], terms),
      totalLine("Q · K", dot),
    ),
    entryStep(
      `2  Scale: ÷ √${d}`,
      "A sum of more products is larger. The division keeps the scores in the same range for every width.",
      make("p", { class: "mono equation", text: `${number(dot)} ÷ ${number(Math.sqrt(d))}` }),
      totalLine("score", scores[s]),
    ),
    entryStep(
      "3  Share out: exp, ÷ sum",
      `The same for all tokens that ${query} can attend to. The largest score, ${number(most)}, is subtracted before exp; that changes no weight.`,
      productTable(["token", "score", "exp", "weight"], shares, s),
      make("p", { class: "mono equation", text: `${number(powers[s])} ÷ ${number(sum)}` }),
      totalLine(`Attn[${t}, ${s}]`, answer.Attn.at(t, s)),
    ),
  );
}

export function entryStep(title, words, ...children) {
  return make(
    "section",
    { class: "step", attributes: { "aria-label": title } },
    make("h3", { text: title }),
    make("p", { class: "note", text: words }),
    children,
  );
}

// rows: [name, number, number, …]; chosen: the row that is highlighted.
export function productTable(heads, rows, chosen = null) {
  const cells = ([name, ...numbers]) => [
    make("td", { class: "name", text: name }),
    numbers.map((x) => make("td", { text: number(x) })),
  ];
  return make(
    "div",
    {
      class: "table-box",
      tabIndex: 0,
      attributes: { role: "region", "aria-label": heads.join(", ") },
    },
    make(
      "table",
      { class: "numbers" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          heads.map((text) => make("th", { text })),
        ),
      ),
      make(
        "tbody",
        {},
        rows.map((row, i) => make("tr", { class: i === chosen ? "chosen" : null }, cells(row))),
      ),
    ),
  );
}

export const totalLine = (name, value) =>
  make(
    "p",
    { class: "sum-line" },
    make("span", { class: "muted", text: "=" }),
    make("b", { class: "mono total", text: `${name} = ${number(value)}` }),
  );
