// The Python of the open head and of the chosen cell. Its first lines come with the answer to "attend" and compute
// the weights of all heads.

// The matrix of the open head, (T, S).
export function writeHeadPython(answer, { layer, head }) {
  const { name } = answer.layers[layer];
  return [
    answer.python,
    `head = weights[${JSON.stringify(name)}].flatten(0, -3)[${head}]  # (T, S)`,
  ].join("\n");
}

// The steps from a query and a key to what the query takes from this key.
export function writeCellPython(answer, shown) {
  const { row, column } = shown;
  const { name, q, bias } = answer.layers[shown.layer];
  const call = `calls[${JSON.stringify(name)}]`;
  const parts = (names) => names.map((each) => `${call}.${each}`).join(", ");
  const ofHead = `.flatten(0, -3)[${shown.head}]`;
  const lines =
    q === null
      ? [`v = ${call}.v${ofHead}  # (S, Dv)`]
      : [
          `q, k, v = (x${ofHead} for x in (${parts(["q", "k", "v"])}))  # (T, Dh), (S, Dh), (S, Dv)`,
          `products = q[${row}] * k[${column}]`,
          ...(bias === null
            ? []
            : [
                `bias = ${call}.bias.expand_as(weights[${JSON.stringify(name)}])${ofHead}[${row}, ${column}]`,
              ]),
          `score = ${bias === null ? "products.sum()" : "(products.sum() + bias)"} / len(products) ** 0.5`,
        ];
  return [
    writeHeadPython(answer, shown),
    ...lines,
    `weight = head[${row}, ${column}]  # of the softmax over the row`,
    `contribution = weight * v[${column}]  # to the output at position ${row}`,
  ].join("\n");
}
