// Create and fill elements. A text becomes a text node, never HTML.

// make("button", { class: "chip", on: { click: pick } }, "a token")
export function make(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

// An SVG element; the second argument holds its attributes.
export function svg(tag, attributes = {}, ...children) {
  const { on, ...others } = attributes;
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return fill(node, { attributes: others, on }, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) setProperty(node, name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function setProperty(node, name, value) {
  if (value === undefined || value === null) return;
  if (name === "class") node.setAttribute("class", value);
  else if (name === "text") node.textContent = value;
  else if (name === "dataset") Object.assign(node.dataset, value);
  else if (name === "style") Object.assign(node.style, value);
  else if (name === "on") {
    for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
  } else if (name === "attributes") {
    for (const [key, each] of Object.entries(value)) {
      if (each !== undefined && each !== null) node.setAttribute(key, each);
    }
  } else node[name] = value;
}

export function clear(node, ...children) {
  node.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined),
  );
  return node;
}

// A function that runs `action` when no further call has come for a while; .now() runs it at once.
export function debounce(milliseconds, action) {
  let timer = null;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
  later.now = (...values) => {
    clearTimeout(timer);
    return action(...values);
  };
  return later;
}

// A function that runs `action` at most once for each frame of the screen, with the last arguments.
export function eachFrame(action) {
  let values = null;
  return (...given) => {
    if (values === null) {
      requestAnimationFrame(() => {
        const last = values;
        values = null;
        action(...last);
      });
    }
    values = given;
  };
}

// Listeners that make an element work as a button: a click, Enter or the space bar.
export function listenPress(action) {
  const onKey = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    action();
  };
  return { click: () => action(), keydown: onKey };
}

// Arrow keys as steps: [rows, columns].
export const ARROWS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

let lastId = 0;
export const newId = (prefix) => `${prefix}-${++lastId}`;
