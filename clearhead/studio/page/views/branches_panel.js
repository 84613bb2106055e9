// Branches: all continuations that the user has tried, and the likeliest ones after the current token.
import { ask, latest } from "../api.js";
import { make } from "../dom.js";
import { button, panel } from "../panel.js";
import { TextTreePicture, describeNode } from "./text_tree_picture.js";

const N_BRANCHES = 3;

export function makeBranchesPanel(page) {
  const run = latest();
  const picture = new TextTreePicture({ onPick: (node) => page.goTo(node) });
  const detail = make("p", { class: "note node-detail" });
  let lines = null; // of the last expansion
  const expand = async () => {
    if (!page.hasPrompt) return;
    const { model, tokens, changes } = page.question;
    const node = page.tree.current;
    try {
      const found = await run((signal) =>
        ask("expand", { model, tokens, n_branches: N_BRANCHES, changes }, { signal }),
      );
      if (found === undefined) return;
      lines = found.python;
      addBranches(page.tree, node, found.branches);
      page.drawTree();
    } catch (error) {
      page.fail(error);
    }
  };
  const prune = () => {
    page.tree.prune();
    page.drawTree();
  };
  const tools = make(
    "div",
    { class: "row" },
    button("expand", expand, {
      title: `the ${N_BRANCHES} likeliest tokens that may follow, and those after them`,
    }),
    button("remove other branches", prune, { title: "keep only the current text" }),
  );
  return {
    node: panel(
      "Branches",
      {
        python: () => lines ?? page.answer.python,
        note: page.studio.exported
          ? "The thicker a line, the likelier the token."
          : "Every branch that you take is kept. Click a token to go there; the thicker a line, the likelier the token.",
        name: "branches",
      },
      page.studio.exported ? null : tools,
      picture.node,
      detail,
    ),
    draw() {
      picture.show(page.tree);
      detail.textContent = describeCurrent(page);
    },
    forget() {
      lines = null;
    },
    leave: () => run.stop(),
  };
}

function addBranches(tree, parent, branches) {
  for (const { id, name, log_prob: logProb, branches: following = [] } of branches) {
    addBranches(tree, tree.add(parent, { id, name, logProb }), following);
  }
}

function describeCurrent({ tree, answer, isFull }) {
  const { current } = tree;
  const full = isFull
    ? ` The text has ${answer.max_len} tokens, as many as the model can read: go back, or type a shorter prompt.`
    : "";
  if (current.parent === null) return `You are at the end of the prompt.${full}`;
  return `Here: ${describeNode(current)} of ${current.depth} ${current.depth === 1 ? "token" : "tokens"}.${full}`;
}
