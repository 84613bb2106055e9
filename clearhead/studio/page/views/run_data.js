// The data of the chosen runs: read once, and followed live while they are being trained.
import { send } from "../api.js";

const MOST_STREAMS = 3; // a browser keeps six connections to one server; the others are for questions
const NOTHING_READ = {
  metrics: [],
  samples: [],
  config: {},
  step: null,
  isRead: false,
  error: null,
};

export class RunData {
  // onChange(): something is new. onEnd(): a run has ended.
  constructor(onChange, onEnd) {
    Object.assign(this, { onChange, onEnd });
    this.known = new Map();
    this.streams = new Map();
  }

  get(id) {
    return this.known.get(id) ?? NOTHING_READ;
  }

  // facts: the chosen runs, as the server lists them. Follow those in training, and read the others if new.
  update(facts) {
    const ids = facts.map(({ id }) => id);
    for (const id of [...this.streams.keys()]) if (!ids.includes(id)) this.unfollow(id);
    for (const run of facts) {
      if (run.state === "running" && !this.streams.has(run.id) && this.streams.size < MOST_STREAMS)
        this.follow(run.id);
      else if (!this.streams.has(run.id) && this.get(run.id).step !== run.step) this.read(run);
    }
  }

  async read({ id, step }) {
    const old = this.get(id);
    this.known.set(id, { ...old, step }); // so that it is not requested twice
    try {
      const run = await send("GET", `/api/runs/${encodeURIComponent(id)}`);
      if (!this.streams.has(id)) this.known.set(id, { ...run, step, isRead: true, error: null });
    } catch (error) {
      this.known.set(id, { ...old, step, error: error.message });
    }
    this.onChange();
  }

  follow(id) {
    const events = new EventSource(`/api/runs/${encodeURIComponent(id)}/events`);
    this.streams.set(id, events);
    const run = { ...this.get(id), metrics: [], samples: [], isRead: true, error: null };
    this.known.set(id, run);
    for (const name of ["metrics", "samples"]) {
      events.addEventListener(name, (event) => {
        const { start, items } = JSON.parse(event.data);
        run[name].splice(start, Infinity, ...items);
        this.onChange();
      });
    }
    const end = (event) => {
      run.step = JSON.parse(event.data).step ?? null;
      this.unfollow(id);
      this.onEnd();
    };
    events.addEventListener("end", end);
    events.addEventListener("closed", end);
  }

  unfollow(id) {
    this.streams.get(id)?.close();
    this.streams.delete(id);
  }

  // Forget runs that no longer exist: a new run may get the same name later.
  forget(ids) {
    for (const id of ids) {
      this.unfollow(id);
      this.known.delete(id);
    }
  }

  leave() {
    for (const id of [...this.streams.keys()]) this.unfollow(id);
  }
}
