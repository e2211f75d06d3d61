// The GPU timeline: a lane for each GPU, coloured by app. Only what is in sight is drawn.

import {announce, el, replace} from "./dom.js";
import {duration, percent, safe} from "./format.js";
import {Lanes} from "./lanes.js";

const AXIS = 26, LEAST_LANE = 3, MOST_LANE = 18, GAP = 5, HEIGHT = 460, STRIP = 38;
const NARROW = 560, DENSE = 10;

export class Timeline {
  #frame = 0;
  #drag = null;
  #cursor = null;
  #strip = null;
  #points = null;

  // open(name) shows an app; palette gives apps their colours.
  constructor({palette, open, highlight}) {
    this.palette = palette;
    this.open = open;
    this.highlighted = null;
    this.onhighlight = highlight ?? (() => {});
    this.rows = [];
    this.lanes = null;
    this.view = null;
    this.follows = true;
    this.least = 60;
    this.#build();
  }

  #build() {
    this.canvas = el("canvas", {
      tabindex: 0, role: "application", "aria-roledescription": "GPU timeline",
      "aria-label": "GPU timeline. Arrow keys go from lease to lease and from GPU to GPU, plus and minus zoom, 0 shows all, Enter opens the app.",
      onkeydown: (event) => this.#key(event),
      onpointerdown: (event) => this.#press(event),
      onpointermove: (event) => this.#move(event),
      onpointerup: (event) => this.#release(event),
      onpointercancel: () => { this.#drag = null; },
      onpointerleave: () => this.#hide(),
      onblur: () => { this.#cursor = null; this.#hide(); this.draw(); },
      onwheel: (event) => this.#wheel(event),
      ondblclick: () => this.fit(),
    });
    this.spacer = el("div.lanes-spacer");
    this.scroller = el("div.lanes", {onscroll: () => this.draw()}, this.spacer);
    this.tip = el("div.tip", {hidden: true});
    this.strip = el("canvas.strip", {
      "aria-hidden": "true",
      onpointerdown: (event) => this.#jump(event),
      onpointermove: (event) => { if (event.buttons) this.#jump(event); },
    });
    const button = (label, text, act) => el("button.small", {type: "button", "aria-label": label, title: label, onclick: act}, text);
    this.tools = el("div.tools", {role: "group", "aria-label": "Timeline view"},
      button("Earlier", "\u2190", () => this.pan(-0.3)),
      button("Later", "\u2192", () => this.pan(0.3)),
      button("Zoom in", "+", () => this.zoom(0.5)),
      button("Zoom out", "\u2212", () => this.zoom(2)),
      button("Show all of it", "All", () => this.fit()));
    this.scroller.append(el("div.stick", {}, this.canvas));
    this.node = el("div.timeline", {}, this.strip, this.scroller, this.tip);
    this.resizes = new ResizeObserver(() => this.#resize());
    this.resizes.observe(this.node);
  }

  close() {
    this.resizes.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  // Machines in the order of racks; a gap between two of them, a wider one between racks.
  setMachines(machines) {
    this.rows = [];
    this.groups = [];
    let y = 0;
    let rack = null;
    const ordered = [...machines].sort((one, two) => (one.rack < two.rack ? -1 : one.rack > two.rack ? 1 : 0));
    const gpus = ordered.reduce((sum, machine) => sum + machine.gpus.length, 0);
    const room = HEIGHT - AXIS - GAP * ordered.length;
    this.lane = Math.max(LEAST_LANE, Math.min(MOST_LANE, Math.floor(room / Math.max(1, gpus))));
    if (this.lane < 6 && gpus < 400) this.lane = 6;
    for (const machine of ordered) {
      if (rack !== null && machine.rack !== rack) y += GAP;
      rack = machine.rack;
      const top = y;
      for (const gpu of machine.gpus) {
        this.rows.push({gpu: gpu.gpu, index: gpu.index, machine: machine.machine, rack: machine.rack, y});
        y += this.lane;
      }
      this.groups.push({name: machine.machine, rack: machine.rack, top, bottom: y});
      y += GAP;
    }
    this.total = y;
    this.#resize();
  }

  // Whether there are more GPUs than fit.
  get hides() {
    return this.total + AXIS > HEIGHT;
  }

  setData(timeline, clock) {
    const before = this.lanes;
    this.clock = clock;
    this.lanes = new Lanes(timeline, clock.time());
    this.looks = this.lanes.names.map((name) => this.palette.look(name));
    this.packed = this.looks.map((look) => packed(look.colour));
    this.usage = null;
    const last = Math.max(this.lanes.last, clock.now);
    if (this.view === null) this.fit();
    else if (this.follows && before !== null && last > before.last) {
      // A window at the present stays at the present.
      const span = this.view[1] - this.view[0];
      this.view = this.zoomed ? [last - span, last] : [this.#extent()[0], last];
    }
    this.draw();
  }

  setHighlight(name) {
    this.highlighted = name === null || this.lanes === null ? null : this.lanes.names.indexOf(name);
    if (this.highlighted === -1) this.highlighted = null;
    this.draw();
  }

  #extent() {
    const {lanes, clock} = this;
    const known = lanes !== null && Number.isFinite(lanes.begin);
    const live = clock.wall !== null;
    const end = Math.max(known ? lanes.last : clock.begin, live ? clock.now : clock.begin + 1);
    const begin = known ? lanes.begin : clock.begin;
    // A run that has just begun is shown with the minutes before it.
    return [live ? Math.min(begin, end - this.least) : begin, end];
  }

  fit() {
    this.view = this.#extent();
    this.zoomed = false;
    this.follows = true;
    this.draw();
  }

  zoom(factor, around = null) {
    const [begin, end] = this.view;
    const middle = around ?? (begin + end) / 2;
    const [first, last] = this.#extent();
    const span = Math.min(last - first, Math.max(2, (end - begin) * factor));
    const share = (middle - begin) / (end - begin);
    this.#look(middle - share * span, span);
  }

  pan(share) {
    const span = this.view[1] - this.view[0];
    this.#look(this.view[0] + share * span, span);
  }

  #look(begin, span) {
    const [first, last] = this.#extent();
    const from = Math.max(first, Math.min(begin, last - span));
    this.view = [from, from + span];
    this.zoomed = span < last - first - 1e-6;
    this.follows = from + span >= last - 1e-6;
    this.draw();
  }

  // Drawing

  #resize() {
    this.width = Math.max(200, this.node.clientWidth);
    this.gutter = this.width < NARROW ? 64 : 128;
    this.height = Math.min(HEIGHT, (this.total ?? 0) + AXIS);
    const scale = this.scale = window.devicePixelRatio || 1;
    for (const [canvas, height] of [[this.canvas, this.height], [this.strip, STRIP]]) {
      const [wide, high] = [Math.round(this.width * scale), Math.round(height * scale)];
      if (canvas.width !== wide || canvas.height !== high) {
        canvas.width = wide;
        canvas.height = high;
        canvas.style.width = `${this.width}px`;
        canvas.style.height = `${height}px`;
      }
    }
    this.scroller.style.height = `${this.height}px`;
    this.spacer.style.height = `${Math.max(0, (this.total ?? 0) + AXIS)}px`;
    this.usage = null;
    this.draw();
  }

  draw() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #paint() {
    if (this.lanes === null || this.view === null) return;
    const style = getComputedStyle(this.node);
    this.colours = {
      text: style.getPropertyValue("--text"), muted: style.getPropertyValue("--muted"),
      line: style.getPropertyValue("--line"), lane: style.getPropertyValue("--lane"),
      card: style.getPropertyValue("--card"), accent: style.getPropertyValue("--accent"),
    };
    const pen = this.canvas.getContext("2d", {alpha: false});
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.fillStyle = this.colours.card;
    pen.fillRect(0, 0, this.width, this.height);
    this.#paintLanes(pen);
    this.#paintAxis(pen);
    this.#paintNames(pen);
    if (this.#cursor !== null) this.#paintCursor(pen);
    this.#paintStrip();
    this.painted = (this.painted ?? 0) + 1;
  }

  x(time) {
    return this.gutter + (time - this.view[0]) / (this.view[1] - this.view[0]) * (this.width - this.gutter);
  }

  time(x) {
    return this.view[0] + (x - this.gutter) / (this.width - this.gutter) * (this.view[1] - this.view[0]);
  }

  #visible() {
    const top = this.scroller.scrollTop;
    let from = 0;
    let high = this.rows.length;
    while (from < high) {
      const middle = (from + high) >> 1;
      if (this.rows[middle].y + this.lane <= top) from = middle + 1;
      else high = middle;
    }
    let to = from;
    while (to < this.rows.length && this.rows[to].y < top + this.height - AXIS) to += 1;
    return [from, to, top];
  }

  #paintLanes(pen) {
    const {lanes, view, looks, gutter} = this;
    const [from, to, top] = this.#visible();
    const scale = (this.width - gutter) / (view[1] - view[0]);
    const thick = this.lane > 4 ? this.lane - 1 : this.lane;
    const labels = this.lane >= 11 ? [] : null;
    // Boxes grouped by fill: changing the fill is the slow part.
    const boxes = new Map();
    for (let place = from; place < to; place += 1) {
      const row = this.rows[place];
      const y = row.y - top + AXIS;
      pen.fillStyle = this.colours.lane;
      pen.fillRect(gutter, y, this.width - gutter, thick);
      const first = lanes.after(row.gpu, view[0]);
      const last = lanes.range(row.gpu)[1];
      if ((lanes.after(row.gpu, view[1]) - first) * DENSE > this.width - gutter) {
        this.#paintDense(pen, first, last, y, thick);
        continue;
      }
      let edge = -1;
      for (let index = first; index < last; index += 1) {
        const start = lanes.start[index];
        if (start >= view[1]) break;
        const left = Math.max(gutter, gutter + (start - view[0]) * scale);
        const right = Math.min(this.width, gutter + (lanes.end[index] - view[0]) * scale);
        // Several segments in one pixel: the first is drawn for all.
        if (right - left < 1 && Math.floor(right) === edge) continue;
        edge = Math.floor(right);
        const app = lanes.app[index];
        const look = looks[app];
        const dim = this.highlighted !== null && app !== this.highlighted;
        const wide = right - left;
        const fill = dim ? this.colours.line : wide > 8 ? this.palette.fill(pen, look) : look.colour;
        let mine = boxes.get(fill);
        if (mine === undefined) boxes.set(fill, mine = []);
        mine.push(left, y, Math.max(wide - (wide > 4 ? 0.7 : 0), 0.8));
        if (labels !== null && wide > 46 && !dim) labels.push([app, look, left, right, y]);
      }
    }
    for (const [fill, mine] of boxes) {
      pen.fillStyle = fill;
      for (let at = 0; at < mine.length; at += 3) pen.fillRect(mine[at], mine[at + 1], mine[at + 2], thick);
    }
    if (labels !== null) this.#paintLabels(pen, labels, thick);
  }

