// Words as a picture: every visible line of text in an element, at its place and in its colour.
import { svg } from "./dom.js";

export function textAsSVG(node) {
  const corner = node.getBoundingClientRect();
  const [width, height] = [Math.ceil(corner.width), Math.ceil(corner.height)];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const lines = [];
  while (walker.nextNode()) lines.push(...splitLines(walker.currentNode));
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    lines.map(({ text, box, style }) => svg("text", {
      x: box.left - corner.left,
      y: box.top - corner.top + box.height / 2,
      "dominant-baseline": "central",
      fill: style.color,
      "font-size": style.fontSize,
      "font-family": style.fontFamily,
      "font-weight": style.fontWeight,
    }, text)));
}

// The lines into which the page has broken a text, each with its place.
function splitLines(node) {
  const range = document.createRange();
  const style = getComputedStyle(node.parentElement);
  const lines = [];
  [...node.data.matchAll(/\S+/g)].forEach(({ index, 0: word }) => {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    const last = lines.at(-1);
    if (box.width === 0) return;
    if (last !== undefined && Math.abs(last.box.top - box.top) < box.height / 2) last.text += ` ${word}`;
    else lines.push({ text: word, box, style });
  });
  return lines;
}
