// Loads what pages show, from a live service or finished runs, and follows its changes.

const GAP = 200; // milliseconds until a timeline that lacks something is asked for anew

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
    throw new Problem(0, "the service does not answer");
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

// The data of all pages: a live service, or one of the opened runs.
export class Source {
  #listeners = new Set();
  #stream = null;
  #retry = null;
  #since = null; // the cursor that the stream was opened with
  #loading = null;
  #late = null; // what came while the timeline was on its way

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
    if (this.timeline === null) await this.#reload();
    return this.timeline;
  }

  // The whole timeline, loaded once for all pages. Changes that come meanwhile are added after it.
  #reload() {
    this.#loading ??= this.#fetch().finally(() => { this.#loading = null; });
    return this.#loading;
  }

  async #fetch() {
    const late = [];
    this.#late = late;
    try {
      this.timeline = await ask("/v1/board/timeline", this.#params);
    } finally {
      this.#late = null;
    }
    for (const more of late) this.#lengthen(more);
  }

  #lengthen(more) {
    if (this.#late !== null) {
      this.#late.push(more);
      return;
    }
    if (this.timeline === null) return;
    // A smaller cursor than this page sent: the service has restarted.
    const other = this.#since !== null && more.cursor < this.#since;
    const longer = other ? null : merged(this.timeline, more);
    if (longer !== null) {
      this.timeline = longer;
      return;
    }
    this.#since = null;
    setTimeout(() => this.#fill(more), GAP);
  }

  // Segments are missing before this change: load all again. If that fails, the next change tries.
  async #fill(more) {
    try {
      await this.#reload();
    } catch {
      return;
    }
    this.#lengthen(more);
    this.#tell("change");
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

  // Whether it shows the present, and not a finished run.
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
    this.#since = this.timeline?.cursor ?? null;
    const since = this.#since === null ? "" : `?since=${this.#since}`;
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

  // After a break all data is loaded again, as changes may have been missed.
  async #again() {
    try {
      const board = await ask("/v1/board", this.#params);
      if (this.timeline !== null) await this.#reload();
      this.board = board;
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
    if (change.timeline) this.#lengthen(change.timeline);
    this.#tell("change");
  }

  // A hidden page closes its stream: browsers allow only a few.
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

// The timeline with a change added, each segment once; null if segments between them are missing.
// Names get the indices of this timeline.
export function merged(old, more) {
  if (more.cursor < old.cursor) return old; // it was under way for longer, and all of it is known
  const known = old.cursor - (more.cursor - more.closed.gpu.length);
  if (known < 0) return null;
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
  for (const key of Object.keys(old.closed)) joined[key] = old.closed[key].concat(closed[key].slice(known));
  return {...old, names, closed: joined, open: moved(more.open), cursor: more.cursor};
}
