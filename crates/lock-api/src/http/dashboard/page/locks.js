// All locks in use, by name: searched by prefix, loaded as they are scrolled to, and kept as they are by the node's events.

import { get, query } from "./api.js";
import { el, setText, show } from "./dom.js";
import { List } from "./list.js";
import { openLock } from "./lock.js";
import { Pages } from "./pages.js";
import { follow } from "./stream.js";
import { age, count, party, plural } from "./words.js";

/** What is loaded at a time. */
const PAGE = 200;

/** Minimum interval between requests for the visible locks when the feed omits events. */
const REFRESH_MS = 1000;

function open(root, first) {
  let parameters = first;
  let prefix = first.prefix ?? "";
  let stop = () => {};
  let detail = null;
  let refreshDue = null;
  root.classList.add("fills");

  const search = el("input", { type: "search", placeholder: "Names that begin with …", "aria-label": "Search locks by prefix", value: prefix,
    autocomplete: "off", spellcheck: "false" });
  const failed = el("p", { class: "error", hidden: true });
  const split = el("div", { class: "split" });
  const list = new List({
    kind: "locks",
    label: "Locks",
    columns: [["Lock"], ["Mode", "wide"], ["Held by", "desk"], ["Since", "num wide"], ["Waiting", "num"]],
    key: (lock) => lock.lock,
    make: (name) => el("a", { href: address(name), "data-lock": name }, el("span", { role: "cell" }, el("span", { class: "name" }), el("span", { class: "sub" })),
      el("span", { role: "cell", class: "wide" }), el("span", { role: "cell", class: "desk" }), el("span", { role: "cell", class: "num wide soft" }),
      el("span", { role: "cell", class: "num" })),
    fill: fillRow,
    near: () => pages.more(),
    scrolled: () => refreshSoon(150),
  });
  const pages = new Pages({
    failed,
    ask: () => page(list.items.at(-1)?.lock, PAGE),
    take: ({ locks }) => {
      list.set(list.items.concat(locks.filter((lock) => !placeIn(list.items, lock.lock).found)).sort(byName));
      showFoot();
    },
  });
  split.append(list.element);
  show(root, el("div", { class: "head" }, el("h1", null, "Locks"), el("div", { class: "push" }, search)), failed, split);

  function address(name) {
    return `#/locks${query({ prefix, lock: name })}`;
  }

  function fillRow(row, lock) {
    const [name, mode, holder, since, waiting] = row.children;
    const held = holderText(lock);
    row.href = address(lock.lock);
    row.setAttribute("aria-selected", String(parameters.lock === lock.lock));
    setText(name.firstChild, lock.lock);
    setText(name.lastChild, held);
    setText(mode, lock.mode ?? "–");
    setText(holder, held);
    setText(since, lock.first_holder?.since_at ? age(lock.first_holder.since_at) : "–");
    show(waiting, lock.waiters > 0 ? el("span", { class: "badge warn" }, count(lock.waiters)) : el("span", { class: "soft" }, "–"));
  }

  function showFoot() {
    const known = list.items.length;
    const { isComplete } = pages;
    setText(list.foot, known === 0 && isComplete ? (prefix ? "No lock in use has a name that begins so." : "No lock is in use.")
      : isComplete ? plural(known, "lock") : `${plural(known, "lock")} so far; more as you scroll`);
  }

  async function page(after, size) {
    return get(`/v1/locks${query({ prefix, cursor: after, limit: size, holders: true })}`);
  }

  function onEvent(word, data) {
    if (word !== "happened") return;
    let isOther = false;
    const items = list.items.slice();
    for (const lock of data.locks) {
      const { at, found } = placeIn(items, lock.lock);
      const isFree = lock.holders + lock.waiters === 0;
      // Behind the last one that was loaded it comes with its page.
      if (!found && (isFree || (!pages.isComplete && at >= items.length))) continue;
      items.splice(at, found ? 1 : 0, ...(isFree ? [] : [lock]));
      if (found && !isFree) list.flash(lock.lock);
      isOther = true;
    }
    if (isOther) {
      list.set(items);
      showFoot();
    }
    if (data.more) refreshSoon(REFRESH_MS);
    if (detail && (data.more || data.locks.some((lock) => lock.lock === detail.name))) detail.changed();
  }

  /** Requests the visible locks again, because the feed has omitted events. */
  function refreshSoon(ms) {
    refreshDue ??= setTimeout(async () => {
      refreshDue = null;
      const isCurrent = pages.current();
      const [from, to] = list.range();
      if (!pages.isOpen || document.hidden || list.items.length === 0 || pages.isLoading) return;
      const [before, last] = [list.items[from - 1]?.lock ?? null, list.items[to - 1]?.lock ?? null];
      try {
        const { locks, next_cursor } = await page(before, Math.min(PAGE, to - from + 20));
        if (!isCurrent()) return;
        const end = next_cursor === null ? null : locks.at(-1)?.lock ?? last;
        const isWithin = (lock) => (before === null || compare(lock.lock, before) > 0) && (end === null || compare(lock.lock, end) <= 0);
        if (next_cursor === null) pages.isComplete = true;
        list.set(list.items.filter((lock) => !isWithin(lock)).concat(locks).sort(byName));
        showFoot();
      } catch {
        // The next event, or the next look, tries again; the header shows that the node does not answer.
      }
    }, ms);
  }

  function begin() {
    pages.begin();
    list.set([]);
    list.rows.scrollTop = 0;
    showFoot();
    stop();
    stop = follow(`/v1/events?${new URLSearchParams({ prefix, locks: true })}`, onEvent, () => {
      refreshSoon(0);
      detail?.changed();
    });
    pages.more();
  }

  function showDetail() {
    if (detail && detail.name === parameters.lock) return;
    detail?.close();
    detail?.element.remove();
    detail = null;
    split.toggleAttribute("data-open", Boolean(parameters.lock));
    if (parameters.lock) {
      detail = openLock(parameters.lock, `#/locks${query({ prefix })}`);
      split.append(detail.element);
    }
    list.refill();
  }

  let typed = null;
  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      prefix = search.value;
      history.replaceState(null, "", `#/locks${query({ prefix, lock: parameters.lock })}`);
      begin();
    }, 200);
  });

  // Ages grow by themselves.
  const aging = setInterval(() => !document.hidden && list.refill(), 5000);
  begin();
  showDetail();

  return {
    update(next) {
      parameters = next;
      if ((next.prefix ?? "") !== prefix) {
        prefix = next.prefix ?? "";
        search.value = prefix;
        begin();
      }
      showDetail();
    },
    close() {
      pages.end();
      clearInterval(aging);
      clearTimeout(refreshDue);
      clearTimeout(typed);
      stop();
      detail?.close();
      list.end();
    },
  };
}

/** As the cluster orders names: by their bytes in UTF-8, which is the order of code points, and not that of UTF-16. */
function compare(one, other) {
  const length = Math.min(one.length, other.length);
  for (let place = 0; place < length; place++) {
    const [a, b] = [one.charCodeAt(place), other.charCodeAt(place)];
    if (a !== b) return inOrder(a) - inOrder(b);
  }
  return one.length - other.length;
}

/** Halves of pairs stand for code points behind all that have a unit of their own. */
function inOrder(unit) {
  return unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}

const byName = (one, other) => compare(one.lock, other.lock);

/** Returns the index of a lock in a list, or the index at which it would be. */
function placeIn(items, name) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(items[middle].lock, name) < 0) low = middle + 1;
    else high = middle;
  }
  return { at: low, found: items[low]?.lock === name };
}

function holderText(lock) {
  if (lock.holders === 0) return "nobody yet";
  const first = lock.first_holder ? party(lock.first_holder) : "";
  return lock.holders > 1 ? `${first} and ${plural(lock.holders - 1, "other")}` : first;
}

export const locksView = { name: "locks", title: "Locks", open,
  icon: ["M6 11h12v9H6z", "M8.5 11V8a3.5 3.5 0 0 1 7 0v3"] };