  // A lane of very many short leases: point by point, which is much quicker than box by box.
  #paintDense(pen, first, last, y, thick) {
    const {lanes, view, scale} = this;
    const left = Math.round(this.gutter * scale);
    const wide = this.canvas.width - left;
    const high = Math.max(1, Math.round(thick * scale));
    if (this.#strip?.width !== wide || this.#strip?.height !== high) {
      this.#strip = new ImageData(wide, high);
      this.#points = new Uint32Array(this.#strip.data.buffer);
    }
    const points = this.#points;
    const line = points.subarray(0, wide);
    const dim = packed(this.colours.line);
    const per = wide / (view[1] - view[0]);
    line.fill(packed(this.colours.lane));
    for (let index = first; index < last && lanes.start[index] < view[1]; index += 1) {
      const from = Math.max(0, Math.floor((lanes.start[index] - view[0]) * per));
      const to = Math.max(from + 1, Math.round((lanes.end[index] - view[0]) * per));
      const app = lanes.app[index];
      line.fill(this.highlighted !== null && app !== this.highlighted ? dim : this.packed[app], from, Math.min(to, wide));
    }
    for (let row = 1; row < high; row += 1) points.copyWithin(row * wide, 0, wide);
    pen.putImageData(this.#strip, left, Math.round(y * scale));
  }

