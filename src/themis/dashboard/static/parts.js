// Parts that several pages share.

import {el} from "./dom.js";
import {NOTHING, lateness, number, rho, safe} from "./format.js";

export const ANONYMOUS = "(another owner's)";

export function heading(text, ...more) {
  return el("div.heading", {}, el("h1", {tabindex: -1}, text), ...more);
}

export function card(title, ...content) {
  return el("section.card", {}, title === null ? null : el("h2", {}, title), ...content);
}

export function tile(label, value, detail = "", tone = "") {
  return el(`div.tile${tone && "." + tone}`, {}, el("dt", {}, label), el("dd", {}, value, detail ? el("span.detail", {}, detail) : null));
}

// An empty page: what that means, and what to do.
export function empty(title, text, command = null) {
  return el("div.empty", {}, el("p.title", {}, title), el("p", {}, text), command === null ? null : el("pre", {}, el("code", {}, command)));
}

export function swatch(palette, name) {
  return el(`i.swatch.${palette.look(name).swatch}`, {"aria-hidden": "true"});
}

export function appName(palette, row) {
  return [swatch(palette, row.app), el("bdi", {}, safe(row.app, 80))];
}

export function appHref(run, row) {
  return row.sealed || row.app === ANONYMOUS ? null : link(run, "apps", row.app);
}

export function link(run, ...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${run ? `?run=${run}` : ""}`;
}

const MARKS = {good: "\u2713", wait: "\u2026", held: "\u2016", bad: "!"};

// A state or reason as a mark and a word, so that no reader needs the colour.
export function chip(tone, text, title = null) {
  return el(`span.chip.${tone}`, {title}, el("span", {"aria-hidden": "true"}, MARKS[tone] ?? "\u2022"), text);
}

export function reasonChip(board, code) {
  if (code === null || code === undefined) return el("span.muted", {}, NOTHING);
  const words = board.reasons[code];
  return words === undefined ? chip("wait", safe(code, 40)) : chip(words.tone, words.label, words.what);
}

const STATES = {running: "good", finished: "good", waiting: "wait", suspended: "held", cancelled: "held", failed: "bad", present: "good", cordoned: "held", silent: "bad", leased: "good", free: "wait", fencing: "wait", quarantined: "bad", absent: "bad", stopped: "held", stopping: "wait", starting: "wait"};

export function stateChip(state) {
  return chip(STATES[state] ?? "wait", safe(state, 30));
}

export function rhoCell(value, fair) {
  if (value === null || value === undefined) return el("span.muted", {}, NOTHING);
  return el(`span.rho.${value > fair ? "late" : "fair"}`, {title: lateness(value, fair)}, rho(value), value > fair ? el("span.unseen", {}, " late") : null);
}

// GPUs that an app has and wants; it may have more than it wants until its leases end.
export function heldOf(row) {
  if (!row.demand) return number(row.held);
  return row.held > row.demand ? `${number(row.held)}, wants ${number(row.demand)}` : `${number(row.held)} of ${number(row.demand)}`;
}

export function timeCell(clock, at) {
  if (at === null || at === undefined) return el("span.muted", {}, NOTHING);
  const date = clock.date(at);
  return el("time", {title: clock.exact(at), datetime: date === null ? null : date.toISOString()}, clock.words(at));
}

// Elements that arrow keys move between; Tab reaches one of them.
export function roving(list, selector) {
  const items = () => [...list.querySelectorAll(selector)];
  items().forEach((item, place) => { item.tabIndex = place ? -1 : 0; });
  list.addEventListener("keydown", (event) => {
    const all = items();
    const place = all.indexOf(document.activeElement);
    const next = {ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: all.length - 1}[event.key];
    if (place < 0 || next === undefined) return;
    event.preventDefault();
    const item = all[Math.max(0, Math.min(all.length - 1, next))];
    all[place].tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  });
  return list;
}
