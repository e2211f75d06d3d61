// Nodes and topology: racks, machines, slots and GPUs, and the apps on them.

import {el, replace} from "./dom.js";
import {ago, number, percent, plural, safe} from "./format.js";
import {ANONYMOUS, empty, heading, link, roving, stateChip, swatch} from "./parts.js";
import {Lanes} from "./lanes.js";

const KEY = 28;

export async function nodes({source, palette, clock}) {
  const room = el("div");
  const lanes = source.present ? null : new Lanes(await source.lanes(), source.board.now);
  let drawn = "";

  function update(what = "all") {
    if (what === "status") return;
    const {machines} = source.board;
    const stamp = JSON.stringify(machines);
    if (stamp === drawn) return;
    drawn = stamp;
    if (!machines.length) {
      replace(room, empty("No machines yet", "A machine is here as soon as a node runs on it. An operator makes its token.", "themis token create --role node --subject NAME\nthemis node --server HOST:PORT --token-file FILE"));
      return;
    }
    const focused = document.activeElement?.dataset?.gpu;
    const racks = new Map();
    for (const machine of machines) racks.set(machine.rack, [...(racks.get(machine.rack) ?? []), machine]);
    replace(room, key(machines), [...racks].map(([rack, inside]) => el("section.rack", {},
      el("h2", {}, "Rack ", el("bdi", {}, safe(rack, 60)), el("span.muted", {}, ` ${plural(inside.length, "machine")}, ${plural(inside.reduce((sum, machine) => sum + machine.gpus.length, 0), "GPU")}`)),
      el("div.machines", {}, inside.map((machine) => machineCard(machine))))));
    if (focused !== undefined) room.querySelector(`[data-gpu="${CSS.escape(focused)}"]`)?.focus({preventScroll: true});
  }

  // A legend of the apps that hold a GPU now.
  function key(machines) {
    const names = new Set(machines.flatMap((machine) => machine.gpus.map((gpu) => gpu.app)).filter((name) => name !== null));
    if (lanes !== null || !names.size) return null;
    const sorted = [...names].sort((one, two) => (one === ANONYMOUS) - (two === ANONYMOUS) || (one < two ? -1 : 1));
    const rest = sorted.length - KEY;
    return el("ul.key", {"aria-label": "Apps by colour"}, sorted.slice(0, KEY).map((name) => {
      const text = [swatch(palette, name), el("bdi", {}, safe(name, 60))];
      return el("li", {}, name === ANONYMOUS ? text : el("a", {href: link(source.run, "apps", name)}, text));
    }), rest > 0 ? el("li.muted", {}, `and ${plural(rest, "other app")}`) : null);
  }

  function machineCard(machine) {
    const time = clock();
    const list = el("ul.gpus", {"aria-label": `GPUs of ${safe(machine.machine, 60)}`});
    let slot = null;
    for (const gpu of machine.gpus) {
      const cell = gpuCell(gpu, time);
      if (slot !== null && gpu.slot !== slot) cell.classList.add("next");
      slot = gpu.slot;
      list.append(cell);
    }
    return el("article.machine", {},
      el("h3", {}, el("bdi", {}, safe(machine.machine, 60)), machine.state === "present" ? null : stateChip(machine.state)),
      el("p.muted", {}, machine.gpu_model ? `${plural(machine.gpus.length, "GPU")}, ${safe(machine.gpu_model, 30)} with ${number(machine.gpu_memory)} GB` : plural(machine.gpus.length, "GPU"),
        machine.heard === null ? "" : `, heard ${ago(machine.heard - time.time())}`),
      machine.note ? el("p.message", {}, safe(machine.note, 300)) : null,
      machine.gpus.length ? roving(list, "a, span[tabindex]") : el("p.muted", {}, "It reports no GPUs."));
  }

  function gpuCell(gpu, time) {
    if (lanes !== null) {
      const share = lanes.busy(gpu.gpu, source.board.begin, source.board.now);
      const text = `GPU ${gpu.index}: in use ${percent(share)} of the time`;
      return el("li", {}, el(`span.gpu.used-${Math.min(10, Math.round(10 * share))}`, {tabindex: -1, role: "img", "aria-label": text, title: text, "data-gpu": gpu.gpu}, percent(share)));
    }
    const ends = gpu.until === null ? "" : `, lease ends ${ago(gpu.until - time.time())}`;
    const told = `GPU ${gpu.index}: ${gpu.app === null ? gpu.state : safe(gpu.app, 80)}${gpu.state === "fencing" ? ", leaving" : ""}${ends}${gpu.reason ? `, ${safe(gpu.reason, 120)}` : ""}`;
    if (gpu.app === null) return el("li", {}, el(`span.gpu.${gpu.state}`, {tabindex: -1, role: "img", "aria-label": told, title: told, "data-gpu": gpu.gpu}, gpu.state === "free" ? "" : "\u00d7"));
    const look = palette.look(gpu.app);
    const inside = {tabindex: -1, "aria-label": told, title: told, "data-gpu": gpu.gpu};
    const leaving = gpu.state === "fencing" ? ".fencing" : "";
    if (gpu.app === ANONYMOUS) return el("li", {}, el(`span.gpu.${look.swatch}${leaving}`, {...inside, role: "img"}));
    return el("li", {}, el(`a.gpu.${look.swatch}${leaving}`, {...inside, href: link(source.run, "apps", gpu.app)}));
  }

  update();
  const legend = source.present
    ? el("p.hint", {}, "Each square is a GPU in the colour of its app, in groups by slot. Empty ones are free, pale ones with a dashed edge are being left, crossed ones are out of use.")
    : el("p.hint", {}, "Each square is a GPU, with the share of the time in which it was in use.");
  return {node: el("div.page", {}, heading("Nodes"), legend, room), title: "Nodes", close: source.listen(update)};
}
