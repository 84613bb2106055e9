// The validation pictures of a run as a strip, the mistakes among them, and pictures from files.
import { ask, latest, stream } from "../api.js";
import { clear, make } from "../dom.js";
import { number, whole } from "../format.js";
import { message, toggle } from "../panel.js";
import { pictureCanvas } from "./patch_picture.js";

const STRIP_LENGTH = 24;
const LONGEST_SENT = 512; // pixels; larger pictures are made smaller here
const MOST_SENT = 600_000; // bytes

export class PictureStrip {
  // onPick(number), onFile(base64): a picture was chosen; onError(error): the file is no picture; isMistakes:
  // show only pictures with wrong answers; onMode(isMistakes): this has changed.
  constructor(model, { onPick, onFile, onError, onMode, isMistakes }) {
    Object.assign(this, {
      model,
      onPick,
      onFile,
      onError,
      onMode,
      isMistakes,
      start: 0,
      mistakes: null,
      chosen: null,
    });
    this.run = latest();
    this.list = make("div", {
      class: "picture-strip",
      attributes: { role: "group", "aria-label": "pictures" },
    });
    this.where = make("span", { class: "muted" });
    this.back = make("button", {
      type: "button",
      class: "button",
      text: "‹",
      ariaLabel: "earlier pictures",
      on: { click: () => this.page(-1) },
    });
    this.next = make("button", {
      type: "button",
      class: "button",
      text: "›",
      ariaLabel: "later pictures",
      on: { click: () => this.page(1) },
    });
    this.mode = toggle("only mistakes", isMistakes, (value) => this.setMode(value));
    this.node = make(
      "div",
      { class: "stack" },
      make("div", { class: "row" }, this.back, this.where, this.next, this.mode, this.makeDrop()),
      this.list,
    );
  }

  // Show the strip that holds this picture; null: the first one.
  async open(number) {
    this.chosen = number;
    clear(this.list, make("p", { class: "note", text: "Reading the pictures …" }));
    this.start = number === null ? 0 : Math.floor(number / STRIP_LENGTH) * STRIP_LENGTH;
    if (this.isMistakes) this.start = 0;
    await this.load();
  }

  async load() {
    try {
      if (this.isMistakes && this.mistakes === null) await this.findMistakes();
      const numbers = this.isMistakes
        ? (this.mistakes ?? []).slice(this.start, this.start + STRIP_LENGTH)
        : null;
      const args = {
        model: this.model,
        ...(numbers === null ? { start: this.start, n: STRIP_LENGTH } : { numbers }),
      };
      const answer = await this.run((signal) => ask("list_pictures", args, { signal }));
      if (answer !== undefined) this.draw(answer);
    } catch (error) {
      message(this.list, error);
    }
  }

  async findMistakes() {
    const found = await this.run(async (signal) => {
      let last = null;
      for await (const answer of stream("find_mistakes", { model: this.model }, { signal })) {
        this.where.textContent = `${whole(answer.n_seen)} of ${whole(answer.n_pictures)} read`;
        last = answer;
      }
      return last;
    });
    if (found) this.mistakes = found.numbers;
  }

  setMode(value) {
    Object.assign(this, { isMistakes: value, start: 0 });
    this.onMode(value);
    this.load().then(() => this.pickFirst());
  }

  // Choose the first picture of the strip, unless the chosen one is in it.
  pickFirst() {
    const nodes = [...this.list.querySelectorAll("button")];
    if (nodes.length && !nodes.some((node) => Number(node.dataset.number) === this.chosen))
      this.pick(Number(nodes[0].dataset.number));
  }

  page(step) {
    this.start = Math.max(0, this.start + step * STRIP_LENGTH);
    this.load();
  }

  draw(answer) {
    const count = this.isMistakes ? this.mistakes.length : answer.n_pictures;
    if (count > 0 && this.start >= count) {
      // the address names a picture that does not exist
      this.start = 0;
      this.load();
      return;
    }
    const last = this.start + answer.numbers.length;
    this.where.textContent =
      count === 0
        ? "no mistakes"
        : `${whole(this.start + 1)} – ${whole(last)} of ${whole(count)}${this.isMistakes ? " mistakes" : ""}`;
    this.back.disabled = this.start === 0;
    this.next.disabled = last >= count;
    clear(
      this.list,
      answer.numbers.map((number, i) => this.drawOne(answer, number, i)),
    );
    this.mark(this.chosen);
  }

  drawOne(answer, picture, i) {
    const [right, given] = [answer.classes[answer.labels[i]], answer.classes[answer.answers[i]]];
    const isWrong = right !== given;
    return make(
      "button",
      {
        type: "button",
        class: isWrong ? "picture-choice wrong" : "picture-choice",
        dataset: { number: picture },
        title: `picture ${picture}: ${right}, ${isWrong ? `read as ${given}` : "read right"} with probability ${number(answer.probs.at(i))}`,
        ariaLabel: `picture ${picture}, ${right}${isWrong ? `, read as ${given}` : ""}`,
        on: { click: () => this.pick(picture) },
      },
      pictureCanvas(answer.images.part(i)),
      make("span", { text: isWrong ? `${right} → ${given}` : right }),
    );
  }

  pick(number) {
    this.mark(number);
    this.onPick(number);
  }

  // Outline a picture of the strip; null: none of them.
  mark(number) {
    this.chosen = number;
    for (const node of this.list.querySelectorAll("button"))
      node.setAttribute("aria-pressed", String(Number(node.dataset.number) === number));
  }

  makeDrop() {
    const input = make("input", {
      type: "file",
      class: "visually-hidden",
      ariaLabel: "a picture from this computer",
      attributes: { accept: "image/*" },
      on: { change: () => this.take(input.files[0], input) },
    });
    const zone = make("label", { class: "drop-zone" }, input, "choose a file, or drop one here");
    zone.addEventListener("dragover", (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      this.take(event.dataTransfer.files[0], input);
    });
    return zone;
  }

  async take(file, input) {
    if (!file) return;
    try {
      const base64 = await shrinkPicture(file);
      this.mark(null);
      this.onFile(base64);
    } catch (error) {
      this.onError(error);
    }
    input.value = "";
  }
}

// The file as a PNG in base64, small enough to be sent.
async function shrinkPicture(file) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(
      `${file.name} is not a picture that this browser can read; try a PNG or JPEG file.`,
    );
  }
  for (let side = LONGEST_SENT; ; side /= 2) {
    const factor = Math.min(1, side / Math.max(picture.width, picture.height));
    const size = [picture.width, picture.height].map((each) =>
      Math.max(1, Math.round(each * factor)),
    );
    const canvas = make("canvas", { width: size[0], height: size[1] });
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, 0, 0, ...size);
    const base64 = canvas.toDataURL("image/png").split(",")[1];
    if (base64.length <= MOST_SENT) return base64;
  }
}
