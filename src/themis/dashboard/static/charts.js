// Small charts as SVG. Each says in words what it shows.

import {el, svg} from "./dom.js";
import {niceStep} from "./timeline.js";
import {COLOURS} from "./palette.js";
import {number} from "./format.js";

const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

// A line the size of a word; `fair` draws the limit of fair values.
export function sparkline(points, {fair = null, label = ""} = {}) {
  const [wide, high] = [96, 24];
  if (points.length < 2) return el("span.muted", {}, points.length ? "one round" : "\u2013");
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  const [x0, x1] = [xs[0], xs[xs.length - 1]];
  let [low, most] = [Math.min(...ys, fair ?? Infinity), Math.max(...ys, fair ?? -Infinity)];
  if (most - low < 0.1) [low, most] = [low - 0.05, most + 0.05];
  const x = (value) => 2 + (value - x0) / (x1 - x0 || 1) * (wide - 4);
  const y = (value) => high - 3 - (value - low) / (most - low) * (high - 6);
  return svg("svg.spark", {viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": label},
    fair === null ? null : svg("line.limit", {x1: 0, x2: wide, y1: y(fair), y2: y(fair)}),
    svg("polyline.curve", {points: points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ")}),
    svg("circle.dot", {cx: x(x1), cy: y(ys[ys.length - 1]), r: 2.2}));
}

// How wide a chart is drawn, so that its text is as large as other text: about the width of the card
// that it will be in. Where that is wrong, or changes, it is scaled.
function room(full) {
  const page = Math.min(1400, document.documentElement.clientWidth);
  const inside = page - (page <= 760 ? 58 : 90);
  const beside = !full && page >= 904;  // two cards in a row
  return Math.max(280, beside ? (page - 148) / 2 : inside);
}

// series: [{name, points, step}]; x and y: {label, format, time}; full: in a card as wide as the page.
export function lineChart({series, x, y, limit = null, label, height = 220, full = false}) {
  const wide = room(full);
  const box = {left: 48, right: 26, top: 12, bottom: 38};
  const few = Math.max(2, Math.min(8, Math.floor(wide / 110)));
  const shown = series.filter((one) => one.points.length);
  if (!shown.length) return null;
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const one of shown) {
    for (const [px, py] of one.points) {
      if (px < x0) x0 = px;
      if (px > x1) x1 = px;
      if (py < y0) y0 = py;
      if (py > y1) y1 = py;
    }
  }
  if (limit !== null) [y0, y1] = [Math.min(y0, limit.at), Math.max(y1, limit.at)];
  if (y.zero) y0 = Math.min(0, y0);
  if (y1 - y0 < 1e-9 * Math.max(1, Math.abs(y1))) [y0, y1] = [y0 - 0.5, y1 + 0.5];
  const pad = (y1 - y0) * 0.06;
  [y0, y1] = [y.zero ? y0 : y0 - pad, y1 + pad];
  if (!(x1 > x0)) x1 = x0 + 1;
  const px = (value) => box.left + (value - x0) / (x1 - x0) * (wide - box.left - box.right);
  const py = (value) => height - box.bottom - (value - y0) / (y1 - y0) * (height - box.top - box.bottom);
  const parts = [];
  for (const tick of ticks(y0, y1, 4, y.whole)) {
    parts.push(svg("line.grid", {x1: box.left, x2: wide - box.right, y1: py(tick), y2: py(tick)}),
      svg("text.tick.end", {x: box.left - 6, y: py(tick) + 4}, (y.format ?? plain)(tick)));
  }
  for (const tick of x.time ? timeTicks(x0, x1, x.origin ?? 0, few) : ticks(x0, x1, few)) {
    parts.push(svg("line.mark", {x1: px(tick), x2: px(tick), y1: height - box.bottom, y2: height - box.bottom + 4}),
      svg("text.tick.middle", {x: px(tick), y: height - box.bottom + 17}, (x.format ?? plain)(tick)));
  }
  if (limit !== null) {
    parts.push(svg("line.limit", {x1: box.left, x2: wide - box.right, y1: py(limit.at), y2: py(limit.at)}),
      svg("text.tick.end", {x: wide - box.right, y: py(limit.at) - 4}, limit.label));
  }
  shown.forEach((one, place) => {
    parts.push(svg("polyline.curve", {
      points: path(one, px, py), stroke: COLOURS[place % COLOURS.length],
      "stroke-dasharray": DASHES[Math.floor(place / COLOURS.length) % DASHES.length],
    }));
  });
  parts.push(svg("text.axis.middle", {x: (box.left + wide - box.right) / 2, y: height - 4}, x.label));
  const drawing = svg("svg.chart", {viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": label}, parts);
  const key = shown.length < 2 ? null : el("ul.key", {}, shown.slice(0, 28).map((one, place) => el("li", {},
    svg("svg", {viewBox: "0 0 24 10", width: 24, height: 10, "aria-hidden": "true"}, svg("line.curve", {
      x1: 0, x2: 24, y1: 5, y2: 5, stroke: COLOURS[place % COLOURS.length],
      "stroke-dasharray": DASHES[Math.floor(place / COLOURS.length) % DASHES.length],
    })), one.name)), shown.length > 28 ? el("li", {}, `and ${shown.length - 28} more`) : null);
  return el("figure.plot", {}, drawing, key);
}

function path(one, px, py) {
  const parts = [];
  let before = null;
  for (const [x, y] of one.points) {
    if (one.step && before !== null) parts.push(`${px(x).toFixed(1)},${py(before).toFixed(1)}`);
    parts.push(`${px(x).toFixed(1)},${py(y).toFixed(1)}`);
    before = y;
  }
  return parts.join(" ");
}

const plain = (value) => number(value, Math.abs(value) < 10 && value % 1 ? 2 : 0);

function ticks(low, high, count, whole = false) {
  const rough = (high - low) / count;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const fine = ten * ([1, 2, 2.5, 5, 10].find((factor) => factor * ten >= rough) ?? 10);
  const step = whole ? Math.ceil(fine) : fine;
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) found.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return found;
}

function timeTicks(low, high, origin, count) {
  const step = niceStep((high - low) / count);
  const found = [];
  for (let tick = Math.ceil((low - origin) / step) * step + origin; tick <= high; tick += step) found.push(tick);
  return found;
}

// The share of values up to each value.
export function cumulated(values) {
  const points = [];
  values.forEach((value, place) => points.push([value, (place + 1) / values.length]));
  return values.length ? [[values[0], 0], ...points] : [];
}
