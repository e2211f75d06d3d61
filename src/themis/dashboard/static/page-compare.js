// Runs side by side.

import {cumulated, lineChart} from "./charts.js";
import {el} from "./dom.js";
import {number, percent, plural, safe} from "./format.js";
import {card, chip, empty, heading, link} from "./parts.js";
import {Table} from "./table.js";

export async function compare({source}) {
  const {runs, measures, fair} = await source.comparison();
  const page = (...content) => ({title: "Compare", close: () => {}, node: el("div.page", {}, heading("Compare runs"), ...content)});
  if (runs.length < 2) {
    return page(card(null, empty(runs.length ? "One run is open" : "No runs are open here",
      "Simulate two policies on the same apps, then open both folders side by side.",
      "themis sim run --policy themis --out run-a\nthemis sim run --policy tiresias --out run-b\nthemis dashboard run-a run-b")));
  }
  const best = new Map(measures.map((measure) => [measure.name, winner(runs, measure)]));
  const table = new Table({
    caption: "Runs", key: (row) => row.title, href: (row) => link(row.place, ""), sort: {name: "max_rho", down: false},
    columns: [
      {name: "title", label: "Run", value: (row) => row.title, cell: (row) => [el("bdi", {}, safe(row.title, 60)), el("span.detail", {}, `${safe(row.policy, 30)} on ${safe(row.cluster, 30)}`)]},
      ...measures.map((measure) => ({
        name: measure.name, label: measure.label, number: true, low: !["max_rho", "share_fair", "mean_completion_h"].includes(measure.name),
        value: (row) => row.measures[measure.name],
        cell: (row) => [told(row.measures[measure.name], measure), best.get(measure.name) === row.title ? el("span.detail", {}, chip("good", "best")) : null],
      })),
    ],
  });
  table.update(runs.map((run, place) => ({...run, place})));
  const alike = new Set(runs.map((run) => `${run.cluster}/${run.workload}/${run.seed}`)).size === 1;
  return page(
    alike ? null : el("p.notice", {}, "These runs differ in cluster, workload or seed: compare their numbers with care."),
    card("Numbers", table.node, el("p.hint", {}, "rho is rho_ref where a run has it: against a reference that is the same for every policy. The other pages show the rho that apps had in their own run.")),
    el("div.columns", {},
      card("rho of all apps", curve(runs, "rhos", `rho; fair up to ${fair}`, "apps up to this rho")),
      card("Completion of all apps", curve(runs, "completions", "hours from submission to end", "apps done within"))));
}

function curve(runs, key, label, what) {
  const shown = runs.slice(0, 28).filter((run) => run[key].length);
  if (!shown.length) return el("p.muted", {}, "No app has finished.");
  return lineChart({
    series: shown.map((run) => ({name: el("bdi", {}, safe(run.title, 40)), points: cumulated(run[key]), step: true})),
    x: {label}, y: {format: (share) => percent(share), zero: true}, label: `The share of ${what}, for ${plural(shown.length, "run")}`, height: 260,
  });
}

function told(value, measure) {
  if (value === null || value === undefined) return "\u2013";
  if (measure.unit === "%") return percent(value);
  if (measure.name.endsWith("_rho")) return number(value, 2);
  return number(value, measure.unit === "h" ? 1 : 0) + (measure.unit ? ` ${measure.unit}` : "");
}

function winner(runs, measure) {
  if (!measure.better) return null;
  const known = runs.filter((run) => run.measures[measure.name] !== null);
  if (known.length < 2) return null;
  const sign = measure.better === "low" ? 1 : -1;
  known.sort((one, two) => sign * (one.measures[measure.name] - two.measures[measure.name]));
  const [first, second] = known;
  return first.measures[measure.name] === second.measures[measure.name] ? null : first.title;
}
