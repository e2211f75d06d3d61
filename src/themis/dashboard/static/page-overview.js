// Overview: the state now, the apps that hold GPUs, and the apps that wait.

import {el, replace} from "./dom.js";
import {ago, duration, gpuTime, number, percent, plural, rho, safe} from "./format.js";
import {appHref, appName, card, empty, heading, link, reasonChip, rhoCell, swatch, tile} from "./parts.js";
import {Timeline} from "./timeline.js";

const LEGEND = 14, WAITING = 8;

export async function overview({source, palette, clock}) {
  const tiles = el("dl.tiles");
  const legend = el("ol.legend");
  const waiting = el("div");
  const room = el("div");
  const choice = el("select", {id: "highlight"});
  const timeline = new Timeline({palette, open: (name) => { location.hash = link(source.run, "apps", name); }});
  choice.addEventListener("change", () => timeline.setHighlight(choice.value === "" ? null : JSON.parse(choice.value)));
  timeline.least = Math.min(300, Math.max(10, 2 * (source.board.origin.lease_seconds ?? 60)));
  const label = el("label", {for: "highlight"}, "Highlight ", choice);
  const hint = el("p.hint");
  const first = await source.lanes();
  let seen = "";
  let drawn = null;

  function machines() {
    const stamp = JSON.stringify(source.board.machines.map((machine) => [machine.machine, machine.rack, machine.gpus.length]));
    if (stamp === seen) return;
    seen = stamp;
    if (source.board.machines.length) {
      replace(room, card("GPU timeline", el("div.bar", {}, timeline.tools, label), timeline.node, hint));
    } else {
      replace(room, card("GPU timeline", empty("No machines yet", "A machine is here as soon as a node runs on it. For a try without GPUs, the demo pretends to have some.", "themis node --server HOST:PORT --token-file FILE\nthemis demo")));
    }
    timeline.setMachines(source.board.machines);
    hint.textContent = `${timeline.hides ? `Scroll for all ${plural(timeline.rows.length, "GPU")}. ` : ""}Drag to move, Ctrl and the wheel to zoom, arrow keys from lease to lease, Enter to open an app.`;
  }

  function update(what = "all") {
    if (what === "status") return;
    const board = source.board;
    const data = source.timeline ?? first;
    replace(tiles, live(board) ? liveTiles(board, clock()) : runTiles(board, timeline));
    machines();
    if (data !== drawn || live(board)) {
      timeline.setData(data, clock());
      drawn = data;
    }
    if (!live(board)) replace(tiles, runTiles(board, timeline));
    choose();
    replace(legend, legendRows(board, timeline));
    replace(waiting, waitingRows(board));
  }

  function choose() {
    const names = timeline.lanes.names;
    if (choice.dataset.count === String(names.length)) return;
    choice.dataset.count = String(names.length);
    const before = choice.value;
    replace(choice, el("option", {value: ""}, "all apps"), names.map((name) => el("option", {value: JSON.stringify(name)}, safe(name, 60))));
    choice.value = before;
  }

  function legendRows(board, {lanes}) {
    const seconds = lanes.seconds();
    const total = seconds.reduce((sum, value) => sum + value, 0);
    const rows = new Map(board.apps.map((row) => [row.app, row]));
    const order = [...seconds.keys()].filter((place) => seconds[place] > 0).sort((one, two) => seconds[two] - seconds[one]);
    if (!order.length) return el("li.muted", {}, "Nobody has held a GPU yet.");
    const shown = order.slice(0, LEGEND).map((place) => {
      const name = lanes.names[place];
      const href = appHref(source.run, rows.get(name) ?? {app: name});
      const text = [swatch(palette, name), el("bdi", {}, safe(name, 60))];
      return el("li", {}, href === null ? el("span", {}, text) : el("a", {href}, text), el("span.amount", {}, `${gpuTime(seconds[place])}, ${percent(seconds[place] / total)}`));
    });
    const rest = order.slice(LEGEND).reduce((sum, place) => sum + seconds[place], 0);
    return order.length > LEGEND ? [...shown, el("li.muted", {}, `and ${plural(order.length - LEGEND, "other app")}`, el("span.amount", {}, `${gpuTime(rest)}, ${percent(rest / total)}`))] : shown;
  }

  function waitingRows(board) {
    const behind = live(board)
      ? board.apps.filter((row) => !row.ended && !row.sealed && row.held === 0)
      : board.apps.filter((row) => (row.rho ?? 0) > board.fair);
    if (!board.apps.length) return empty("No apps yet", "Submit one, or start a single program on two GPUs.", "themis submit app.yaml\nthemis run --gpus 2 -- python train.py");
    if (!behind.length) return el("p.muted", {}, live(board) ? "Nobody waits." : "Every app got at least its fair share.");
    behind.sort((one, two) => (two.rho ?? 0) - (one.rho ?? 0));
    const rows = behind.slice(0, WAITING).map((row) => el("li", {},
      el("a", {href: appHref(source.run, row)}, appName(palette, row)),
      el("span", {}, rhoCell(row.rho, board.fair)), live(board) ? reasonChip(board, row.reason) : el("span.muted", {}, duration(row.elapsed))));
    return [el("ul.waiting", {}, rows), behind.length > WAITING ? el("p", {}, el("a", {href: link(source.run, "apps")}, `all ${behind.length}`)) : null];
  }

  update();
  const off = source.listen(update);
  const node = el("div.page", {},
    heading("Overview"), tiles, room,
    el("div.columns", {},
      card("GPU time by app", legend),
      card(live(source.board) ? "Who waits, and why" : "Who finished later than a fair share", waiting)));
  return {node, title: "Overview", close: () => { off(); timeline.close(); }, timeline};
}

