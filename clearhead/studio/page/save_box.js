// A part of the page that is drawn with HTML, such as bars or a table, as an SVG.
import { svg } from "./dom.js";

// The coloured boxes, texts and small SVGs inside a box, each at its place. copySVG: copies an SVG with its style.
export function boxAsSVG(box, copySVG) {
  const corner = box.getBoundingClientRect();
  const [width, height] = [Math.ceil(corner.width), Math.ceil(corner.height)];
  const placeOf = (place) => ({
    x: place.left - corner.left,
    y: place.top - corner.top,
    width: place.width,
    height: place.height,
  });
  const parts = [...box.querySelectorAll("*")].flatMap((node) => {
    const own = placeOf(node.getBoundingClientRect());
    if (node instanceof SVGElement) {
      const isInside = node.ownerSVGElement !== null; // copied with the SVG around it
      return isInside
        ? []
        : [svg("svg", { x: own.x, y: own.y, overflow: "visible" }, copySVG(node))];
    }
    const style = getComputedStyle(node);
    const background = svg("rect", {
      ...own,
      fill: style.backgroundColor,
      opacity: style.opacity,
      rx: parseFloat(style.borderRadius) || 0,
    });
    const texts = [...node.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE);
    // An inner <svg> cuts off a text that is wider than its element, as the page does.
    return [
      background,
      ...texts.map((text) => svg("svg", own, drawTextLines(text, style, own, placeOf))),
    ];
  });
  return svg(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    parts,
  );
}

// The lines of a text node, in its style, inside the box of its element.
function drawTextLines(node, { color, fontSize, fontFamily, fontWeight }, own, placeOf) {
  const style = {
    fill: color,
    "font-size": fontSize,
    "font-family": fontFamily,
    "font-weight": fontWeight,
    "dominant-baseline": "central",
  };
  return splitLines(node).map(({ text, box }) => {
    const { x, y, height } = placeOf(box);
    return svg("text", { ...style, x: x - own.x, y: y - own.y + height / 2 }, text);
  });
}

// The lines into which the page has broken a text, each with its place.
function splitLines(node) {
  const range = document.createRange();
  const lines = [];
  [...node.data.matchAll(/\S+/g)].forEach(({ index, 0: word }) => {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    const last = lines.at(-1);
    if (box.width === 0) return;
    if (last !== undefined && Math.abs(last.box.top - box.top) < box.height / 2)
      last.text += ` ${word}`;
    else lines.push({ text: word, box });
  });
  return lines;
}
