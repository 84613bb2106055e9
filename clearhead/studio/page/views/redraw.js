// Replace what a node holds; the focus stays at the same place among its buttons.
import { clear } from "../dom.js";

export function redraw(node, ...children) {
  const listButtons = () => [...node.querySelectorAll("button")];
  const place = listButtons().indexOf(document.activeElement);
  clear(node, ...children);
  if (place >= 0) listButtons()[place]?.focus({ preventScroll: true });
}
