// Elements from data. Text only ever becomes text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

// el("td.number", {title: "..."}, "text", node): classes after dots, then attributes, then children.
export function el(spec, attributes = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  return filled(node, classes, attributes, children);
}

export function svg(spec, attributes = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  return filled(document.createElementNS(SVG, tag), classes, attributes, children);
}

function filled(node, classes, attributes, children) {
  if (classes.length) node.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...nodes(children));
  return node;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

export function replace(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

let announced = "";

// Announce something to screen readers; the same text twice is announced once.
export function announce(text) {
  if (text === announced) return;
  announced = text;
  document.getElementById("announce").textContent = text;
}
