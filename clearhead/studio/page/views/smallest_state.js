// The state of the view Smallest in the address: which rule, weights, input and cell it shows.
import { address } from "../address.js";

export const COMPUTED = ["K", "Q", "V", "Attn", "Out"];
export const RULE_WORDS = {
  identity:
    "Each letter comes out unchanged: A B C C → A B C C. By hand: a letter attends to its own kind.",
  first:
    "Each letter comes out as the first one: C A C → C C C. By hand: every letter attends to place 0.",
  unique:
    "+1 for a letter that occurs once, −1 for a repeated one: A B B → +1 −1 −1. By hand: a letter attends to its own kind at other places; if there is none, it attends to CLS, whose value is +1.",
};

// runs: the ids of the runs that the view can show.
export function readSmallest(runs) {
  const run = address.get("run");
  const isRun = runs.includes(run);
  const cell = (address.get("cell") ?? "").split(".");
  const text = address.get("text") ?? "";
  const letters = Number(address.getOneOf("letters", isRun ? [..."3456789"] : [..."456"], "4"));
  return {
    rule: address.getOneOf("rule", Object.keys(RULE_WORDS), "first"),
    start: isRun ? "run" : address.getOneOf("start", ["by hand", "learned", "random"], "by hand"),
    run: isRun ? run : null,
    letters,
    sharpness: address.getWithin("sharpness", 40, 0.5, 40),
    seed: address.getWhole("seed") ?? 0,
    text: /^[ABC]{1,9}$/.test(text) ? text.slice(0, letters) : "CAB",
    matrices: readMatrices(),
    cell: COMPUTED.includes(cell[0])
      ? {
          name: cell[0],
          row: Math.abs(Number.parseInt(cell[1], 10)) || 0,
          column: Math.abs(Number.parseInt(cell[2], 10)) || 0,
        }
      : null,
  };
}

// The edited matrices in the address; null if there are none.
function readMatrices() {
  const matrices = address.getJSON("matrices");
  return ["Km", "Qm", "Vm"].every((name) => Array.isArray(matrices?.[name])) ? matrices : null;
}

export function writeSmallest({
  rule,
  start,
  run,
  letters,
  sharpness,
  seed,
  text,
  matrices,
  cell,
}) {
  address.set({
    rule,
    start,
    run,
    letters,
    text,
    matrices,
    sharpness: start === "by hand" ? sharpness : null,
    seed: start === "random" ? seed : null,
    cell: cell === null ? null : `${cell.name}.${cell.row}.${cell.column}`,
  });
}
