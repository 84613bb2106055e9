// The cells that the mouse passes between two events: if it moves fast, the browser reports only a few of its places.

// The cells on the straight line from one to the other, [row, column], without the first.
export function cellsBetween([row, column], [toRow, toColumn]) {
  const n = Math.max(Math.abs(toRow - row), Math.abs(toColumn - column));
  return Array.from({ length: n }, (_, i) => {
    const part = (i + 1) / n;
    return [
      Math.round(row + part * (toRow - row)),
      Math.round(column + part * (toColumn - column)),
    ];
  });
}
