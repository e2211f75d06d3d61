// One app: its state and the reason, its jobs and phases, and the GPUs that it held.

import {lineChart} from "./charts.js";
import {el, replace} from "./dom.js";
import {duration, figure, gpuTime, lateness, number, percent, plural, rho, safe} from "./format.js";
import {card, chip, empty, heading, heldOf, link, stateChip, swatch, tile, timeCell} from "./parts.js";
import {Table} from "./table.js";

const AGAIN = 2500, LEASES = 40;

export async function app({source, palette, clock}, name) {
  const node = el("div.page");
  let page = await source.app(name);
  let timer = null;
  const jobs = jobTable(page.metric ? safe(page.metric, 30) : "Metric");
  const leases = leaseTable(clock);

  function draw() {
    const {row} = page;
    const board = source.board;
    const time = clock();
    jobs.update(page.jobs ?? []);
    const held = grouped(page.leases);
    leases.update(held.slice(0, LEASES));
    replace(node,
      el("p.crumb", {}, el("a", {href: link(source.run, "apps")}, "Apps")),
      heading([swatch(palette, row.app), el("bdi", {}, safe(row.app))], stateChip(row.state)),
      el("dl.tiles", {},
        tile("rho", rho(row.rho), lateness(row.rho, board.fair), (row.rho ?? 0) > board.fair ? "late" : "fair"),
        row.ended
          ? tile("Took", duration(row.elapsed), row.ideal_seconds ? `${duration(row.ideal_seconds)} on a fair share of its own` : "")
          : tile("GPUs", heldOf(row), "held of what it can use"),
        tile("GPU time", gpuTime(row.gpu_seconds), page.weight && page.weight !== 1 ? `weight ${number(page.weight, 2)}` : ""),
        tile("Submitted", timeCell(time, row.submitted), row.owner ? `by ${safe(row.owner, 60)}` : ""),
        row.ended ? tile("Ended", timeCell(time, row.ended), safe(page.outcome, 80)) : tile("Active for", duration(row.elapsed), row.ideal_seconds ? `${duration(row.ideal_seconds)} on a fair share of its own` : "")),
      why(board, row, page, time),
      // A snapshot has no past.
      source.present && !source.live ? null : el("div.columns", {},
        card("rho, round by round", chart(page.history, time, {limit: {at: board.fair, label: `fair: up to ${board.fair}`}, format: (value) => number(value, 2), label: "rho as rounds ranked it", none: "No round has looked at it yet."})),
        card("GPUs held", chart(until(page.held, row.ended ?? page.now), time, {step: true, zero: true, format: (value) => number(value), label: "GPUs held over time", whole: true, none: "It has held none yet."}))),
      page.phases.length ? card("Phases", phases(page, time)) : null,
      curves(page),
      card("Jobs", page.jobs === null ? empty("No jobs were kept", "A run folder has no word on single jobs. Its event log has: run the simulation once more with it.", "themis sim run --events --out run") : jobs.node),
      card("Leases", page.leases.length ? leases.node : el("p.muted", {}, "It has held no GPU yet."), held.length > LEASES ? el("p.hint", {}, `the last ${LEASES} of ${number(held.length)}`) : null));
  }

  async function refresh() {
    timer = null;
    try {
      page = await source.app(name);
    } catch {
      return;
    }
    const focused = document.activeElement;
    draw();
    if (focused !== null && node.contains(focused)) focused.focus({preventScroll: true});
  }

  draw();
  const off = source.listen((what) => {
    if (what !== "status" && timer === null) timer = setTimeout(refresh, AGAIN);
  });
  return {node, title: safe(name, 60), close: () => { off(); clearTimeout(timer); }};
}

function why(board, row, page, clock) {
  const words = board.reasons[row.reason];
  const spans = page.reasons.map(([start, code], place) => {
    const end = page.reasons[place + 1]?.[0] ?? (row.ended ?? page.now);
    const told = board.reasons[code];
    return el("li", {}, timeCell(clock, start), chip(told?.tone ?? "wait", told?.label ?? safe(code, 40)), end > start ? el("span.muted", {}, `for ${duration(end - start)}`) : null, el("span.what", {}, told?.what ?? ""));
  }).reverse();
  const told = el("ol.reasons", {}, spans.slice(0, 40));
  const [what, reason, then] = page.explanation.length ? page.explanation : [words?.what ?? "", "", ""];
  return card("Why it stands where it stands",
    words === undefined ? null : el("div.explain", {}, chip(words.tone, words.label), el("p", {}, sentence(what, safe(row.app, 500))), reason ? el("p", {}, sentence(reason)) : null, then ? el("p.muted", {}, sentence(then)) : null),
    spans.length > 1 ? el("details", {}, el("summary", {}, `Reasons over time (${plural(spans.length, "change")})`), told, spans.length > 40 ? el("p.hint", {}, "the last 40") : null) : null);
}

// A line of text as a sentence; text in backquotes is shown as code.
function sentence(text, name = "") {
  const clean = safe(text, 500);
  const told = name && clean.startsWith(`${name}: `) ? clean.slice(name.length + 2) : clean;
  const parts = told.split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part));
  if (typeof parts[0] === "string") parts[0] = parts[0].charAt(0).toUpperCase() + parts[0].slice(1);
  return [parts, "."];
}

