// Colours of apps: seven that people with any colour vision tell apart (Okabe and Ito), each in
// four patterns. style.css has the same colours for swatches; a test compares them. Names are always near: in labels, in the legend, under the pointer.

export const COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442"];
const INKS = ["#000", "#000", "#fff", "#000", "#fff", "#fff", "#000"];
export const PATTERNS = 4;
export const OTHERS = "#8a8f98";

export class Palette {
  #places = new Map();
  #fills = new Map();

  constructor(anonymous) {
    this.anonymous = anonymous;
  }

  // The first to come get the plainest looks, and keep them.
  place(name) {
    if (name === this.anonymous) return -1;
    let place = this.#places.get(name);
    if (place === undefined) {
      place = this.#places.size;
      this.#places.set(name, place);
    }
    return place;
  }

  look(name) {
    const place = this.place(name);
    if (place < 0) return {colour: OTHERS, ink: "#000", pattern: 0, swatch: "others"};
    const colour = place % COLOURS.length;
    const pattern = Math.floor(place / COLOURS.length) % PATTERNS;
    return {colour: COLOURS[colour], ink: INKS[colour], pattern, swatch: `c${colour}-p${pattern}`};
  }

  // What a canvas fills with: the colour, or its pattern.
  fill(context, look) {
    if (look.pattern === 0) return look.colour;
    const key = look.swatch;
    if (!this.#fills.has(key)) this.#fills.set(key, pattern(context, look));
    return this.#fills.get(key);
  }
}

function pattern(context, look) {
  const size = 8;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = look.colour;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = pen.fillStyle = look.ink === "#fff" ? "rgba(255,255,255,.5)" : "rgba(0,0,0,.38)";
  pen.lineWidth = 1.5;
  pen.beginPath();
  if (look.pattern === 1) {
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift, size);
      pen.lineTo(shift + size, 0);
    }
  } else if (look.pattern === 2) {
    pen.arc(2, 2, 1.3, 0, 7);
    pen.moveTo(7.3, 6);
    pen.arc(6, 6, 1.3, 0, 7);
    pen.fill();
    pen.beginPath();
  } else {
    pen.moveTo(0, 1.5);
    pen.lineTo(size, 1.5);
    pen.moveTo(1.5, 0);
    pen.lineTo(1.5, size);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
