// Save what a panel shows: its canvases, its SVGs and what it draws with HTML, one below the other, as one PNG or one
// SVG. A grid of small maps keeps its rows and columns, and the names beside them.
import { make, svg } from "./dom.js";
import { boxAsSVG } from "./save_box.js";

const GAP = 16;
const GRIDS = ".heads, .picture-heads, .map-choices";
const BOXES = ".bars, .legend, table.lens, .saved-text"; // drawn with HTML; saved as they look
const GRID_NAMES = ".heads-name, .heat-choice > span";
const TITLE = 22; // pixels above a grid
const COPIED_STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-size",
  "font-family",
  "font-weight",
  "text-anchor",
];

export async function savePNG(node, name) {
  const pictures = await Promise.all(findPictures(node).map(toImage));
  const width = Math.max(...pictures.map((each) => each.width));
  const height = pictures.reduce((sum, each) => sum + each.height + GAP, GAP);
  const canvas = make("canvas", { width: (width + 2 * GAP) * 2, height: height * 2 });
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, width + 2 * GAP, height);
  let y = GAP;
  for (const each of pictures) {
    pen.imageSmoothingEnabled = each.isSmooth;
    pen.drawImage(each.source, GAP, y, each.width, each.height);
    y += each.height + GAP;
  }
  canvas.toBlob((blob) => saveBlob(blob, `${name}.png`), "image/png");
}

export function saveSVG(node, name) {
  const parts = findPictures(node).map(toSVG);
  const sizes = parts.map((part) => [
    Number(part.getAttribute("width")),
    Number(part.getAttribute("height")),
  ]);
  const width = Math.max(...sizes.map(([each]) => each)) + 2 * GAP;
  const height = sizes.reduce((sum, [, each]) => sum + each + GAP, GAP);
  const whole = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    color: getComputedStyle(document.body).color,
  });
  whole.append(
    svg("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }),
  );
  let y = GAP;
  parts.forEach((part, i) => {
    part.setAttribute("x", GAP);
    part.setAttribute("y", y);
    whole.append(part);
    y += sizes[i][1] + GAP;
  });
  const text = new XMLSerializer().serializeToString(whole);
  saveBlob(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
}

export function saveBlob(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The visible canvases, SVGs, grids of small maps, and boxes.
function findPictures(node) {
  const found = [...node.querySelectorAll(`canvas, svg, ${GRIDS}, ${BOXES}`)].filter((each) => {
    const box = each.getBoundingClientRect();
    return (
      box.width > 20 &&
      (box.height > 20 || each.matches(BOXES)) &&
      each.parentElement.closest(`svg, ${GRIDS}, ${BOXES}`) === null
    );
  });
  if (!found.length)
    throw new Error("There is no picture here yet: wait for the answer, then save again.");
  return found;
}

async function toImage(picture) {
  if (picture instanceof HTMLCanvasElement) {
    const { width, height } = picture.getBoundingClientRect();
    return { source: picture, width, height, isSmooth: false };
  }
  const copy = toSVG(picture);
  const [width, height] = ["width", "height"].map((name) => Number(copy.getAttribute(name)));
  const url = URL.createObjectURL(
    new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }),
  );
  const image = new Image();
  image.src = url;
  await image.decode();
  URL.revokeObjectURL(url);
  return { source: image, width, height, isSmooth: true };
}

function toSVG(picture) {
  if (picture instanceof SVGElement) return copyStyled(picture);
  if (picture instanceof HTMLCanvasElement) return canvasAsSVG(picture);
  return picture.matches(BOXES) ? boxAsSVG(picture, copyStyled) : gridAsSVG(picture);
}

// A copy of an SVG that looks the same without the style sheet of the page.
function copyStyled(picture) {
  const copy = picture.cloneNode(true);
  const { width, height } = picture.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const [from, to] = [
    [picture, ...picture.querySelectorAll("*")],
    [copy, ...copy.querySelectorAll("*")],
  ];
  from.forEach((each, i) => {
    const style = getComputedStyle(each);
    for (const name of COPIED_STYLES) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  return copy;
}

// The maps of a grid, each at its place, with their names and the name of the grid.
function gridAsSVG(grid) {
  const corner = grid.getBoundingClientRect();
  const placeOf = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return { x: left - corner.left, y: top - corner.top + TITLE, width, height };
  };
  const { color, fontFamily } = getComputedStyle(grid);
  const write = (text, x, y, more) =>
    svg("text", { x, y, fill: color, "font-family": fontFamily, "font-size": 12.5, ...more }, text);
  const maps = [...grid.querySelectorAll("canvas")];
  const names = [...grid.querySelectorAll(GRID_NAMES)].filter(({ textContent }) => textContent);
  const ends = [...maps, ...names].map(placeOf);
  const width = Math.ceil(Math.max(...ends.map((each) => each.x + each.width)));
  const height = Math.ceil(Math.max(...ends.map((each) => each.y + each.height)));
  return svg(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    write(grid.getAttribute("aria-label"), 0, 13, { "font-weight": 650 }),
    maps.map((map) =>
      svg("image", {
        href: map.toDataURL("image/png"),
        ...placeOf(map),
        preserveAspectRatio: "none",
        "image-rendering": "pixelated",
      }),
    ),
    names.map((name) => {
      const { x, y, width: wide, height: tall } = placeOf(name);
      return write(name.textContent, x + wide / 2, y + tall / 2, {
        "text-anchor": "middle",
        "dominant-baseline": "middle",
      });
    }),
  );
}

// A matrix draws itself as SVG; the picture of any other canvas is put into one.
function canvasAsSVG(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const own = canvas.matrix?.toSVG();
  if (own) return own;
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}` },
    svg("image", {
      href: canvas.toDataURL("image/png"),
      width,
      height,
      "image-rendering": "pixelated",
    }),
  );
}
