// What pages ask for, of a live service and of finished runs alike, and what changes meanwhile.

export class Problem extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export async function ask(path, params = {}) {
  const query = new URLSearchParams(params).toString();
  let answer;
  try {
    answer = await fetch(path + (query ? `?${query}` : ""), {credentials: "same-origin"});
  } catch {
    throw new Problem(0, "nobody answers");
  }
  let told = null;
  try {
    told = await answer.json();
  } catch {
    throw new Problem(answer.status, "the answer was cut off");
  }
  if (!answer.ok) throw new Problem(answer.status, told.reason ?? "refused");
  return told;
}

// One source of all pages: a live service, or one of the runs that were opened.
export class Source {
  #listeners = new Set();
  #stream = null;
  #retry = null;

  constructor(run = 0) {
    this.run = run;
    this.board = null;
    this.timeline = null;
    this.status = "still";
  }

  get #params() {
    return this.run ? {run: this.run} : {};
  }

  async load() {
    this.board = await ask("/v1/board", this.#params);
    this.runs = this.board.runs;
  }

  async lanes() {
    if (this.timeline === null) {
      this.timeline = await ask("/v1/board/timeline", this.#params);
    }
    return this.timeline;
  }

  app(name) {
    return ask(`/v1/board/apps/${encodeURIComponent(name)}`, this.#params);
  }

  rounds(before = null, limit = 50) {
    return ask("/v1/board/rounds", {...this.#params, limit, ...(before ? {before} : {})});
  }

  round(number) {
    return ask(`/v1/rounds/${number}`, this.#params);
  }

  comparison() {
    return ask("/v1/board/runs");
  }

  // Changes

  get live() {
    return this.board !== null && this.board.origin.kind === "live";
  }

  // Whether it shows how things are, and not how they went.
  get present() {
    return this.live || this.board?.origin.kind === "snapshot";
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(what) {
    for (const listener of this.#listeners) listener(what);
  }

  follow() {
    if (!this.live || this.#stream !== null) return;
    const since = this.timeline === null ? "" : `?since=${this.timeline.cursor}`;
    const stream = new EventSource(`/v1/board/stream${since}`);
    this.#stream = stream;
    stream.addEventListener("change", (event) => this.#change(JSON.parse(event.data)));
    stream.addEventListener("open", () => this.#state("live"));
    stream.addEventListener("error", () => {
      stream.close();
      if (this.#stream !== stream) return;
      this.#stream = null;
      this.#state("lost");
      this.#retry = setTimeout(() => this.#again(), 3000);
    });
  }

  // After a break everything is asked for anew: who knows what was missed.
  async #again() {
    try {
      const board = await ask("/v1/board", this.#params);
      const timeline = this.timeline === null ? null : await ask("/v1/board/timeline", this.#params);
      this.board = board;
      this.timeline = timeline;
      this.#tell("all");
      this.follow();
    } catch (problem) {
      if (problem.status === 401 || problem.status === 403) {
        this.#state("out");
        return;
      }
      this.#state("lost");
      this.#retry = setTimeout(() => this.#again(), 5000);
    }
  }

  #state(status) {
    if (this.status === status) return;
    this.status = status;
    this.#tell("status");
  }

  #change(change) {
    const board = {...this.board, now: change.now, wall: change.wall};
    board.gpus = change.gpus;
    if (change.rows.length || change.gone.length || change.others) {
      const named = new Map(board.apps.filter((row) => !row.sealed).map((row) => [row.app, row]));
      for (const name of change.gone) named.delete(name);
      for (const row of change.rows) named.set(row.app, row);
      board.apps = [...named.values(), ...(change.others ?? board.apps.filter((row) => row.sealed))];
    }
    if (change.machines) board.machines = change.machines;
    if (change.last_round !== null) board.last_round = change.last_round;
    this.board = board;
    if (change.timeline && this.timeline !== null) this.timeline = merged(this.timeline, change.timeline);
    this.#tell("change");
  }

  // A page that nobody looks at needs no stream: browsers have room for a few only.
  pause() {
    clearTimeout(this.#retry);
    this.#stream?.close();
    this.#stream = null;
  }

  resume() {
    if (this.live && this.#stream === null) this.#again();
  }

  close() {
    clearTimeout(this.#retry);
    this.#stream?.close();
    this.#stream = null;
    this.#listeners.clear();
  }
}

// What came since, behind what was there. Names get the places that they have here.
export function merged(old, more) {
  const names = [...old.names];
  const places = new Map(names.map((name, place) => [name, place]));
  const shift = more.names.map((name) => {
    if (!places.has(name)) {
      places.set(name, names.length);
      names.push(name);
    }
    return places.get(name);
  });
  const moved = (columns) => ({...columns, app: columns.app.map((place) => shift[place])});
  const closed = moved(more.closed);
  const joined = {};
  for (const key of Object.keys(old.closed)) joined[key] = old.closed[key].concat(closed[key]);
  return {...old, names, closed: joined, open: moved(more.open), cursor: more.cursor};
}
