// Segments sorted into one lane for each GPU, in flat arrays that hold a hundred thousand quickly.

export class Lanes {
  constructor(timeline, now) {
    const {closed, open, names, sources} = timeline;
    const count = closed.gpu.length + open.gpu.length;
    let lanes = 0;
    for (const gpu of closed.gpu) if (gpu >= lanes) lanes = gpu + 1;
    for (const gpu of open.gpu) if (gpu >= lanes) lanes = gpu + 1;
    this.names = names;
    this.sources = sources;
    this.count = count;
    this.first = new Int32Array(lanes + 1);
    this.app = new Int32Array(count);
    this.source = new Uint8Array(count);
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.begin = Infinity;
    this.last = -Infinity;
    this.openFrom = closed.gpu.length;
    for (const columns of [closed, open]) for (const gpu of columns.gpu) this.first[gpu + 1] += 1;
    for (let lane = 0; lane < lanes; lane += 1) this.first[lane + 1] += this.first[lane];
    const next = this.first.slice();
    this.#place(closed, next, null);
    this.#place(open, next, now);
    this.#sort();
  }

  #place(columns, next, now) {
    for (let index = 0; index < columns.gpu.length; index += 1) {
      const at = next[columns.gpu[index]]++;
      this.app[at] = columns.app[index];
      this.source[at] = columns.source[index];
      this.start[at] = columns.start[index];
      this.end[at] = now === null ? columns.end[index] : Math.max(now, columns.start[index]);
      if (this.start[at] < this.begin) this.begin = this.start[at];
      if (this.end[at] > this.last) this.last = this.end[at];
    }
  }

  // They nearly always come in order for each GPU: only lanes that are not in order are sorted.
  #sort() {
    for (let lane = 0; lane + 1 < this.first.length; lane += 1) {
      const [from, to] = [this.first[lane], this.first[lane + 1]];
      let sorted = true;
      for (let index = from + 1; index < to && sorted; index += 1) {
        sorted = this.start[index - 1] <= this.start[index];
      }
      if (sorted) continue;
      const order = Array.from({length: to - from}, (_, index) => from + index)
        .sort((one, two) => this.start[one] - this.start[two]);
      for (const column of [this.app, this.source, this.start, this.end]) {
        const copy = order.map((index) => column[index]);
        copy.forEach((value, index) => { column[from + index] = value; });
      }
    }
  }

  range(gpu) {
    return gpu + 1 < this.first.length ? [this.first[gpu], this.first[gpu + 1]] : [0, 0];
  }

  // The first segment of a GPU that ends after a time.
  after(gpu, time) {
    let [low, high] = this.range(gpu);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  at(gpu, time) {
    const index = this.after(gpu, time);
    return index < this.range(gpu)[1] && this.start[index] <= time ? index : -1;
  }

  // GPU seconds of each app, by its place in the names.
  seconds() {
    const seconds = new Float64Array(this.names.length);
    for (let index = 0; index < this.count; index += 1) {
      seconds[this.app[index]] += this.end[index] - this.start[index];
    }
    return seconds;
  }

  // The share of its time that a GPU was held.
  busy(gpu, begin, end) {
    const [from, to] = this.range(gpu);
    let seconds = 0;
    for (let index = from; index < to; index += 1) seconds += this.end[index] - this.start[index];
    return end > begin ? seconds / (end - begin) : 0;
  }

  // How many GPUs were held, in steps of the same length.
  usage(begin, end, steps) {
    const width = (end - begin) / steps;
    const change = new Float64Array(steps + 2);
    if (!(width > 0)) return change.subarray(0, steps);
    // Each segment adds its slope: a difference array of shares at both of its ends.
    const held = new Float64Array(steps);
    for (let index = 0; index < this.count; index += 1) {
      const from = Math.max(0, (this.start[index] - begin) / width);
      const to = Math.min(steps, (this.end[index] - begin) / width);
      if (to <= from) continue;
      const [one, two] = [Math.floor(from), Math.min(steps - 1, Math.floor(to))];
      if (one === two) {
        held[one] += to - from;
        continue;
      }
      held[one] += one + 1 - from;
      held[two] += to - two;
      change[one + 1] += 1;
      change[two] -= 1;
    }
    let full = 0;
    for (let step = 0; step < steps; step += 1) {
      full += change[step];
      held[step] += full;
    }
    return held;
  }
}
