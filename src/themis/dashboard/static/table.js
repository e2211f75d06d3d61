// Tables that sort, keep the focus while they change, and can be used with arrow keys.

import {el, replace} from "./dom.js";

// How many rows out of sight are redrawn with each change.
const ASIDE = 25;

// columns: [{name, label, title, number, low (hidden when narrow), cell(row), value(row), stamp(row)}]
// key(row) names a row; href(row) is the link of its first cell, or null. A cell is redrawn when its
// stamp changes; without a stamp, when its row is.
export class Table {
  #rows = new Map();
  #shown = [];
  #seen = new Set();
  #sight;

  constructor({caption, columns, key, href = () => null, sort = null, empty = ""}) {
    Object.assign(this, {columns, key, href, sort, empty});
    this.#sight = new IntersectionObserver((entries) => this.#look(entries), {rootMargin: "300px"});
    this.head = el("tr");
    this.body = el("tbody", {onkeydown: (event) => this.#keys(event)});
    this.node = el("div.scroll", {},
      el("table", {}, el("caption.unseen", {}, caption), el("thead", {}, this.head), this.body));
    this.#heads();
  }

  #heads() {
    replace(this.head, this.columns.map((column) => {
      const chosen = this.sort?.name === column.name;
      const order = chosen ? (this.sort.down ? "descending" : "ascending") : null;
      const mark = chosen ? (this.sort.down ? " \u25be" : " \u25b4") : "";
      const label = column.value
        ? el("button.sort", {type: "button", title: column.title, onclick: () => this.#order(column)}, column.label, el("span", {"aria-hidden": "true"}, mark))
        : el("span", {title: column.title}, column.label);
      return el(`th${classes(column)}`, {scope: "col", "aria-sort": order}, label);
    }));
  }

  #order(column) {
    const down = this.sort?.name === column.name ? !this.sort.down : Boolean(column.number);
    this.sort = {name: column.name, down};
    const had = this.head.contains(document.activeElement);
    this.#heads();
    this.update(this.#shown);
    if (had) this.head.children[this.columns.indexOf(column)].querySelector("button")?.focus();
  }

  // Rows keep their elements, and with them the focus. If many rows change all the time, those in
  // sight are redrawn at once, and some of the others each time, so that none stays old for long.
  update(rows) {
    this.#shown = rows;
    const ordered = this.#sorted(rows);
    const known = new Map();
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
    let aside = ASIDE;
    for (const row of ordered) {
      const key = this.key(row);
      const stamp = JSON.stringify(row);
      const item = this.#rows.get(key) ?? this.#made(row, key);
      if (item.stamp !== stamp) Object.assign(item, {row, stamp, stale: true});
      known.set(key, item);
    }
    for (const [key, item] of this.#rows) if (!known.has(key)) this.#drop(item);
    // The rows that have waited longest come first.
    for (const item of this.#rows.values()) {
      if (item.stale && (this.#seen.has(item.node) || aside-- > 0)) this.#draw(item);
    }
    this.#rows = new Map([...this.#rows].filter(([key, item]) => known.has(key) && item.stale));
    for (const [key, item] of known) if (!item.stale) this.#rows.set(key, item);
    if (known.size) this.#place([...known.values()].map((item) => item.node));
    else replace(this.body, el("tr", {}, el("td.empty", {colspan: this.columns.length}, this.empty)));
    this.#rove(focused);
  }

  // Puts rows into this order, and moves few of them.
  #place(nodes) {
    const wanted = new Set(nodes);
    for (const child of [...this.body.children]) if (!wanted.has(child)) child.remove();
    let next = this.body.firstChild;
    for (const node of nodes) {
      if (next !== null && next !== node && next.nextSibling === node) {
        const later = next;
        next = node;
        later.remove();
      }
      if (next === node) next = node.nextSibling;
      else this.body.insertBefore(node, next);
    }
  }

  #drop({node}) {
    this.#sight.unobserve(node);
    this.#seen.delete(node);
  }

  #look(entries) {
    for (const {target, isIntersecting} of entries) {
      if (!isIntersecting) this.#seen.delete(target);
      else this.#seen.add(target);
      const item = isIntersecting ? this.#rows.get(target.dataset.key) : undefined;
      if (item?.stale) this.#draw(item);
    }
  }

  #sorted(rows) {
    const column = this.columns.find((one) => one.name === this.sort?.name);
    if (column === undefined || !column.value) return rows;
    const sign = this.sort.down ? -1 : 1;
    return rows
      .map((row, place) => [column.value(row), place, row])
      .sort(([one, a], [two, b]) => {
        const [missing, absent] = [one === null || one === undefined, two === null || two === undefined];
        if (missing || absent) return missing - absent || a - b;
        return sign * (one < two ? -1 : one > two ? 1 : 0) || a - b;
      })
      .map((item) => item[2]);
  }

  #made(row, key) {
    const cells = this.columns.map((column, place) => el(`${place ? "td" : "th"}${classes(column)}`, place ? {} : {scope: "row"}));
    const item = {row, stamp: JSON.stringify(row), stale: false, cells, stamps: [], node: el("tr", {}, cells)};
    item.node.dataset.key = key;
    this.#draw(item);
    this.#sight.observe(item.node);
    return item;
  }

  #draw(item) {
    const {row, cells, stamps} = item;
    this.columns.forEach((column, place) => {
      const stamp = column.stamp ? column.stamp(row) : item.stamp;
      if (stamps[place] === stamp) return;
      stamps[place] = stamp;
      const href = place ? null : this.href(row);
      replace(cells[place], href === null ? column.cell(row) : el("a", {href, tabindex: -1}, column.cell(row)));
    });
    item.stale = false;
  }

  // One row at a time is reached by Tab, the others by arrows.
  #rove(key) {
    const links = [...this.body.querySelectorAll("th a")];
    if (!links.length) return;
    const chosen = links.find((link) => link.closest("tr").dataset.key === key);
    const one = chosen ?? links[0];
    for (const link of links) if (link.tabIndex !== (link === one ? 0 : -1)) link.tabIndex = link === one ? 0 : -1;
    if (chosen !== undefined && document.activeElement !== chosen) chosen.focus({preventScroll: true});
  }

  #keys(event) {
    const links = [...this.body.querySelectorAll("th a")];
    const place = links.indexOf(document.activeElement);
    const next = {ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: links.length - 1}[event.key];
    if (place < 0 || next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const link = links[Math.max(0, Math.min(links.length - 1, next))];
    links[place].tabIndex = -1;
    link.tabIndex = 0;
    link.focus();
  }
}

function classes(column) {
  return (column.number ? ".number" : "") + (column.low ? ".low" : "") + (column.wide ? ".wide" : "");
}
