// Tables that sort, keep the focus while they change, and are walked through with arrow keys.

import {el, replace} from "./dom.js";

// columns: [{name, label, title, number, low (hidden when narrow), cell(row), value(row)}]
// key(row) names a row; href(row) is where its first cell leads, or null.
export class Table {
  #rows = new Map();
  #shown = [];

  constructor({caption, columns, key, href = () => null, sort = null, empty = ""}) {
    Object.assign(this, {columns, key, href, sort, empty});
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

  // Rows that are the same as before keep their elements, and with them the focus.
  update(rows) {
    this.#shown = rows;
    const ordered = this.#sorted(rows);
    const known = new Map();
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
    for (const row of ordered) {
      const key = this.key(row);
      const stamp = JSON.stringify(row);
      const before = this.#rows.get(key);
      known.set(key, before !== undefined && before.stamp === stamp ? before : {stamp, node: this.#row(row, key)});
    }
    this.#rows = known;
    const nodes = [...known.values()].map((item) => item.node);
    const children = this.body.children;
    if (nodes.length !== children.length || nodes.some((node, place) => node !== children[place])) {
      this.body.replaceChildren(...nodes);
    }
    if (!nodes.length) replace(this.body, el("tr", {}, el("td.empty", {colspan: this.columns.length}, this.empty)));
    this.#rove(focused);
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

  #row(row, key) {
    const href = this.href(row);
    const cells = this.columns.map((column, place) => {
      const inside = column.cell(row);
      if (place) return el(`td${classes(column)}`, {}, inside);
      return el(`th${classes(column)}`, {scope: "row"}, href === null ? inside : el("a", {href, tabindex: -1}, inside));
    });
    const node = el("tr", {}, cells);
    node.dataset.key = key;
    return node;
  }

  // One row at a time is reached by Tab, the others by arrows.
  #rove(key) {
    const links = [...this.body.querySelectorAll("th a")];
    if (!links.length) return;
    const chosen = links.find((link) => link.closest("tr").dataset.key === key);
    for (const link of links) link.tabIndex = -1;
    (chosen ?? links[0]).tabIndex = 0;
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
