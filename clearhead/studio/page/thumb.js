// A small map of a matrix, and the colours of its cells.
import { isDark, signedColour, weightColour } from "./colours.js";

const colourMaps = new Map();

// Fill a canvas with a pixel for each cell; CSS scales it.
export function drawThumb(canvas, values, T, S, colour = "weight", scale = 1) {
  canvas.width = S;
  canvas.height = T;
  if (T === 0 || S === 0) return;
  const data = values.data ?? values;
  const image = new ImageData(S, T);
  const pixels = new Uint32Array(image.data.buffer);
  const toPixel = findColourMap(colour === "signed");
  for (let i = 0; i < data.length; i += 1) pixels[i] = toPixel(data[i] / scale);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The colour map of signed or other values, on a light or a dark screen; made once for all matrices.
function findColourMap(isSigned) {
  const key = `${isSigned} ${isDark()}`;
  if (!colourMaps.has(key))
    colourMaps.set(key, makeColourMap(isSigned ? signedColour : weightColour, isSigned));
  return colourMaps.get(key);
}

// A function from a value (−1 or 0 … 1) to the bytes of a pixel, by a table of 512 colours.
function makeColourMap(paint, isSigned) {
  const low = isSigned ? -1 : 0;
  const toPixel = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
  const entries = Uint32Array.from({ length: 512 }, (_, i) =>
    toPixel(paint(low + ((1 - low) * i) / 511)),
  );
  const wrong = toPixel(paint(NaN));
  return (x) =>
    Number.isNaN(x)
      ? wrong
      : entries[Math.min(511, Math.max(0, Math.round(((x - low) / (1 - low)) * 511)))];
}

// The largest absolute value, for the colours of signed values; never 0.
export function largest(values) {
  let most = 0;
  for (const x of values.data ?? values)
    if (Math.abs(x) > most && Number.isFinite(x)) most = Math.abs(x);
  return most || 1;
}
