// Questions to the server. In a saved page the answers are in the page itself.
import { decodeAnswer } from "./array.js";

export class StudioError extends Error {
  constructor(message, status = 0, restarting = false) {
    super(message);
    this.name = "StudioError";
    this.status = status;
    this.restarting = restarting;
  }
}

// The answers of a saved page by their keys; null while there is a server.
export const savedAnswers = readSaved();
// The bytes of the answers received so far, by their keys: what “save page” writes.
export const pastAnswers = new Map();
const MOST_KEPT = 64 * 2 ** 20; // bytes of past answers; the oldest are dropped first

// Whether this page can answer a question for more than one input: always, unless it was saved with a single answer
// to the question. Then the inputs that would need another answer are left out.
export function hasChoices(question) {
  return (
    savedAnswers === null ||
    [...savedAnswers.keys()].filter((key) => key.startsWith(`${question} `)).length > 1
  );
}

function readSaved() {
  const holder = document.getElementById("answers");
  if (holder === null) return null;
  const entries = Object.entries(JSON.parse(holder.textContent));
  return new Map(entries.map(([key, text]) => [key, decodeBase64(text)]));
}

function decodeBase64(text) {
  const binary = atob(text);
  return Uint8Array.from(binary, (letter) => letter.charCodeAt(0)).buffer;
}

// The key of an answer: the question, and its arguments in alphabetical order, without nulls.
function answerKey(question, args) {
  const names = Object.keys(args)
    .filter((name) => args[name] !== null && args[name] !== undefined)
    .sort();
  return `${question} ${JSON.stringify(names.map((name) => [name, args[name]]))}`;
}

// The answer with this key, or one that a saved page holds for the question with any arguments.
function findSaved(question, args) {
  const buffer = savedAnswers.get(answerKey(question, args)) ?? savedAnswers.get(question);
  if (buffer === undefined)
    throw new StudioError(
      "This page was saved without its server: it shows only what was open before it was saved.",
    );
  return decodeAnswer(buffer);
}

function keepAnswer(key, buffer) {
  pastAnswers.delete(key);
  pastAnswers.set(key, buffer);
  let size = 0;
  for (const each of pastAnswers.values()) size += each.byteLength;
  for (const old of [...pastAnswers.keys()]) {
    if (size <= MOST_KEPT) return;
    size -= pastAnswers.get(old).byteLength;
    pastAnswers.delete(old);
  }
}

const RETRIES = 40;
const WAIT = 500; // milliseconds between two tries while the model process starts again
const TOO_LONG = 30_000; // milliseconds; a question that took longer has probably ended the process itself

// The answer to a question. While the model process restarts or the studio is busy, it is asked again.
export async function ask(question, args = {}, { signal } = {}) {
  if (savedAnswers !== null) return findSaved(question, args);
  for (let tries = 0; ; tries += 1) {
    const began = performance.now();
    try {
      const response = await postQuestion(`/api/ask/${question}`, args, signal);
      const buffer = await response.arrayBuffer();
      keepAnswer(answerKey(question, args), buffer);
      return decodeAnswer(buffer);
    } catch (error) {
      if (!isTemporary(error) || tries >= RETRIES || performance.now() - began > TOO_LONG)
        throw error;
      showStatus(
        error.restarting ? error.message : "The studio is busy; this page waits for its turn.",
      );
      await pause(WAIT, signal);
    } finally {
      if (tries > 0) showStatus("");
    }
  }
}

const SLOW = 500; // milliseconds after which the page asks why no answer begins

// Post a question. If its answer is late because the model process starts, say so until it comes.
async function postQuestion(path, args, signal) {
  let [isWaiting, isTold] = [true, false];
  const explain = async () => {
    const { state, starts } = await send("GET", "/api/status", undefined, { signal });
    if (!isWaiting || state !== "starting") return;
    const verb = starts > 1 ? "has ended and is being started again" : "is starting";
    showStatus(`The model process ${verb}; the answer comes when it is ready.`);
    isTold = true;
  };
  const timer = setTimeout(() => explain().catch(() => {}), SLOW); // the question itself reports what is wrong
  try {
    return await post(path, args, signal);
  } finally {
    clearTimeout(timer);
    isWaiting = false;
    if (isTold) showStatus("");
  }
}

const isTemporary = (error) =>
  error instanceof StudioError && (error.restarting || error.status === 429);

// The answers of a stream, one after the other.
export async function* stream(question, args = {}, { signal } = {}) {
  if (savedAnswers !== null)
    throw new StudioError(
      "This page was saved without its server, so nothing new can be computed.",
    );
  const response = await postQuestion(`/api/stream/${question}`, args, signal);
  const reader = response.body.getReader();
  let waiting = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done)
      throw new StudioError(
        "The connection to the studio was lost before the answer was complete. Try again.",
      );
    waiting = joinBytes(waiting, value);
    while (waiting.length >= 4) {
      const length = new DataView(waiting.buffer, waiting.byteOffset).getUint32(0, true);
      if (length === 0) return;
      if (waiting.length < 4 + length) break;
      const answer = decodeAnswer(waiting.slice(4, 4 + length).buffer);
      if (answer.error !== undefined && answer.status !== undefined)
        throw new StudioError(answer.error, answer.status);
      yield answer;
      waiting = waiting.subarray(4 + length);
    }
  }
}

// Any other route: send("POST", "/api/check", {code}) → JSON.
export async function send(method, path, body, { signal } = {}) {
  const response =
    method === "GET" ? await fetchRoute(path, { signal }) : await post(path, body ?? {}, signal);
  return response.json();
}

function post(path, body, signal) {
  return fetchRoute(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Clearhead": "studio" },
    body: JSON.stringify(body),
    signal,
  });
}

async function fetchRoute(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new StudioError("The studio does not answer. Is it still running in the terminal?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const words = typeof body.error === "string" ? body.error : body.error?.message;
  throw new StudioError(
    words ?? `The studio answered ${response.status}.`,
    response.status,
    body.restarting === true,
  );
}

function joinBytes(first, second) {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    });
  });
}

// Show a line at the bottom of the page; an empty text removes it.
export function showStatus(words) {
  const node = document.getElementById("status");
  if (node !== null) node.textContent = words;
}

// Of several questions only the newest counts; it cancels the one before. const run = latest();
//   const answer = await run((signal) => ask("attend", args, { signal }));   undefined if it was cancelled
export function latest() {
  let controller = null;
  const run = async (action) => {
    controller?.abort();
    const own = new AbortController();
    controller = own;
    try {
      const answer = await action(own.signal);
      return own === controller ? answer : undefined;
    } catch (error) {
      if (own !== controller || error.name === "AbortError") return undefined;
      throw error;
    }
  };
  run.stop = () => controller?.abort();
  return run;
}
