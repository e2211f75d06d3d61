// Rounds; and one round: which apps were invited, their bids, and what each won, paid and got.

import {el, replace} from "./dom.js";
import {chunks, duration, figure, number, percent, plural, rho, safe} from "./format.js";
import {appHref, card, chip, empty, heading, link, reasonChip, rhoCell, swatch, tile, timeCell} from "./parts.js";
import {Table} from "./table.js";

const TRIGGERS = {beat: "leases end at a beat", free: "GPUs came free", call: "an app could not wait"};

export async function auctions({source, clock}) {
  const table = new Table({
    caption: "Rounds, the newest first", key: (row) => String(row.round), empty: "No round was held yet.",
    href: (row) => link(source.run, "auctions", row.round), sort: {name: "round", down: true},
    columns: [
      {name: "round", label: "Round", number: false, value: (row) => row.round, cell: (row) => [`Round ${row.round}`, row.failed ? el("span.message", {}, "failed") : null]},
      {name: "opened", label: "When", number: true, value: (row) => row.opened, cell: (row) => timeCell(clock(), row.opened)},
      {name: "trigger", label: "Because", low: true, value: (row) => row.trigger, cell: (row) => TRIGGERS[row.trigger] ?? safe(row.trigger, 40)},
      {name: "offered", label: "GPUs given", number: true, value: (row) => row.given, cell: (row) => bar(row)},
      {name: "invited", label: "Invited", number: true, low: true, value: (row) => row.invited, cell: (row) => `${number(row.invited)} of ${plural(row.apps, "app")}`},
      {name: "took", label: "Took", number: true, low: true, value: (row) => row.settled - row.opened, cell: (row) => duration(row.settled - row.opened)},
      {name: "outcome", label: "Outcome", low: true, value: (row) => Number(row.failed), cell: (row) => outcome(row)},
    ],
  });
  const more = el("button", {type: "button", onclick: () => earlier()}, "Earlier rounds");
  const room = el("div");
  let rows = [];
  let before = null;
  let timer = null;

  function draw() {
    if (!rows.length) {
      replace(room, source.live
        ? empty("No round was held yet", "A round is held when apps and free GPUs are there, and at every beat.", "themis submit app.yaml")
        : source.present ? empty("A snapshot has no rounds", "It is one moment. The service's store and its backups have them.", "themis backup themis.db\nthemis dashboard themis.db")
        : empty("No rounds were kept", "Runs of a comparison keep results only. A run of its own keeps every round.", "themis sim run --out run"));
      return;
    }
    table.update(rows);
    more.hidden = before === null;
    if (!room.contains(table.node)) replace(room, table.node, el("p.more", {}, more));
  }

  async function newest() {
    timer = null;
    const page = await source.rounds();
    if (!rows.length) before = page.before;
    const known = new Set(page.rounds.map((row) => row.round));
    rows = [...rows.filter((row) => !known.has(row.round)), ...page.rounds];
    draw();
  }

  async function earlier() {
    more.disabled = true;
    const page = await source.rounds(before, 200);
    rows = [...page.rounds, ...rows];
    before = page.before;
    more.disabled = false;
    draw();
  }

  await newest();
  let last = source.board.last_round;
  const off = source.listen((what) => {
    if (what === "status" || source.board.last_round === last || timer !== null) return;
    last = source.board.last_round;
    timer = setTimeout(newest, 300);
  });
  const node = el("div.page", {}, heading("Auctions"),
    el("p.lead", {}, "In each round the apps that are furthest behind are asked what GPUs are worth to them. Winners pay with a part of what they won, which keeps bids honest; what is left over goes to others."),
    card(null, room));
  return {node, title: "Auctions", close: () => { off(); clearTimeout(timer); }};
}

function bar(row) {
  const share = row.offered ? row.given / row.offered : 0;
  return [`${number(row.given)} of ${number(row.offered)}`, el("progress", {value: share, max: 1, "aria-label": `${percent(share)} of the offer given`})];
}

function outcome(row) {
  if (row.failed) return chip("bad", "failed");
  if (!row.solver) return chip("good", "settled");
  return row.exact ? chip("good", "best answer") : chip("wait", "good answer", "the solver ran out of time before it could prove that nothing is better");
}

