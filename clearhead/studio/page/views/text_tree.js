// The continuations of a prompt as a tree: a node is a token after those above it.

export class TextNode {
  constructor(parent, { id, name, logProb = null }) {
    Object.assign(this, { parent, id, name, logProb, children: [], isVisited: false });
    this.depth = parent === null ? 0 : parent.depth + 1;
  }

  get prob() {
    return this.logProb === null ? null : Math.exp(this.logProb);
  }

  // The log probability of all tokens from the prompt to this one together.
  get jointLogProb() {
    return this.parent === null ? 0 : this.parent.jointLogProb + this.logProb;
  }

  // The nodes from the first token after the prompt to this one.
  get path() {
    return this.parent === null ? [] : [...this.parent.path, this];
  }

  // A name that no other node of the tree has.
  get key() {
    return this.path.map(({ id }) => id).join("-") || "prompt";
  }
}

export class TextTree {
  // tokens, names: of the prompt.
  constructor(tokens, names) {
    Object.assign(this, { tokens, names });
    this.root = new TextNode(null, { id: null, name: names.join("") });
    this.root.isVisited = true;
    this.current = this.root;
  }

  // All token ids from the beginning of the prompt to the current node.
  get text() {
    return [...this.tokens, ...this.current.path.map(({ id }) => id)];
  }

  // The child with this id, created if there is none. Children are sorted, the likeliest first.
  add(parent, values) {
    let child = parent.children.find(({ id }) => id === values.id);
    if (child === undefined) {
      child = new TextNode(parent, values);
      parent.children.push(child);
    } else if (values.logProb !== undefined)
      Object.assign(child, { name: values.name, logProb: values.logProb });
    parent.children.sort((a, b) => (b.logProb ?? 0) - (a.logProb ?? 0));
    return child;
  }

  take(values) {
    this.goTo(this.add(this.current, values));
  }

  goTo(node) {
    this.current = node;
    for (const each of node.path) each.isVisited = true;
  }

  // Go along these ids from the prompt; names and probabilities come with the next answer.
  walk(ids) {
    this.current = this.root;
    for (const id of ids) this.take({ id, name: `#${id}` });
  }

  // Set the names and log probabilities of the current path. Both lists are of all tokens of the text.
  describe(names, logProbs) {
    this.current.path.forEach((node, i) => {
      const place = this.tokens.length + i;
      this.add(node.parent, { id: node.id, name: names[place], logProb: logProbs.at(place) });
    });
  }

  // Remove all nodes that are not on the path to the current one.
  prune() {
    let child = null;
    for (let node = this.current; node !== null; node = node.parent) {
      node.children = child === null ? [] : [child];
      child = node;
    }
  }

  get nodes() {
    const found = [];
    const visit = (node) => {
      found.push(node);
      node.children.forEach(visit);
    };
    visit(this.root);
    return found;
  }
}
