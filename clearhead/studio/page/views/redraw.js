// Replace the content of a node. If one of its buttons has the focus, the button at the same place gets it.
import { clear } from "../dom.js";

export function redraw(node, ...children) {
  const listButtons = () => [...node.querySelectorAll("button")];
  const place = listButtons().indexOf(document.activeElement);
  clear(node, ...children);
  if (place >= 0) listButtons()[place]?.focus({ preventScroll: true });
}
