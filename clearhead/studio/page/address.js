// The state of the page is kept after the # of its address, so that a link opens the same view.
//   #view=text&model=substring&text=abc%7Cc
// A saved page keeps its state in memory, and starts with the state that was saved.

const addressListeners = new Set();
const savedState = document.getElementById("start");
let lastAddress = location.hash;
let stateInMemory =
  savedState === null ? null : new URLSearchParams(JSON.parse(savedState.textContent));

const readAddress = () => new URLSearchParams(stateInMemory ?? location.hash.slice(1));

export const address = {
  get(name, fallback = null) {
    return readAddress().get(name) ?? fallback;
  },

  // A whole number, 0 or more; null if the value is missing or is no such number.
  getWhole(name) {
    const text = readAddress().get(name);
    return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;
  },

  // A whole number, moved into the range from least to most; the fallback if there is no number.
  getClamped(name, fallback, least, most) {
    const value = Number.parseInt(readAddress().get(name) ?? fallback, 10) || fallback;
    return Math.min(Math.max(value, least), most);
  },

  // A number from least to most; the fallback if the value is missing or outside.
  getWithin(name, fallback, least, most) {
    const value = Number(readAddress().get(name) ?? fallback);
    return value >= least && value <= most ? value : fallback;
  },

  // One of these words; the fallback for any other.
  getOneOf(name, words, fallback) {
    const value = readAddress().get(name);
    return words.includes(value) ? value : fallback;
  },

  // The value of a JSON text in the address; the fallback if it is missing or not JSON.
  getJSON(name, fallback = null) {
    try {
      return JSON.parse(readAddress().get(name)) ?? fallback;
    } catch {
      return fallback;
    }
  },

  // Set values; null removes one. push: add an entry to the history, for the back button.
  set(values, { push = false } = {}) {
    const state = readAddress();
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === undefined || value === "") state.delete(name);
      else state.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
    }
    if (stateInMemory !== null) {
      stateInMemory = state;
      return;
    }
    const next = `#${state}`;
    if (next === location.hash) return;
    if (push) history.pushState(null, "", next);
    else history.replaceState(null, "", next);
    lastAddress = location.hash;
  },

  // Remove all values but these.
  keep(...names) {
    const others = [...readAddress().keys()].filter((name) => !names.includes(name));
    address.set(Object.fromEntries(others.map((name) => [name, null])));
  },

  // All values, as [name, value] pairs.
  list() {
    return [...readAddress()];
  },

  // Call a listener when the user changes the address; returns a function that removes it.
  onChange(listener) {
    addressListeners.add(listener);
    return () => addressListeners.delete(listener);
  },
};

function callListeners() {
  if (location.hash === lastAddress) return;
  lastAddress = location.hash;
  for (const listener of [...addressListeners]) listener();
}

window.addEventListener("hashchange", callListeners);
window.addEventListener("popstate", callListeners);
