// Numbers with units, times in words, and names made harmless.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
export const NOTHING = "\u2013";

// Names are untrusted: no control characters, no reversed or invisible text, never very long.
// eslint-disable-next-line no-control-regex
const TRICKS = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffc]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export function safe(text, most = 120) {
  const clean = String(text ?? "").slice(0, 4 * most).replace(TRICKS, "\ufffd");
  return clean.length > most ? clean.slice(0, most - 1) + "\u2026" : clean;
}

export function number(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const [whole, part] = Math.abs(value).toFixed(digits).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return (value < 0 ? "\u2212" : "") + grouped + (part ? "." + part : "");
}

// For metrics, which may have any magnitude.
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
  return number(value, Number.isInteger(value) || size >= 1000 ? 0 : size >= 10 ? 2 : 4);
}

export function percent(share, digits = 0) {
  if (share > 0 && share < 0.005 && digits === 0) return "<1\u202f%";
  return share === null || share === undefined || !Number.isFinite(share)
    ? NOTHING : number(100 * share, digits) + "\u202f%";
}

export function rho(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  return value >= 100 ? number(value) : number(value, 2);
}

// The meaning of a rho in words.
export function lateness(value, fair = 1.05) {
  if (value === null || value === undefined) return "not known yet";
  if (value > fair) return `${percent(value - 1)} later than a fair share`;
  if (value < 0.95) return `${percent(1 - value)} sooner than a fair share`;
  return "as with a fair share";
}

export function plural(count, word, many = word + "s") {
  return `${number(count)} ${count === 1 ? word : many}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  if (seconds < 0) return "\u2212" + duration(-seconds);
  if (seconds > 0 && seconds < 0.1) return `${number(Math.max(1, 1000 * seconds))} ms`;
  if (seconds < 10) return `${number(seconds, seconds ? 1 : 0)} s`;
  if (seconds < MINUTE) return `${number(seconds)} s`;
  if (seconds < 10 * MINUTE) return two(seconds, MINUTE, "min", 1, "s");
  if (seconds < HOUR) return `${number(seconds / MINUTE)} min`;
  if (seconds < 2 * DAY) return two(seconds, HOUR, "h", MINUTE, "min");
  if (seconds < 60 * DAY) return two(seconds, DAY, "d", HOUR, "h");
  return `${number(seconds / DAY)} d`;
}

function two(seconds, large, largeName, small, smallName) {
  const units = Math.round(seconds / small);
  const per = large / small;
  const rest = units % per;
  return `${number(Math.floor(units / per))} ${largeName}` + (rest ? ` ${rest} ${smallName}` : "");
}

export function gpuTime(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  const hours = seconds / HOUR;
  if (seconds < MINUTE) return `${number(seconds)} GPU s`;
  return hours < 1 ? `${number(seconds / MINUTE, 1)} GPU min` : `${number(hours, hours < 100 ? 1 : 0)} GPU h`;
}

// Words for a distance in time: positive is in the future.
export function ago(seconds) {
  const size = Math.abs(seconds);
  if (size < 2) return "just now";
  const [amount, word] = size < 90 ? [size, "second"]
    : size < 90 * MINUTE ? [size / MINUTE, "minute"]
    : size < 36 * HOUR ? [size / HOUR, "hour"] : [size / DAY, "day"];
  const told = plural(Math.round(amount), word);
  return seconds > 0 ? `in ${told}` : `${told} ago`;
}

// The clock of the page: the time of day for a live service, else the time since the run began.
export class Clock {
  constructor(board) {
    this.begin = board.begin;
    this.now = board.now;
    this.wall = board.wall;
    this.taken = performance.now();
  }

  // The cluster's time, going on between two messages.
  time() {
    return this.wall === null ? this.now : this.now + (performance.now() - this.taken) / 1000;
  }

  // A time from which on ticks of an axis are counted, so that they are round.
  get origin() {
    if (this.wall === null) return this.begin;
    const local = this.wall - 60 * new Date(1000 * this.wall).getTimezoneOffset();
    return this.now - local;
  }

  words(at) {
    if (at === null || at === undefined) return NOTHING;
    return this.wall === null ? `after ${duration(at - this.begin)}` : ago(at - this.time());
  }

  date(at) {
    return this.wall === null ? null : new Date(1000 * (this.wall + at - this.now));
  }

  exact(at) {
    const date = this.date(at);
    if (date === null) return `${duration(at - this.begin)} after the beginning`;
    return date.toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "medium"});
  }

  // For an axis of this span.
  tick(at, span) {
    const date = this.date(at);
    if (date === null) return duration(Math.round(at - this.begin));
    if (span > 2 * DAY) return date.toLocaleDateString("en-GB", {day: "numeric", month: "short"});
    const options = {hour: "2-digit", minute: "2-digit", ...(span < 600 ? {second: "2-digit"} : {})};
    return date.toLocaleTimeString("en-GB", options);
  }
}

const LEVELS = ["in one slot", "on one machine", "in one rack", "anywhere"];

// A row of a bid in words; machines by number, as bids name them.
export function chunks(list, machines = new Map()) {
  const told = new Map();
  for (const chunk of list) {
    const where = chunk.machine === null || chunk.machine === undefined
      ? LEVELS[chunk.level] ?? "anywhere" : `on ${machines.get(chunk.machine) ?? `machine ${chunk.machine}`}`;
    const alone = chunk.count === 1 && (chunk.machine ?? null) === null;
    const key = alone ? "1 GPU" : `${plural(chunk.count, "GPU")} ${where}`;
    told.set(key, (told.get(key) ?? 0) + 1);
  }
  return [...told].map(([what, times]) => (times > 1 ? `${times} \u00d7 ${what}` : what)).join(" + ");
}