  // Names in boxes that are wide enough, once for GPUs that an app holds side by side.
  #paintLabels(pen, labels, thick) {
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const above = new Map();
    for (const [app, look, left, right, y] of labels) {
      const key = `${app}/${Math.round(left)}`;
      const before = above.get(key);
      above.set(key, y);
      if (before !== undefined && y - before <= this.lane + GAP) continue;
      const text = this.#fitted(pen, safe(this.lanes.names[app], 60), right - left - 8);
      if (text === null) continue;
      if (look.pattern) {
        pen.fillStyle = look.colour;
        pen.fillRect(left + 2, y + 0.5, Math.min(pen.measureText(text).width + 5, right - left - 3), thick - 1);
      }
      pen.fillStyle = look.ink;
      pen.fillText(text, left + 4, y + thick / 2 + 0.5);
    }
  }

  #fitted(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    const most = Math.floor(room / 6.5);
    return most < 5 ? null : text.slice(0, most - 1) + "\u2026";
  }

  #paintAxis(pen) {
    pen.fillStyle = this.colours.card;
    pen.fillRect(0, 0, this.width, AXIS - 2);
    pen.fillStyle = this.colours.muted;
    pen.strokeStyle = this.colours.line;
    pen.lineWidth = 1;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const span = this.view[1] - this.view[0];
    const step = niceStep(span / Math.max(2, Math.floor((this.width - this.gutter) / 110)));
    const origin = this.clock.origin;
    for (let tick = Math.ceil((this.view[0] - origin) / step) * step + origin; tick <= this.view[1]; tick += step) {
      const x = this.x(tick);
      pen.beginPath();
      pen.moveTo(x + 0.5, AXIS - 6);
      pen.lineTo(x + 0.5, this.height);
      pen.globalAlpha = 0.5;
      pen.stroke();
      pen.globalAlpha = 1;
      const text = this.clock.tick(tick, span);
      if (x + 4 + pen.measureText(text).width < this.width) pen.fillText(text, x + 4, AXIS / 2 - 1);
    }
  }

  #paintNames(pen) {
    const top = this.scroller.scrollTop;
    pen.fillStyle = this.colours.card;
    pen.fillRect(0, AXIS - 2, this.gutter - 6, this.height);
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS - 2, this.gutter - 8, this.height);
    pen.clip();
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "top";
    pen.fillStyle = this.colours.text;
    let free = -Infinity;
    for (const group of this.groups) {
      const y = group.top - top + AXIS;
      if (y > this.height || group.bottom - top + AXIS < AXIS) continue;
      const at = Math.max(y, Math.min(AXIS, group.bottom - top + AXIS - 13));
      if (at < free) continue;
      free = at + 13;
      pen.fillText(this.#fitted(pen, safe(group.name, 40), this.gutter - 14) ?? "", 0, at);
    }
    pen.restore();
  }

  #paintCursor(pen) {
    const row = this.rows[this.#cursor.row];
    const y = row.y - this.scroller.scrollTop + AXIS;
    const index = this.#cursor.index;
    const [left, right] = index < 0 ? [this.gutter, this.width]
      : [Math.max(this.gutter, this.x(this.lanes.start[index])), Math.min(this.width, this.x(this.lanes.end[index]))];
    pen.strokeStyle = this.colours.text;
    pen.lineWidth = 2;
    pen.strokeRect(left, y - 1, Math.max(3, right - left), this.lane + 1);
  }

  // How many GPUs are held over the whole time, with the window in sight marked.
  #paintStrip() {
    const pen = this.strip.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, this.width, STRIP);
    const [begin, end] = this.#extent();
    const wide = this.width - this.gutter;
    const steps = Math.max(10, Math.floor(wide / 2));
    this.usage ??= this.lanes.usage(begin, end, steps);
    const most = Math.max(1, this.rows.length);
    pen.fillStyle = this.colours.accent;
    pen.globalAlpha = 0.45;
    for (let step = 0; step < this.usage.length; step += 1) {
      const high = Math.min(1, this.usage[step] / most) * (STRIP - 6);
      pen.fillRect(this.gutter + step * wide / steps, STRIP - high, wide / steps, high);
    }
    pen.globalAlpha = 1;
    const share = this.usage.reduce((sum, held) => sum + held, 0) / Math.max(1, this.usage.length * most);
    pen.fillStyle = this.colours.muted;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillText(this.gutter > 100 ? "GPUs in use" : "in use", 0, STRIP / 2 - 6);
    pen.fillText(percent(share), 0, STRIP / 2 + 9);
    if (this.zoomed) {
      const scale = wide / (end - begin);
      pen.strokeStyle = this.colours.text;
      pen.lineWidth = 2;
      pen.strokeRect(this.gutter + (this.view[0] - begin) * scale, 1, Math.max(4, (this.view[1] - this.view[0]) * scale) - 1, STRIP - 2);
    }
  }

  // Pointer

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #row(y) {
    const at = y - AXIS + this.scroller.scrollTop;
    let [low, high] = [0, this.rows.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const row = this.rows[middle];
      if (at < row.y) high = middle - 1;
      else if (at >= row.y + this.lane) low = middle + 1;
      else return middle;
    }
    return -1;
  }

  #press(event) {
    if (event.button !== 0) return;
    const [x, y] = this.#place(event);
    this.#drag = {x, y, view: this.view, moved: false, touch: event.pointerType === "touch"};
    if (event.pointerType === "mouse") this.canvas.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const [x, y] = this.#place(event);
    if (this.#drag !== null) {
      const shift = this.#drag.x - x;
      if (Math.abs(shift) > 4) this.#drag.moved = true;
      if (this.#drag.moved) {
        const span = this.#drag.view[1] - this.#drag.view[0];
        this.#look(this.#drag.view[0] + shift / (this.width - this.gutter) * span, span);
      }
      return;
    }
    const row = x > this.gutter && y > AXIS ? this.#row(y) : -1;
    const index = row < 0 ? -1 : this.lanes.at(this.rows[row].gpu, this.time(x));
    if (index < 0) this.#hide();
    else this.#show(this.rows[row], index, x, y);
    this.canvas.classList.toggle("pointing", index >= 0 && this.#named(index));
  }

  #release(event) {
    const drag = this.#drag;
    this.#drag = null;
    if (drag === null || drag.moved) return;
    const [x, y] = this.#place(event);
    const row = x > this.gutter && y > AXIS ? this.#row(y) : -1;
    const index = row < 0 ? -1 : this.lanes.at(this.rows[row].gpu, this.time(x));
    if (index < 0) return;
    if (drag.touch) this.#show(this.rows[row], index, x, y);
    else this.#enter(index);
  }

  #wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 100), this.time(this.#place(event)[0]));
    } else if (sideways) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / (this.width - this.gutter));
    }
  }

  #jump(event) {
    const box = this.strip.getBoundingClientRect();
    const [begin, end] = this.#extent();
    const time = begin + (event.clientX - box.left - this.gutter) / (this.width - this.gutter) * (end - begin);
    const span = this.zoomed ? this.view[1] - this.view[0] : (end - begin) / 4;
    this.#look(time - span / 2, span);
  }

  #named(index) {
    return this.lanes.names[this.lanes.app[index]] !== this.palette.anonymous;
  }

  #enter(index) {
    if (this.#named(index)) this.open(this.lanes.names[this.lanes.app[index]]);
  }

  // Words

  #words(row, index) {
    const {lanes, clock} = this;
    const [start, end] = [lanes.start[index], lanes.end[index]];
    return [
      safe(lanes.names[lanes.app[index]]),
      `GPU ${row.index} of ${safe(row.machine, 60)}, rack ${safe(row.rack, 60)}`,
      `for ${duration(end - start)}, from ${clock.exact(start)}`,
      lanes.sources[lanes.source[index]] === "" ? "" : `by ${{auction: "winning the auction", leftover: "a share of leftovers", arrival: "a round between beats", guard: "the guard against starving", direct: "the policy", renewed: "a failed round that renewed it"}[lanes.sources[lanes.source[index]]] ?? "the policy"}`,
    ];
  }

  #show(row, index, x, y) {
    const [name, where, when, how] = this.#words(row, index);
    const look = this.looks[this.lanes.app[index]];
    replace(this.tip, el("strong", {}, el(`i.swatch.${look.swatch}`), name), el("span", {}, where), el("span", {}, when), how ? el("span", {}, how) : null);
    this.tip.hidden = false;
    const room = this.width - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, room))}px`;
    this.tip.style.top = `${STRIP + y + 18}px`;
  }

  #hide() {
    this.tip.hidden = true;
  }

  // Keys

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.lanes === null || this.rows.length === 0) return;
    const acts = {
      ArrowRight: () => this.#step(1), ArrowLeft: () => this.#step(-1),
      ArrowDown: () => this.#lane(1), ArrowUp: () => this.#lane(-1),
      PageDown: () => this.#lane(8), PageUp: () => this.#lane(-8),
      Home: () => this.#far(0), End: () => this.#far(1),
      "+": () => this.zoom(0.5, this.#cursorTime()), "=": () => this.zoom(0.5, this.#cursorTime()),
      "-": () => this.zoom(2, this.#cursorTime()), 0: () => this.fit(),
      Enter: () => { if (this.#cursor !== null && this.#cursor.index >= 0) this.#enter(this.#cursor.index); },
      Escape: () => { this.#cursor = null; this.#hide(); this.draw(); },
    };
    const act = acts[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  #cursorTime() {
    const index = this.#cursor?.index ?? -1;
    return index < 0 ? null : (this.lanes.start[index] + this.lanes.end[index]) / 2;
  }

  #begin() {
    const row = this.#visible()[0];
    const index = this.lanes.after(this.rows[row].gpu, this.view[0]);
    this.#put(row, index < this.lanes.range(this.rows[row].gpu)[1] ? index : -1);
  }

  #step(by) {
    if (this.#cursor === null) return this.#begin();
    const [first, last] = this.lanes.range(this.rows[this.#cursor.row].gpu);
    if (first === last) return undefined;
    const next = this.#cursor.index < 0 ? first : this.#cursor.index + by;
    return this.#put(this.#cursor.row, Math.max(first, Math.min(last - 1, next)));
  }

  #lane(by) {
    if (this.#cursor === null) return this.#begin();
    const row = Math.max(0, Math.min(this.rows.length - 1, this.#cursor.row + by));
    const time = this.#cursorTime() ?? this.view[0];
    const [first, last] = this.lanes.range(this.rows[row].gpu);
    return this.#put(row, first === last ? -1 : Math.min(last - 1, this.lanes.after(this.rows[row].gpu, time)));
  }

  #far(end) {
    if (this.#cursor === null) return this.#begin();
    const [first, last] = this.lanes.range(this.rows[this.#cursor.row].gpu);
    return first === last ? undefined : this.#put(this.#cursor.row, end ? last - 1 : first);
  }

  #put(row, index) {
    this.#cursor = {row, index};
    const {y, machine, index: number} = this.rows[row];
    const top = this.scroller.scrollTop;
    if (y < top) this.scroller.scrollTop = y;
    else if (y + this.lane > top + this.height - AXIS) this.scroller.scrollTop = y + this.lane - this.height + AXIS;
    if (index >= 0) {
      const span = this.view[1] - this.view[0];
      if (this.lanes.end[index] < this.view[0] || this.lanes.start[index] > this.view[1]) {
        this.#look(this.lanes.start[index] - span * 0.1, span);
      }
      announce(this.#words(this.rows[row], index).filter(Boolean).join(", "));
      const x = Math.max(this.gutter, this.x(this.lanes.start[index]));
      this.#show(this.rows[row], index, x, y - this.scroller.scrollTop + AXIS);
    } else {
      announce(`GPU ${number} of ${safe(machine)}: held by nobody`);
      this.#hide();
    }
    this.draw();
  }
}

// A colour in the byte order of canvases: red first, on little-endian machines.
function packed(text) {
  const hex = text.trim().slice(1);
  const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  const [red, green, blue] = [0, 2, 4].map((place) => parseInt(full.slice(place, place + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

export function niceStep(least) {
  const found = STEPS.find((step) => step >= least);
  if (found !== undefined) return found;
  const days = least / 86400;
  const ten = 10 ** Math.floor(Math.log10(days));
  return 86400 * ten * ([1, 2, 5, 10].find((factor) => factor * ten >= days) ?? 10);
}
