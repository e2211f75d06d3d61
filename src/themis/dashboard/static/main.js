// Which page is shown, of which run, and whether it is live.

import {Source, ask} from "./data.js";
import {announce, el, replace} from "./dom.js";
import {Clock, duration, safe} from "./format.js";
import {Palette} from "./palette.js";
import {ANONYMOUS, empty, heading} from "./parts.js";
import {app} from "./page-app.js";
import {apps} from "./page-apps.js";
import {auctions, round} from "./page-auctions.js";
import {compare} from "./page-compare.js";
import {nodes} from "./page-nodes.js";
import {overview} from "./page-overview.js";

const PAGES = {"": overview, overview, apps, auctions, nodes, compare};
const ONE = {apps: app, auctions: round};
const main = document.getElementById("main");
const origin = document.getElementById("origin");

let source = null;
let palette = null;
let shown = null;
let clock = null;
let turn = 0;

function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const run = Number(new URLSearchParams(query).get("run") ?? 0);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return {parts, run: Number.isInteger(run) && run > 0 ? run : 0};
}

let opening = null;

// The source of a run, opened once: two visits in a row wait for the same answer.
function opened(run) {
  if (opening === null || opening.run !== run) {
    opening = {run, done: open(run)};
    opening.done.catch(() => { opening = null; });
  }
  return opening.done;
}

async function open(run) {
  const next = new Source(run);
  await next.load();
  source?.close();
  source = next;
  palette = new Palette(ANONYMOUS);
  for (const row of [...source.board.apps].sort((one, two) => (one.submitted ?? 0) - (two.submitted ?? 0))) {
    if (!row.sealed) palette.place(row.app);
  }
  clock = new Clock(source.board);
  source.listen((what) => {
    if (what !== "status") clock = new Clock(source.board);
    bar();
  });
}

async function show({focus = true} = {}) {
  const mine = ++turn;
  const {parts, run} = place();
  const [name = "", ...rest] = parts;
  try {
    await opened(run);
    if (mine !== turn) return undefined;
    const make = rest.length ? ONE[name] : PAGES[name];
    if (make === undefined) throw Object.assign(new Error("there is no such page"), {status: 404});
    const page = await make({source, palette, clock: () => clock}, rest.join("/"));
    if (mine !== turn) return page.close();
    shown?.close();
    shown = page;
    replace(main, page.node);
    document.title = `${page.title} \u00b7 ${safe(source.board.origin.title, 60)} \u00b7 Themis`;
    source.follow();
  } catch (problem) {
    if (mine !== turn) return undefined;
    shown?.close();
    shown = null;
    replace(main, el("div.page", {}, trouble(problem)));
    document.title = "Themis";
    if (problem.status === undefined) throw problem;
  }
  bar();
  mark(name || "overview");
  main.dataset.ready = String(mine);
  if (focus) {
    main.querySelector("h1")?.focus({preventScroll: true});
    scrollTo(0, 0);
    announce(document.title);
  }
  return undefined;
}

function trouble(problem) {
  const {status} = problem;
  if (status === 401) return [heading("You are not logged in"), empty("This browser is not known here", "Make a link in a terminal, and open it in this browser within five minutes.", `themis login --server ${location.origin}`)];
  if (status === 403) return [heading("This is not yours to see"), empty("It belongs to another owner, or does not exist", `${safe(problem.message, 300)}.`)];
  if (status === 404) return [heading("Not found"), empty("There is no such thing here", `${safe(problem.message, 300)}.`), el("p", {}, el("a", {href: "#/"}, "To the overview"))];
  if (status === 0 || status === 503) return [heading("The service does not answer"), empty("No answer", "It may be restarting: training goes on meanwhile. This page tries again when you load it anew.", "themis doctor")];
  if (status === 429) return [heading("Too many requests"), empty("One moment", "This browser asked too often. Load the page again in some seconds.")];
  return [heading("Something went wrong"), empty("This page cannot be shown", `${safe(problem.message, 300)}.`)];
}

function mark(name) {
  for (const item of document.querySelectorAll("[data-page]")) {
    if (item.dataset.page === name) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
    const page = item.dataset.page === "overview" ? "" : item.dataset.page;
    item.setAttribute("href", `#/${page}${source?.run ? `?run=${source.run}` : ""}`);
  }
}

const STATUS = {
  live: ["live", "changes arrive as they happen"],
  lost: ["not connected", "the service does not answer; trying again"],
  out: ["logged out", "open a new link of `themis login`"],
  still: ["connecting", "changes will arrive as they happen"],
};

let barred = "";

function bar() {
  if (source?.board === null || source === null) return;
  const {board, status} = source;
  const stamp = JSON.stringify([board.origin, board.viewer, status, source.run]);
  if (stamp === barred) return;
  barred = stamp;
  const parts = [];
  if (board.runs.length > 1) {
    const choice = el("select", {id: "run"}, board.runs.map((title, index) => el("option", {value: index, selected: index === source.run}, safe(title, 60))));
    choice.addEventListener("change", () => { location.hash = `#/${place().parts[0] ?? ""}?run=${choice.value}`; });
    parts.push(el("label", {for: "run"}, el("span.unseen", {}, "Run "), choice));
  } else {
    parts.push(el("strong", {}, el("bdi", {}, safe(board.origin.title, 60))));
  }
  if (board.origin.kind === "live") {
    const [text, title] = STATUS[status];
    parts.push(el(`span.status.${status}`, {title}, text));
    if (board.viewer.subject) parts.push(el("span.muted.who", {title: board.viewer.sealed ? "others are shown without names" : ""}, `${safe(board.viewer.role, 20)} `, el("bdi", {}, safe(board.viewer.subject, 40))));
    parts.push(el("button.small", {type: "button", onclick: logout}, "Log out"));
    if (status !== "live" && status !== "still") announce(`${text}: ${title}`);
  } else {
    parts.push(el("span.muted.who", {}, ended(board)));
  }
  replace(origin, parts);
}

function ended(board) {
  const {kind, taken} = board.origin;
  if (kind !== "snapshot") return `finished run, ${duration(board.now - board.begin)}`;
  return taken === null ? "snapshot" : `snapshot of ${new Date(1000 * taken).toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "short"})}`;
}

async function logout() {
  const told = await ask("/v1/whoami").catch(() => ({}));
  if (told.csrf) await fetch("/v1/logout", {method: "POST", headers: {"x-themis-csrf": told.csrf}, credentials: "same-origin"});
  source.close();
  location.reload();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show());
addEventListener("pagehide", () => source?.pause());
document.addEventListener("visibilitychange", () => (document.hidden ? source?.pause() : source?.resume()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.timeline?.draw());

// For tests and curious readers: nothing in here changes anything.
globalThis.themis = {get source() { return source; }, get page() { return shown; }, interactive: null};

show({focus: false}).then(() => requestAnimationFrame(() => setTimeout(() => {
  globalThis.themis.interactive = performance.now();
})));