export async function round({source, palette, clock}, text) {
  const sheet = await source.round(text);
  const board = source.board;
  const time = clock();
  const given = [...sheet.own.map((row) => row.line.granted), ...sheet.others.map((row) => row.granted)].reduce((sum, count) => sum + count, 0);
  const apps = sheet.own.length + sheet.others.length;
  const table = roundTable(source, palette, sheet);
  table.update(sheet.own.map((row) => ({...row, app: row.line.app})));
  const others = sheet.others.length ? otherTable() : null;
  others?.update(sheet.others.map((row, place) => ({...row, place})));
  const bids = sheet.own.filter((row) => row.bid !== null);
  const last = board.last_round;
  const names = new Map(board.machines.map((machine) => [machine.number, safe(machine.machine, 60)]));
  return {
    title: `Round ${sheet.round}`,
    close: () => {},
    node: el("div.page", {},
      el("p.crumb", {}, el("a", {href: link(source.run, "auctions")}, "Auctions"),
        sheet.round > 1 ? el("a", {href: link(source.run, "auctions", sheet.round - 1)}, "\u2190 round before") : null,
        last !== null && sheet.round < last ? el("a", {href: link(source.run, "auctions", sheet.round + 1)}, "next round \u2192") : null),
      heading(`Round ${sheet.round}`, sheet.failed ? chip("bad", "failed") : chip("good", "settled")),
      sheet.failed ? el("p.notice", {}, `It failed, and everybody kept what they had for one beat: ${safe(sheet.failed, 300)}`) : null,
      el("dl.tiles", {},
        tile("Held", timeCell(time, sheet.opened), TRIGGERS[sheet.trigger] ?? safe(sheet.trigger, 40)),
        tile("Took", duration(sheet.settled - sheet.opened), "from the offer to the decision"),
        tile("GPUs", `${number(given)} of ${number(sheet.offered)}`, sheet.idle ? `given; ${number(sheet.idle)} left idle` : "given, none left idle"),
        tile("Asked for bids", `${number(sheet.invited)} of ${number(apps)}`, "apps, the furthest behind first"),
        tile("Answer", sheet.solver ? (sheet.exact ? "the best there is" : "perhaps not the best") : "no auction", sheet.solver ? certificate(sheet) : "the policy decided alone")),
      card("Apps", sheet.own.length ? table.node : el("p.muted", {}, apps ? "None of them is yours." : "No app was there.")),
      others === null ? null : card("Apps of other owners", el("p.hint", {}, "Bids of others are sealed."), others.node),
      card("Bids", bids.length ? bids.map((row) => bid(row, palette, names)) : el("p.muted", {}, sheet.solver ? "None of yours." : "Nobody was asked for a bid."))),
  };
}

function certificate(sheet) {
  if (sheet.value === null) return `by ${safe(sheet.solver, 40)}`;
  const gap = sheet.bound - sheet.value;
  return `by ${safe(sheet.solver, 40)}: value ${figure(sheet.value)}, at most ${figure(sheet.bound)}${gap > 1e-9 ? `, a gap of ${figure(gap)}` : ""}`;
}

function roundTable(source, palette, sheet) {
  const fair = source.board.fair;
  return new Table({
    caption: `Apps in round ${sheet.round}`, key: (row) => row.app, sort: {name: "rank", down: false},
    href: (row) => appHref(source.run, {app: row.app}),
    columns: [
      {name: "app", label: "App", value: (row) => row.app, cell: (row) => [swatch(palette, row.app), el("bdi", {}, safe(row.app, 60))]},
      {name: "rank", label: "Rank", number: true, low: true, title: "By rho, the furthest behind first", value: (row) => row.line.rank, cell: (row) => number(row.line.rank)},
      {name: "rho", label: "rho", number: true, value: (row) => row.line.rho, cell: (row) => [rhoCell(row.line.rho, fair), row.rho_change ? el("span.muted.low", {}, ` ${row.rho_change > 0 ? "+" : "\u2212"}${rho(Math.abs(row.rho_change))}`) : null]},
      {name: "invited", label: "Asked", low: true, value: (row) => Number(row.line.invited), cell: (row) => (row.line.invited ? chip("good", "asked") : el("span.muted", {}, "no"))},
      {name: "won", label: "Won", number: true, low: true, value: (row) => row.won, cell: (row) => number(row.won)},
      {name: "paid", label: "Paid", number: true, low: true, title: "Its hidden payment: GPUs it won and gave up", value: (row) => row.paid, cell: (row) => (row.kept_fraction === null ? number(row.paid) : el("span", {title: `it keeps ${percent(row.kept_fraction, 1)} of what it wins`}, number(row.paid)))},
      {name: "got", label: "Got", number: true, value: (row) => row.line.granted, cell: (row) => [number(row.line.granted), el("span.detail", {}, Object.entries(row.given_by).map(([from, count]) => `${number(count)} ${safe(from, 20)}`).join(", "))]},
      {name: "reason", label: "Stands after it", value: (row) => row.line.reason, cell: (row) => [reasonChip(source.board, row.line.reason), row.refused ? el("span.message", {}, `bid refused: ${safe(row.refused, 200)}`) : null]},
    ],
  });
}

function otherTable() {
  return new Table({
    caption: "Apps of other owners", key: (row) => String(row.place), sort: {name: "held", down: true},
    columns: [
      {name: "app", label: "App", cell: () => el("span.muted", {}, "another owner's")},
      {name: "held", label: "Holds", number: true, value: (row) => row.held, cell: (row) => plural(row.held, "GPU")},
      {name: "granted", label: "Got", number: true, value: (row) => row.granted, cell: (row) => plural(row.granted, "GPU")},
      {name: "change", label: "Change of rho", number: true, value: (row) => row.rho_change, cell: (row) => (row.rho_change === null ? "\u2013" : number(row.rho_change, 2))},
    ],
  });
}

function bid(row, palette, names) {
  const rows = [...row.bid.rows].sort((one, two) => one.seconds - two.seconds).slice(0, 60);
  return el("details", {},
    el("summary", {}, swatch(palette, row.app ?? row.line.app), el("bdi", {}, safe(row.line.app, 60)), el("span.muted", {}, ` ${plural(row.bid.rows.length, "row")}`)),
    rows.length ? el("ul.bid", {}, rows.map((line) => el("li", {}, el("span", {}, `with ${chunks(line.chunks, names)}`), el("span.amount", {}, `${duration(line.seconds)} to go`)))) : el("p.muted", {}, "It wants nothing of the offer."),
    row.bid.rows.length > 60 ? el("p.hint", {}, "the quickest 60") : null);
}
