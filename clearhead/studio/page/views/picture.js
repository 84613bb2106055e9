// The picture view: what a VisionTransformer answers, which patches it uses, and what covering them changes.
import { address } from "../address.js";
import { ask, latest } from "../api.js";
import { clear, make } from "../dom.js";
import { message, panel } from "../panel.js";
import { pictureCanvas } from "./patch_picture.js";
import { PictureAnswer } from "./picture_answer.js";
import { PictureHeads } from "./picture_heads.js";
import { PICTURE_MAPS, PictureMaps } from "./picture_maps.js";
import { PictureStrip } from "./picture_strip.js";

export const pictureView = {
  name: "picture",
  title: "Picture",
  kinds: ["VisionTransformer"],
  about:
    "A vision transformer cuts a picture into patches and names what it shows. See which patches it uses, and cover some to see the answer change.",
  missing: "Train one with: clearhead train vit-digits",
  mount: (root, studio) => new PictureView(root, studio.model.id).close,
};

class PictureView {
  constructor(root, model) {
    Object.assign(this, { model, number: address.getWhole("number"), file: null }); // file: a picture in base64
    this.mapState = {
      map: address.getOneOf("map", Object.keys(PICTURE_MAPS), "mean"),
      key: address.getWhole("key"),
    };
    this.headState = {
      layer: address.getWhole("layer") ?? 0,
      head: address.getWhole("head") ?? 0,
      patch: address.getWhole("patch"),
      key: address.getWhole("cell"),
    };
    this.run = latest();
    this.build(root);
    this.close = () =>
      [this, this.strip, this.answerPart, this.maps, this.heads].forEach((part) => part.run.stop());
    this.start();
  }

  build(root) {
    const shared = { args: () => this.args(), onChange: () => this.keep() };
    this.wholeNotes = [0, 1].map(() =>
      make("p", {
        class: "note warm",
        hidden: true,
        text: "This panel still shows the whole picture: patches are covered only for the answer.",
      }),
    );
    this.strip = new PictureStrip(this.model, {
      isMistakes: address.get("mistakes") === "1",
      onMode: (value) => address.set({ mistakes: value ? "1" : null }),
      onPick: (number) => this.open({ number }),
      onFile: (file) => this.open({ file }),
      onError: (error) => message(this.error, error),
    });
    this.answerPart = new PictureAnswer([], shared);
    this.maps = new PictureMaps(this.mapState, shared);
    this.heads = new PictureHeads(this.headState, {
      ...shared,
      onLook: (patch) => this.look(patch),
    });
    [this.maps, this.heads].forEach(({ node }, i) =>
      node.querySelector(".panel-body").before(this.wholeNotes[i]),
    );
    this.error = make("div");
    this.results = make(
      "div",
      { class: "stack", hidden: true },
      make("div", { class: "columns" }, this.answerPart.node, this.maps.node),
      this.heads.node,
    );
    root.append(
      panel("Choose a picture", { saves: false }, this.strip.node),
      this.error,
      this.results,
    );
  }

  // The picture in the address, or the first one.
  async start() {
    const number = this.number;
    await this.strip.open(number);
    if (number !== null)
      this.open({ number, patch: this.headState.patch, covered: address.getJSON("covered", []) });
    else if (this.answer === undefined) this.strip.pickFirst();
  }

  // The arguments of a question that name the picture.
  args() {
    return {
      model: this.model,
      ...(this.file === null ? { number: this.number } : { file: this.file }),
    };
  }

  open({ number = null, file = null, patch = null, covered = [] }) {
    Object.assign(this, { number, file });
    return this.look(patch, Array.isArray(covered) ? covered : []);
  }

  // patch: the patch whose attention is shown, null for the class token; covered: the covered patches, if
  // another picture is opened.
  async look(patch, covered = null) {
    try {
      const answer = await this.run((signal) =>
        ask("look_at_picture", { ...this.args(), patch }, { signal }),
      );
      if (answer === undefined) return;
      const isNew = covered !== null;
      Object.assign(this, { answer, picture: pictureCanvas(answer.image) });
      this.headState.patch = patch;
      clear(this.error);
      this.results.hidden = false;
      this.heads.show(answer, this.picture);
      if (isNew) this.answerPart.show(answer, this.picture, covered);
      this.maps.show(answer, this.picture, {
        isNew,
        heads: patch === null ? (layer, head) => this.heads.weightsOf(layer, head) : null,
      });
      this.keep();
    } catch (error) {
      message(this.error, error);
    }
  }

  keep() {
    const { layer, head, patch, key } = this.headState;
    const covered = [...this.answerPart.covered];
    for (const note of this.wholeNotes) note.hidden = covered.length === 0;
    address.set({
      number: this.number,
      covered: covered.length ? covered : null,
      map: this.mapState.map === "mean" ? null : this.mapState.map,
      key: this.mapState.key,
      layer: layer || null,
      head: head || null,
      patch,
      cell: key,
    });
  }
}
