// Arrays of numbers as the server sends them: weights.at(head, row, column).

const ARRAY_TYPES = {
  float32: Float32Array,
  float64: Float64Array,
  int32: Int32Array,
  uint8: Uint8Array,
};

export class NumberArray {
  constructor(shape, data) {
    this.shape = shape;
    this.data = data;
  }

  get length() {
    return this.shape[0];
  }

  at(...index) {
    let place = 0;
    this.shape.forEach((size, axis) => {
      place = place * size + index[axis];
    });
    return this.data[place];
  }

  // A part by its first indices, without a copy: of weights (H, T, S), weights.part(head) is (T, S).
  part(...index) {
    const rest = this.shape.slice(index.length);
    const size = rest.reduce((product, n) => product * n, 1);
    let place = 0;
    index.forEach((i, axis) => {
      place = place * this.shape[axis] + i;
    });
    return new NumberArray(rest, this.data.subarray(place * size, (place + 1) * size));
  }

  toList() {
    if (this.shape.length <= 1) return [...this.data];
    return Array.from({ length: this.length }, (_, i) => this.part(i).toList());
  }
}

// The index of the largest value; the first one if several are equal.
export function argmax(values) {
  let best = 0;
  values.forEach((value, i) => {
    if (value > values[best]) best = i;
  });
  return best;
}

// An answer from its bytes: the length of the JSON, the JSON, the numbers.
export function decodeAnswer(buffer, start = 0) {
  const length = new DataView(buffer).getUint32(start, true);
  const text = new TextDecoder().decode(new Uint8Array(buffer, start + 4, length));
  const numbers = start + 4 + length;
  return JSON.parse(text, (_, value) => {
    if (value === null || typeof value !== "object" || !("$array" in value)) return value;
    const kind = ARRAY_TYPES[value.dtype];
    const count = value.shape.reduce((product, n) => product * n, 1);
    const place = numbers + value.$array;
    const aligned = place % kind.BYTES_PER_ELEMENT === 0;
    const data = aligned
      ? new kind(buffer, place, count)
      : new kind(buffer.slice(place, place + count * kind.BYTES_PER_ELEMENT));
    return new NumberArray(value.shape, data);
  });
}
