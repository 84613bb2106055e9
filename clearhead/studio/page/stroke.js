// The cells between two places of a mouse: while it moves fast, it is seen only at some of them.

// The cells on the straight line from one to the other, [row, column], without the first.
export function cellsBetween([row, column], [toRow, toColumn]) {
  const n = Math.max(Math.abs(toRow - row), Math.abs(toColumn - column));
  return Array.from({ length: n }, (_, i) => {
    const part = (i + 1) / n;
    return [Math.round(row + part * (toRow - row)), Math.round(column + part * (toColumn - column))];
  });
}
