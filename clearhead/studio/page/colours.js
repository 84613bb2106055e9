// Colours that colour-blind people can tell apart, for light and dark screens.

const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");

// From paper to ink, in steps of equal visible difference.
const WEIGHT_LIGHT = [
  [255, 255, 255],
  [222, 235, 247],
  [158, 202, 225],
  [66, 146, 198],
  [8, 81, 156],
  [8, 38, 84],
];
const WEIGHT_DARK = [
  [24, 28, 34],
  [24, 52, 84],
  [27, 86, 140],
  [58, 134, 196],
  [132, 190, 236],
  [225, 241, 255],
];
const LOW_LIGHT = [
  [255, 255, 255],
  [253, 219, 178],
  [245, 166, 90],
  [213, 94, 0],
  [128, 52, 0],
];
const LOW_DARK = [
  [24, 28, 34],
  [84, 50, 22],
  [150, 78, 20],
  [226, 122, 36],
  [255, 205, 150],
];

export const isDark = () => darkScheme.matches;

export function weightColour(share) {
  if (Number.isNaN(share)) return [200, 0, 120];
  return mixColour(isDark() ? WEIGHT_DARK : WEIGHT_LIGHT, share);
}

// From −1, orange, over 0, the colour of the paper, to 1, blue.
export function signedColour(x) {
  if (Number.isNaN(x)) return [200, 0, 120];
  if (x >= 0) return weightColour(x);
  return mixColour(isDark() ? LOW_DARK : LOW_LIGHT, -x);
}

function mixColour(scale, share) {
  const place = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const i = Math.min(Math.floor(place), scale.length - 2);
  const part = place - i;
  return scale[i].map((low, channel) => Math.round(low + part * (scale[i + 1][channel] - low)));
}

export const cssColour = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;

// Black or white, whichever is easier to read on this colour.
export function inkOn([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151c" : "#ffffff";
}

// Lines of a chart, each with its own dashes; style.css has their colours for light and dark screens.
export const LINES = ["", "6 3", "2 3", "8 3 2 3", "", "6 3"].map((dashes, i) => ({
  colour: `var(--chart-${i + 1})`,
  dashes,
}));

export function onColourScheme(listener) {
  darkScheme.addEventListener("change", listener);
  return () => darkScheme.removeEventListener("change", listener);
}
