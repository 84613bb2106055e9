// The parts that every view is made of: panels with their tools, and labelled inputs.
import { clear, make, newId } from "./dom.js";
import { savePNG, saveSVG } from "./save.js";
import { showStatus } from "./api.js";

// A part of a view with its tools: save as PNG or SVG, copy as Python, explain.
//   python: () => lines that compute the same in a notebook; explain: () => a node that explains the chosen
//   cell with its numbers; explainAt: () => the node that explains it, if another panel does; note: one
//   sentence below the title; name: the name of saved files; saves: whether there are pictures to save.
export function panel(
  title,
  {
    python = null,
    explain = null,
    explainAt = null,
    note = "",
    name = "clearhead",
    saves = true,
  } = {},
  ...children
) {
  const body = make("div", { class: "panel-body" }, children);
  const explanation = make("div", { class: "explanation", hidden: true });
  const tools = [
    saves ? tool("PNG", "save as PNG", () => savePNG(body, name)) : null,
    saves ? tool("SVG", "save as SVG", () => saveSVG(body, name)) : null,
    python === null ? null : tool("Python", "copy as Python", () => copyPython(python())),
    explain === null ? null : explainTool(explanation, explain),
    explainAt === null
      ? null
      : tool("explain", "go to the equation with the numbers of the chosen cell", () =>
          goToNode(explainAt()),
        ),
  ];
  return make(
    "section",
    { class: "panel", attributes: { "aria-label": title } },
    make(
      "div",
      { class: "panel-head" },
      make("h2", { text: title }),
      make("div", { class: "tools", attributes: { role: "group", "aria-label": "tools" } }, tools),
    ),
    note ? make("p", { class: "note", text: note }) : null,
    body,
    explanation,
  );
}

function tool(text, title, action) {
  const run = async () => {
    try {
      await action();
    } catch (error) {
      showStatus(error.message);
    }
  };
  return make("button", {
    class: "tool",
    type: "button",
    text,
    title,
    ariaLabel: title,
    on: { click: run },
  });
}

function explainTool(holder, explain) {
  const show = () => {
    holder.hidden = !holder.hidden;
    node.setAttribute("aria-expanded", String(!holder.hidden));
    if (!holder.hidden) clear(holder, explain());
  };
  const node = make("button", {
    class: "tool",
    type: "button",
    text: "explain",
    title: "the equation with the numbers of the chosen cell",
    attributes: { "aria-expanded": "false" },
    on: { click: show },
  });
  holder.refresh = () => {
    if (!holder.hidden) clear(holder, explain());
  };
  return node;
}

function goToNode(node) {
  node.tabIndex = -1;
  node.classList.add("pointed-at");
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "nearest" });
}

// Update an open explanation after another cell was chosen.
export function refreshExplanation(section) {
  section.querySelector(".explanation")?.refresh?.();
}

export async function copyPython(lines) {
  try {
    await navigator.clipboard.writeText(lines);
    showStatus("Copied. Paste it into a notebook.");
  } catch {
    showDialog("Python", make("pre", { class: "mono", text: lines }));
  }
  setTimeout(() => showStatus(""), 4000);
}

// A window over the page; Escape closes it.
export function showDialog(title, ...children) {
  const dialog = make(
    "dialog",
    { attributes: { "aria-label": title } },
    make(
      "div",
      { class: "panel-head" },
      make("h2", { text: title }),
      button("close", () => dialog.close()),
    ),
    children,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// Show an error, or a sentence, in place of a result.
export function message(node, error) {
  const words = typeof error === "string" ? error : error.message;
  return clear(node, make("p", { class: "error", text: words, attributes: { role: "alert" } }));
}

// Inputs

export function field(label, input) {
  input.id ||= newId("field");
  return make("div", { class: "field" }, make("label", { text: label, htmlFor: input.id }), input);
}

// options: [value, …] or [[value, words], …].
export function choice(label, options, value, onChange) {
  const select = make(
    "select",
    { on: { change: () => onChange(select.value) } },
    options.map((option) => {
      const [own, words] = Array.isArray(option) ? option : [option, option];
      return make("option", { value: own, text: words, selected: String(own) === String(value) });
    }),
  );
  return field(label, select);
}

export function slider(label, { min, max, step = 1, value, format = String }, onInput) {
  const shown = make("output", { text: format(value) });
  const input = make("input", {
    type: "range",
    attributes: { min, max, step },
    on: {
      input: () => {
        shown.textContent = format(Number(input.value));
        onInput(Number(input.value));
      },
    },
  });
  input.value = value;
  const holder = field(label, input);
  holder.classList.add("slider");
  holder.append(shown);
  // Set the value without calling onInput: slider.set(0.5).
  holder.set = (next) => {
    input.value = next;
    shown.textContent = format(next);
  };
  return holder;
}

export function toggle(label, value, onChange) {
  const input = make("input", {
    type: "checkbox",
    checked: value,
    on: { change: () => onChange(input.checked) },
  });
  return make("label", { class: "toggle" }, input, label);
}

export function button(text, onClick, { title = "", kind = "", disabled = false } = {}) {
  return make("button", {
    class: `button ${kind}`.trim(),
    type: "button",
    text,
    title: title || undefined,
    disabled,
    on: { click: onClick },
  });
}

// A row of buttons, one of which is pressed. options: as for choice.
export function tabs(label, options, value, onChange) {
  const nodes = options.map((option) => {
    const [own, words] = Array.isArray(option) ? option : [option, option];
    return make("button", {
      type: "button",
      class: "tab",
      text: words,
      attributes: { "aria-pressed": String(own === value) },
      on: { click: () => press(own) },
    });
  });
  const press = (own) => {
    nodes.forEach((node, i) => {
      const each = Array.isArray(options[i]) ? options[i][0] : options[i];
      node.setAttribute("aria-pressed", String(each === own));
    });
    onChange(own);
  };
  return make("div", { class: "tabs", attributes: { role: "group", "aria-label": label } }, nodes);
}
