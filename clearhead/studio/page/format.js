// How numbers and tokens are printed everywhere on the page.

// Four digits after the point, as PyTorch prints; very small and very large numbers as 1.2e-7.
export function number(x, digits = 4) {
  if (x === null || x === undefined) return "–";
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size !== 0 && (size < 0.5 * 10 ** -digits || size >= 1e7)) return minus(x.toExponential(1));
  return minus(x.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1"));
}

// As the second part of a difference: a − b, or a − (−b).
export const inBrackets = (x) => (x < 0 ? `(${number(x)})` : number(x));

const minus = (text) => text.replaceAll("-", "−");

export function percent(share, digits = 1) {
  return share === null || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(digits)} %`;
}

export const whole = (n) => n.toLocaleString("en-US");

// At most n characters; a longer text ends with ….
export const shortenText = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

// A token with visible white space: blanks as ·, line ends as ⏎, tabs as ⇥; ∅ if it has no text.
export function tokenName(text) {
  if (text === "") return "∅";
  return text.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}
