// Save the view as one HTML file that needs no server, with all answers received so far.
import { pastAnswers, showStatus } from "./api.js";
import { address } from "./address.js";
import { saveBlob } from "./save.js";

export async function savePage() {
  const response = await fetch("/whole.html");
  if (!response.ok) {
    showStatus(`The page could not be saved: the studio answered ${response.status}.`);
    return;
  }
  const answers = {};
  for (const [key, buffer] of pastAnswers) answers[key] = await encodeBase64(buffer);
  const page = (await response.text())
    .replace('id="answers">{}<', () => `id="answers">${asScript(answers)}<`)
    .replace('id="start">[]<', () => `id="start">${asScript(address.list())}<`);
  saveBlob(new Blob([page], { type: "text/html" }), `clearhead-${address.get("view")}.html`);
}

// JSON inside <script>: only "<" could end it early.
const asScript = (value) => JSON.stringify(value).replaceAll("<", "\\u003c");

async function encodeBase64(buffer) {
  const reader = new FileReader();
  const done = new Promise((resolve) => {
    reader.onload = resolve;
  });
  reader.readAsDataURL(new Blob([buffer]));
  await done;
  return reader.result.slice(reader.result.indexOf(",") + 1);
}
