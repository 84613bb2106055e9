// A stand-in for a browser, just large enough to run viewer.html: node page_stub.js PAGE.html
// prints what the page shows after it loads, after pointing at the last query, and after choosing a head.
const fs = require("fs"), vm = require("vm");

class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], listeners: {}, attributes: {}, style: {}, text: "" });
    this.classList = { toggle: () => {} };
  }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren() { this.children = []; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener(kind, listener) { this.listeners[kind] = listener; }
  fire(kind, event = {}) { this.listeners[kind]({ target: this, preventDefault() {}, ...event }); }
  focus() { document.activeElement = this; this.fire("focus"); }
  set textContent(text) { this.text = String(text); }
  get textContent() { return this.text + this.children.map((child) => child.textContent).join(" "); }
  getContext() {
    const strokes = (this.strokes = []);
    return {
      scale() {}, beginPath() {}, moveTo() {}, lineTo() {}, putImageData() {},
      stroke() { strokes.push(this.globalAlpha); elements.lines.colour = this.strokeStyle; },
      createImageData: (width, height) => ({ data: new Uint8ClampedArray(4 * width * height) }),
    };
  }
}

const page = fs.readFileSync(process.argv[2], "utf8");
const scripts = [...page.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)];
const elements = {};
for (const [, id] of page.matchAll(/ id="(\w+)"/g)) elements[id] = new Element(id);
elements.data.text = scripts[0][2];
const document = { getElementById: (id) => elements[id], createElement: (tag) => new Element(tag) };
const darkness = new Element("darkness"); // a frame learns late that the page is dark
darkness.matches = false;
const window = { matchMedia: () => darkness };
vm.runInNewContext(scripts[1][2], { document, window, console });

const see = () => ({
  words: elements.words.textContent,
  keys: elements.keys.children.map((line) => line.textContent),
  lines: elements.lines.strokes.length,
  head: String(elements.head.value),
});
const queries = elements.queries.children;
const seen = { queries: queries.map((button) => button.textContent), start: see() };
queries.at(-1).fire("mouseenter");
seen.pointed = see();
elements.queries.fire("mouseleave");
seen.left = see();
queries[0].focus();
elements.queries.fire("keydown", { key: "ArrowDown" });
seen.arrow = see();
const rows = elements.thumbs.children[0].children[1].children;
rows.at(-1).children.at(-1).children[0].fire("click");
seen.chosen = see();
elements.head.value = "mean";
elements.head.fire("change");
seen.mean = see();
seen.colours = [elements.lines.colour];
darkness.matches = true;
darkness.fire("change");
seen.colours.push(elements.lines.colour);
console.log(JSON.stringify(seen));
