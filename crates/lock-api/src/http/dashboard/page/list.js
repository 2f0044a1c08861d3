// A list of any length, of which only what is seen is there. Rows keep their elements for as long as they are seen, so what has
// the focus or is being read stays where it is.

import { el } from "./dom.js";

/** Rows beside what is seen, so that nothing is empty while it is scrolled. */
const MARGIN = 8;

export class List {
  /**
   * `make(key)` makes a row's element, `fill(element, item)` shows an item in it; `key(item)` identifies an item; `near()` is called
   * when the end comes near; `scrolled()` when other rows are seen.
   */
  constructor({ kind, label, columns, make, fill, key, near = () => {}, scrolled = () => {} }) {
    Object.assign(this, { make, fill, key, near, scrolled });
    this.items = [];
    this.shown = new Map();
    this.space = el("div", { class: "space", role: "rowgroup" });
    const names = columns.map(([name, kind]) => el("span", { role: "columnheader", class: kind }, name));
    // Within what scrolls, so that a scroll bar does not make the columns wider than the rows.
    const heads = el("div", { role: "rowgroup", class: "heads" }, el("div", { class: "columns", role: "row" }, names));
    this.rows = el("div", { class: "rows", tabindex: -1 }, heads, this.space);
    this.foot = el("p", { class: "foot" });
    this.element = el("div", { class: `list sheet ${kind}`, role: "table", "aria-label": label }, this.rows, this.foot);
    this.rows.addEventListener("scroll", () => this.draw(true), { passive: true });
    this.rows.addEventListener("keydown", (event) => this.moved(event));
    this.resized = new ResizeObserver(() => this.measure());
    this.resized.observe(this.rows);
    this.height = 36;
  }

  end() {
    this.resized.disconnect();
  }

  measure() {
    const said = parseInt(getComputedStyle(this.element).getPropertyValue("--row"), 10);
    this.height = said || 36;
    this.draw();
  }

  /** The first and the last place that is seen. */
  range() {
    const first = Math.max(0, Math.floor(this.rows.scrollTop / this.height));
    const last = Math.min(this.items.length, Math.ceil((this.rows.scrollTop + this.rows.clientHeight) / this.height));
    return [Math.min(first, this.items.length), last];
  }

  /** Shows these from now on, where the list was scrolled to. */
  set(items) {
    this.items = items;
    this.draw();
  }

  /** Draws once before the next picture, however often it is asked for. */
  draw(byScroll = false) {
    this.byScroll ||= byScroll;
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.drawNow();
      if (this.byScroll) this.scrolled();
      this.byScroll = false;
    });
  }

  drawNow() {
    const tall = `${this.items.length * this.height}px`;
    if (this.space.style.height !== tall) this.space.style.height = tall;
    const [first, last] = this.range();
    const [from, to] = [Math.max(0, first - MARGIN), Math.min(this.items.length, last + MARGIN)];
    const seen = new Set();
    for (let place = from; place < to; place++) {
      const item = this.items[place];
      const key = this.key(item);
      seen.add(key);
      let row = this.shown.get(key);
      if (!row) {
        row = { element: this.make(key), item: null, place: -1 };
        row.element.classList.add("row");
        row.element.setAttribute("role", "row");
        this.shown.set(key, row);
        this.space.append(row.element);
      }
      if (row.item !== item) {
        this.fill(row.element, item);
        row.item = item;
      }
      if (row.place !== place) {
        row.element.style.transform = `translateY(${place * this.height}px)`;
        row.element.setAttribute("aria-rowindex", place + 2);
        row.place = place;
      }
    }
    for (const [key, row] of this.shown) {
      if (seen.has(key)) continue;
      row.element.remove();
      this.shown.delete(key);
    }
    this.element.setAttribute("aria-rowcount", this.items.length + 1);
    if (to + 4 * MARGIN >= this.items.length) this.near();
  }

  /** Shows the rows anew that are seen, for what is not in their items. */
  refill() {
    for (const row of this.shown.values()) row.item = null;
    this.draw();
  }

  /** Shows for a moment that something has changed. */
  flash(key) {
    const row = this.shown.get(key)?.element;
    if (!row) return;
    row.classList.remove("changed");
    // A class that comes back in the same picture would not begin anew.
    requestAnimationFrame(() => row.classList.add("changed"));
  }

  /** The arrow keys go from row to row. */
  moved(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const rows = [...this.shown.values()].sort((one, other) => one.place - other.place);
    const now = rows.findIndex((row) => row.element.contains(document.activeElement));
    const next = rows[now < 0 ? 0 : now + step];
    if (!next) return;
    event.preventDefault();
    next.element.focus();
    next.element.scrollIntoView({ block: "nearest" });
  }
}