// A snapshot is shown as the present of its time.
const live = (board) => ["live", "snapshot"].includes(board.origin.kind);

function liveTiles(board, clock) {
  const {gpus} = board;
  const total = Object.values(gpus).reduce((sum, count) => sum + count, 0);
  const used = (gpus.leased ?? 0) + (gpus.fencing ?? 0);
  const active = board.apps.filter((row) => !row.ended);
  const running = active.filter((row) => row.held > 0).length;
  const ends = board.machines.flatMap((machine) => machine.gpus.map((gpu) => gpu.until)).filter((until) => until !== null && until > clock.time());
  return [
    tile("GPUs in use", total ? `${number(used)} of ${number(total)}` : "none yet", total ? percent(used / total) + (gpus.quarantined ? `, ${gpus.quarantined} out of use` : "") : ""),
    tile("Apps", number(active.length), active.length ? `${number(running)} running, ${number(active.length - running)} waiting` : "submit one to begin"),
    ...fairness(active, board.fair),
    tile("Next leases end", ends.length ? ago(Math.min(...ends) - clock.time()) : "\u2013", board.origin.lease_seconds ? `a lease is ${duration(board.origin.lease_seconds)}` : ""),
  ];
}

function runTiles(board, timeline) {
  const total = board.gpus.total ?? 0;
  const lanes = timeline.lanes;
  const held = lanes === null ? 0 : lanes.seconds().reduce((sum, value) => sum + value, 0);
  const span = board.now - board.begin;
  return [
    tile("Apps", number(board.apps.length), `in ${duration(span)}`),
    tile("GPUs", number(total), total && span ? `${percent(held / total / span)} of the time in use` : ""),
    ...fairness(board.apps, board.fair),
    tile("Policy", board.origin.policy || "\u2013", board.origin.lease_seconds ? `leases of ${duration(board.origin.lease_seconds)}` : ""),
  ];
}

function fairness(rows, fair) {
  const known = rows.filter((row) => row.rho !== null && row.rho !== undefined);
  if (!known.length) return [tile("Furthest behind", "\u2013", "no rho yet"), tile("Served fairly", "\u2013")];
  const worst = known.reduce((one, two) => (two.rho > one.rho ? two : one));
  const good = known.filter((row) => row.rho <= fair).length;
  return [
    tile("Furthest behind", `rho ${rho(worst.rho)}`, safe(worst.app, 40), worst.rho > fair ? "late" : "fair"),
    tile("Served fairly", percent(good / known.length), `${number(good)} of ${number(known.length)} have rho up to ${fair}`),
  ];
}
