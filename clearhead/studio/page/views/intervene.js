// Change something inside the model: silence or sharpen the open head, edit its mask, set a temperature.
import { clear, make } from "../dom.js";
import { number, tokenName } from "../format.js";
import { button, panel, slider, tabs } from "../panel.js";

export function makeChangePanel(page, copy) {
  const title = make("h3");
  const silence = button("", () => toggleSilence(page), {
    title: "the output of a silent head is 0",
  });
  const whole = button("", () => toggleSilence(page, null), {
    title: "the output of every head of a silent layer is 0",
  });
  const sharpen = slider(
    "sharpen",
    { min: 0, max: 5, step: 0.1, value: 1, format: (x) => `× ${x.toFixed(1)}` },
    (factor) => setFactor(page, factor),
  );
  const temperature = slider(
    "temperature",
    { min: 0.1, max: 3, step: 0.1, value: 1, format: (x) => x.toFixed(1) },
    (value) => page.set({ temperature: value }, true),
  );
  const list = make("ul", { class: "changes", attributes: { "aria-label": "active changes" } });
  const none = make("p", { class: "note" });
  const all = button("remove all changes", () => removeAll(page));
  const write = button("write with these changes", () => writeChanged(page), {
    title: "go to Generate: every token is computed by the changed model",
  });
  const saved = make("p", {
    class: "note",
    text: "This page was saved without its model, so nothing can be changed here. Open the model with clearhead studio to change it.",
  });
  const tools = make(
    "div",
    { class: "stack", hidden: page.studio.exported },
    title,
    make("div", { class: "row" }, silence, whole),
    sharpen,
    temperature,
    make("p", {
      class: "note",
      text: "To swap a token for another, click it above. To forbid or allow a cell, use “edit its mask” above the large matrix.",
    }),
    copy.tools,
  );
  return {
    node: panel(
      "Change something",
      { python: () => page.answer.python, saves: false, name: "changes" },
      page.studio.exported ? saved : tools,
      make("h3", { text: "Active changes" }),
      list,
      none,
      make("div", { class: "row" }, all, write),
    ),
    draw(answer, shown) {
      const layer = answer.layers[shown.layer];
      const isDot = layer.mechanism === "dot product";
      title.textContent = `${layer.title} · head ${shown.head}`;
      silence.textContent = findChange(page, "silence")
        ? "let it speak again"
        : "silence this head";
      whole.textContent = findChange(page, "silence", null)
        ? "let the layer speak again"
        : `silence all of ${layer.title}`;
      sharpen.set(findChange(page, "sharpen")?.factor ?? 1);
      sharpen.hidden = !isDot;
      temperature.set(shown.temperature);
      temperature.hidden = answer.answer === null;
      const rows = listRows(page, answer, shown);
      clear(
        list,
        rows.map(([words, remove]) =>
          make(
            "li",
            {},
            make("span", { text: words }),
            page.studio.exported
              ? null
              : make("button", {
                  type: "button",
                  class: "tool",
                  text: "remove",
                  ariaLabel: `remove: ${words}`,
                  on: { click: remove },
                }),
          ),
        ),
      );
      none.textContent = rows.length
        ? ""
        : "Nothing is changed: this is the model as it was trained.";
      all.hidden = rows.length < 2 || page.studio.exported;
      write.hidden = answer.kind !== "GPT" || !shown.changes.length || page.studio.exported;
    },
  };
}

// Whether cells of the large matrix are forbidden or allowed by painting on them.
export function makeMaskTools(page) {
  const mask = tabs("edit the mask", ["off", "forbid", "allow"], page.state.paint, (paint) =>
    page.set({ paint }),
  );
  const words = make("p", { class: "note" });
  return {
    node: make(
      "div",
      { class: "stack", hidden: page.studio.exported },
      make("div", { class: "row" }, make("span", { class: "muted", text: "edit its mask" }), mask),
      words,
    ),
    draw({ paint }) {
      words.textContent = PAINT_WORDS[paint];
      words.hidden = paint === "off";
    },
  };
}

const PAINT_WORDS = {
  off: "",
  forbid: "Press and drag over the matrix: these tokens may not look there any more.",
  allow: "Press and drag over the matrix: these tokens may look there, even ahead.",
};

// Changes of the open head

const openName = (page) => page.answer.layers[page.shown.layer].name;

function findChange(page, kind, head = page.shown.head) {
  return page.state.changes.find(
    (change) =>
      change.kind === kind &&
      change.layer === openName(page) &&
      (change.head ?? null) === head &&
      change.position === undefined,
  );
}

function toggleSilence(page, head = page.shown.head) {
  const old = findChange(page, "silence", head);
  const others = page.state.changes.filter((change) => change !== old);
  const own = { kind: "silence", layer: openName(page), ...(head === null ? {} : { head }) };
  page.set({ changes: old ? others : [...others, own] }, true);
}