function chart(points, clock, {limit = null, step = false, zero = false, whole = false, format, label, none}) {
  if (points.length < 2) return el("p.muted", {}, none);
  const span = points.at(-1)[0] - points[0][0];
  const told = `${label}: from ${format(points[0][1])} to ${format(points.at(-1)[1])} in ${duration(span)}`;
  return lineChart({series: [{name: label, points, step}], x: {label: "time", time: true, origin: clock.origin, format: (at) => clock.tick(at, span)}, y: {format, zero, whole}, limit, label: told});
}

// The last value holds until now.
function until(points, at) {
  const last = points.at(-1);
  return last !== undefined && at > last[0] ? [...points, [at, last[1]]] : points;
}

function phases(page, clock) {
  return el("ol.phases", {}, page.phases.map((phase, place) => el(`li${phase.state === "now" ? ".now" : phase.state === "over" ? ".over" : ""}`, {"aria-current": phase.state === "now" ? "step" : null},
    el("strong", {}, `Phase ${place + 1}`), el("span", {}, `${plural(phase.jobs, "job")}, ${plural(phase.iterations, "iteration")}`),
    el("span.muted", {}, phase.state === "to come" ? "to come" : phase.state === "now" ? "now" : "over", phase.began === null ? "" : [", began ", timeCell(clock, phase.began)]))));
}

function curves(page) {
  const with_ = (page.jobs ?? []).filter((job) => job.curve.length > 1);
  if (!with_.length) return null;
  const label = page.metric ? safe(page.metric, 40) : "metric";
  return card(`Curves of ${label}`, lineChart({
    series: with_.map((job) => ({name: [el("bdi", {}, safe(job.job, 30)), job.best ? " (best)" : ""], points: job.curve})),
    x: {label: "iterations"}, y: {format: figure}, label: `${label} by iterations of ${plural(with_.length, "job")}`, height: 260, full: true,
  }));
}

function jobTable(metric) {
  return new Table({
    caption: "Jobs", key: (row) => row.job, empty: "It has no jobs.", sort: null,
    columns: [
      {name: "job", label: "Job", value: (row) => row.job, cell: (row) => [el("bdi", {}, safe(row.job, 60)), row.best ? chip("good", "best") : null]},
      {name: "state", label: "State", value: (row) => row.state, cell: (row) => [stateChip(row.state), row.message ? el("span.message", {}, safe(row.message, 200)) : null]},
      {name: "gpus", label: "GPUs", number: true, low: true, value: (row) => row.gpus.length, cell: (row) => (row.gpus.length ? el("span", {title: `GPU ${row.gpus.join(", ")}`}, number(row.gpus.length)) : "\u2013")},
      {name: "iterations", label: "Iterations", number: true, value: (row) => row.iterations, cell: (row) => (row.target ? progress(row) : number(row.iterations))},
      {name: "metric", label: metric, number: true, value: (row) => row.metric, cell: (row) => figure(row.metric)},
      {name: "params", label: "Parameters", low: true, cell: (row) => el("span.params", {}, Object.entries(row.params).slice(0, 12).map(([key, value]) => el("span", {}, `${safe(key, 30)} ${safe(typeof value === "number" ? figure(value) : JSON.stringify(value), 40)}`)))},
    ],
  });
}

function progress(row) {
  const share = Math.max(0, Math.min(1, row.iterations / row.target));
  return [`${number(row.iterations)} of ${number(row.target)}`, el("progress", {value: share, max: 1, "aria-label": percent(share)})];
}

// GPUs of a machine that were granted and released together are one row; the newest first.
function grouped(leases) {
  const found = new Map();
  for (const lease of leases) {
    const key = JSON.stringify([lease.machine, lease.start, lease.end, lease.source, lease.open]);
    const known = found.get(key);
    if (known === undefined) found.set(key, {...lease, gpus: [lease.gpu]});
    else known.gpus.push(lease.gpu);
  }
  return [...found.values()].sort((one, two) => two.open - one.open || two.start - one.start);
}

function leaseTable(clock) {
  return new Table({
    caption: "Leases, the newest first", key: (row) => `${row.gpus[0]}/${row.start}/${row.end}`,
    columns: [
      {name: "gpu", label: "GPUs", cell: (row) => [el("span", {title: `GPU ${row.gpus.join(", ")}`}, plural(row.gpus.length, "GPU")), el("span.muted", {}, " on ", el("bdi", {}, safe(row.machine, 60)))]},
      {name: "from", label: "From", number: true, value: (row) => row.start, cell: (row) => timeCell(clock(), row.start)},
      {name: "for", label: "For", number: true, low: true, value: (row) => row.end - row.start, cell: (row) => (row.open ? ["so far ", duration(clock().time() - row.start)] : duration(row.end - row.start))},
      {name: "until", label: "State", cell: (row) => (row.open ? ["held, ends ", timeCell(clock(), row.end)] : "over")},
      {name: "source", label: "Given by", low: true, value: (row) => row.source, cell: (row) => safe(row.source, 20)},
    ],
  });
}
