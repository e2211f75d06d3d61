// All apps: rho now and over time, and the reason.

import {sparkline} from "./charts.js";
import {el, replace} from "./dom.js";
import {duration, gpuTime, number, plural, rho, safe} from "./format.js";
import {appHref, appName, card, empty, heading, heldOf, reasonChip, rhoCell, stateChip, timeCell} from "./parts.js";
import {Table} from "./table.js";

export async function apps({source, palette, clock}) {
  const fair = source.board.fair;
  const live = source.present;
  const table = new Table({
    caption: "Apps", empty: "No app fits.",
    key: (row) => `${row.app}/${row.place ?? ""}`,
    href: (row) => appHref(source.run, row),
    sort: {name: "rho", down: true},
    columns: [
      {name: "app", label: "App", value: (row) => row.app, stamp: (row) => row.app, cell: (row) => appName(palette, row)},
      {name: "owner", label: "Owner", low: true, value: (row) => row.owner, stamp: (row) => row.owner, cell: (row) => el("bdi", {}, safe(row.owner || "\u2013", 60))},
      {name: "rho", label: "rho", number: true, title: "How much longer it takes than with a private fair share; fair up to 1.05", value: (row) => row.rho, stamp: (row) => rho(row.rho), cell: (row) => rhoCell(row.rho, fair)},
      {name: "history", label: "History", low: true, stamp: (row) => String([row.history.length, row.history[0], row.history.at(-1)]), cell: (row) => sparkline(row.history, {fair, label: row.history.length ? `rho from ${rho(row.history[0][1])} to ${rho(row.history.at(-1)[1])}` : ""})},
      live
        ? {name: "held", label: "GPUs", number: true, value: (row) => row.held, stamp: heldOf, cell: heldOf}
        : {name: "gpu", label: "GPU time", number: true, low: true, value: (row) => row.gpu_seconds, cell: (row) => gpuTime(row.gpu_seconds)},
      {name: "reason", label: live ? "Reason" : "State", value: (row) => row.reason, stamp: (row) => `${row.reason} ${row.ended === null ? "" : row.state}`, cell: (row) => (row.ended ? stateChip(row.state) : reasonChip(source.board, row.reason))},
      {name: "submitted", label: "Submitted", low: true, number: true, value: (row) => row.submitted, stamp: (row) => clock().words(row.submitted), cell: (row) => timeCell(clock(), row.submitted)},
      {name: "elapsed", label: live ? "Active for" : "Took", low: true, number: true, value: (row) => row.elapsed, stamp: (row) => duration(row.elapsed), cell: (row) => duration(row.elapsed)},
    ],
  });
  const filter = el("input", {type: "search", id: "filter", placeholder: "name, owner or reason", autocomplete: "off", spellcheck: "false"});
  const count = el("span.muted", {role: "status"});
  const room = el("div");
  filter.addEventListener("input", () => update());

  function update(what = "all") {
    if (what === "status") return;
    const all = source.board.apps.map((row, place) => (row.sealed ? {...row, place} : row));
    if (!all.length) {
      replace(room, empty("No apps yet", "Submit one, or start a single program on two GPUs.", "themis submit app.yaml\nthemis run --gpus 2 -- python train.py"));
      return;
    }
    if (!room.contains(table.node)) replace(room, el("div.bar", {}, el("label", {for: "filter"}, "Find ", filter), count), table.node);
    const wanted = filter.value.trim().toLowerCase();
    const rows = wanted ? all.filter((row) => [row.app, row.owner, row.state, row.reason, source.board.reasons[row.reason]?.label].some((text) => String(text ?? "").toLowerCase().includes(wanted))) : all;
    table.update(rows);
    count.textContent = wanted ? `${number(rows.length)} of ${plural(all.length, "app")}` : plural(all.length, "app");
  }

  update();
  return {node: el("div.page", {}, heading("Apps"), card(null, room)), title: "Apps", close: source.listen(update)};
}