function setFactor(page, factor) {
  const old = findChange(page, "sharpen");
  const others = page.state.changes.filter((change) => change !== old);
  const own = { kind: "sharpen", layer: openName(page), head: page.shown.head, factor };
  page.set({ changes: factor === 1 ? others : [...others, own] }, true);
}

// The Generate view, with this text as the prompt and the changes inside the model.
function writeChanged({ studio, state }) {
  studio.goTo({
    view: "generate",
    model: studio.model.id,
    text: state.text,
    changes: state.changes,
  });
}

function removeAll(page) {
  page.set({ changes: [], tokens: null, temperature: 1 }, true);
}

// Cells were painted on the open head: choose the last one; forbid or allow each, or undo the opposite edit of it.
export function paintCells(page, painted) {
  const { layer, head, paint } = page.shown;
  const { name, allowed } = page.answer.layers[layer];
  const isAllowing = paint === "allow";
  const isAllowed = ([row, column]) =>
    allowed === null || allowed.at(allowed.shape[0] === 1 ? 0 : head, row, column) === 1;
  const findEdit = (allow) =>
    page.state.changes.find(
      (change) =>
        change.kind === "mask" &&
        change.layer === name &&
        change.head === head &&
        change.allow === allow,
    );
  const [same, opposite] = [findEdit(isAllowing), findEdit(!isAllowing)];
  const [cells, oppositeCells] = [[...(same?.cells ?? [])], [...(opposite?.cells ?? [])]];
  let isChanged = false;
  for (const cell of painted) {
    const isCell = ([row, column]) => row === cell[0] && column === cell[1];
    const i = oppositeCells.findIndex(isCell);
    if (i >= 0) oppositeCells.splice(i, 1);
    else if (!cells.some(isCell) && isAllowed(cell) !== isAllowing) cells.push(cell);
    else continue;
    isChanged = true;
  }
  const [row, column] = painted.at(-1);
  page.set({ row, column });
  if (!isChanged) return;
  const others = page.state.changes.filter((change) => change !== same && change !== opposite);
  const edit = (own, allow) =>
    own.length ? [{ kind: "mask", layer: name, head, cells: own, allow }] : [];
  page.set(
    { changes: [...others, ...edit(oppositeCells, !isAllowing), ...edit(cells, isAllowing)] },
    true,
  );
}

// The list of changes

// [words, function that removes it] for each change, swapped token and temperature.
function listRows(page, answer, shown) {
  const rows = shown.changes.map((change) => [
    describeChange(answer, change),
    () => page.set({ changes: page.state.changes.filter((each) => each !== change) }, true),
  ]);
  answer.tokens.forEach((id, i) => {
    if (id !== answer.typed[i])
      rows.push([`token ${i} is now “${tokenName(answer.names[i])}”`, () => swapBack(page, i)]);
  });
  if (shown.temperature !== 1)
    rows.push([
      `temperature ${number(shown.temperature, 1)}`,
      () => page.set({ temperature: 1 }, true),
    ]);
  return rows;
}

function swapBack(page, place) {
  const tokens = page.answer.tokens.map((id, i) => (i === place ? page.answer.typed[i] : id));
  const isTyped = tokens.every((id, i) => id === page.answer.typed[i]);
  page.set({ tokens: isTyped ? null : tokens }, true);
}

export function describeChange(answer, change) {
  const layer = answer.layers.find(({ name }) => name === change.layer);
  const block = answer.blocks.indexOf(change.layer);
  const place = layer ? layer.title : block >= 0 ? `after layer ${block}` : change.layer;
  const head = change.head === undefined ? (layer ? ", all heads" : "") : ` · head ${change.head}`;
  return `${place}${head}: ${describeEffect(change)}`;
}

function describeEffect(change) {
  const at = change.position === undefined ? "" : ` at position ${change.position}`;
  if (change.kind === "silence") return `silent${at}`;
  if (change.kind === "sharpen") return `scores × ${number(change.factor, 1)}`;
  if (change.kind === "mask")
    return `${change.cells.length} ${change.cells.length === 1 ? "cell" : "cells"} ${change.allow ? "allowed" : "forbidden"}`;
  const from =
    change.from_position === undefined || change.from_position === change.position
      ? ""
      : `, from position ${change.from_position}`;
  return `copied from “${change.from_text}”${at}${from}`;
}

// "layer,head" → what was changed there, for the grid of heads.
export function nameChanges(answer, changes) {
  const found = new Map();
  for (const change of changes) {
    const l = answer.layers.findIndex(({ name }) => name === change.layer);
    if (l < 0) continue;
    const heads =
      change.head === undefined ? [...Array(answer.layers[l].heads).keys()] : [change.head];
    for (const h of heads)
      found.set(
        `${l},${h}`,
        [found.get(`${l},${h}`), `Changed: ${describeEffect(change)}.`].filter(Boolean).join(" "),
      );
  }
  return found;
}
