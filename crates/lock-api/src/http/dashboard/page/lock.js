// One lock: its holders and waiters with their fencing tokens, the actions on it, and its history.

import { get, post, patch, query } from "./api.js";
import { confirmed } from "./dialog.js";
import { el, note, setText, show } from "./dom.js";
import { mayLock } from "./rights.js";
import { age, clock, count, duration, ending, part, party, plural } from "./words.js";

/** Maximum number of holders, and of waiters, in the page. */
const SHOWN = 100;

/** Looked at again at most so often, however much happens to it. */
const LOOK_EVERY_MS = 300;

/** Its history likewise. */
const HISTORY_EVERY_MS = 1500;

const HISTORY = 30;

/** Opens what is known of a lock; `back` is where closing it leads. */
export function openLock(name, back) {
  const address = `/v1/locks/${part(name)}`;
  let [isOpen, looked, due, historyLooked] = [true, 0, null, 0];
  let before = null;

  const badges = el("div", { class: "badges" });
  const failed = el("p", { class: "error", hidden: true });
  const [holders, queue, history] = [el("div"), el("div"), el("ol", { class: "timeline" })];
  const [holdersTitle, queueTitle, historyNote] = [el("span"), el("span"), el("p", { class: "soft" })];
  const revoke = el("button", { type: "button", class: "small", onclick: askAll }, "Ask to give up");
  const drain = el("button", { type: "button", class: "small", onclick: setDraining });
  const more = el("button", { type: "button", class: "small", hidden: true, onclick: () => showHistory(true) }, "Older");
  const element = el("article", { class: "sheet detail", "aria-label": `Lock ${name}` },
    el("header", null, el("div", null, el("h2", null, name), badges),
      el("div", { class: "push" }, el("a", { href: back, "aria-label": "Close" }, "Close"))),
    failed,
    el("section", { class: "holders" }, el("h3", null, holdersTitle, el("span", { class: "push" }, revoke, " ", drain)), holders),
    el("section", { class: "queue" }, el("h3", null, queueTitle), queue),
    el("section", null, el("h3", null, "History"), history, historyNote, more));
  let draining = false;

  async function look() {
    looked = Date.now();
    try {
      const lock = await get(`${address}${query({ limit: SHOWN })}`);
      if (!isOpen) return;
      failed.hidden = true;
      showLock(lock);
    } catch (error) {
      if (!isOpen) return;
      if (error.code === "no_lock") showLock({ holders: [], queue: [], holding: 0, waiting: 0, mode: null, limit: null });
      else {
        setText(failed, error.message);
        failed.hidden = false;
      }
    }
    if (Date.now() - historyLooked > HISTORY_EVERY_MS) showHistory(false);
  }

  function changed() {
    due ??= setTimeout(() => {
      due = null;
      if (isOpen && !document.hidden) look();
    }, Math.max(0, LOOK_EVERY_MS - (Date.now() - looked)));
  }

  function showLock(lock) {
    draining = Boolean(lock.draining);
    show(badges, lock.mode && el("span", { class: "badge accent" }, lock.mode),
      lock.limit && el("span", { class: "badge" }, `limit ${count(lock.limit)}`),
      !lock.mode && el("span", { class: "badge good" }, "free"),
      lock.draining && el("span", { class: "badge warn" }, "draining"),
      lock.closed && el("span", { class: "badge warn" }, `closed for ${duration(lock.closed.delay_ms)} after a loss`));
    setText(holdersTitle, lock.holding > 0 ? `Held by ${count(lock.holding)}` : "Held by nobody");
    setText(queueTitle, lock.waiting > 0 ? `${plural(lock.waiting, "waits", "wait")}` : "Nobody waits");
    revoke.hidden = !mayLock("break", name);
    revoke.disabled = lock.holding === 0;
    drain.hidden = !mayLock("administer", name);
    setText(drain, lock.draining ? "Stop draining" : "Drain");
    show(holders, lock.holders.map((entry) => contender(entry, true)), others(lock.holding - lock.holders.length));
    show(queue, lock.queue.map((entry) => contender(entry, false)), others(lock.waiting - lock.queue.length));
  }

  function others(number) {
    return number > 0 && el("p", { class: "soft" }, `and ${plural(number, "other")}`);
  }

  function contender(entry, holds) {
    const asked = entry.release_requested;
    return el("div", { class: "party", "data-holder": entry.holder },
      el("div", { class: "who" }, entry.position ? `${entry.position}. ` : "", party(entry)),
      el("div", { class: "about" }, [
        `token ${entry.fencing_token}`, entry.mode, entry.permits > 1 && plural(entry.permits, "permit"),
        entry.holds > 1 && `entered ${entry.holds} times`,
        `${holds ? "for" : "waits for"} ${age(entry.since_at)}`].filter(Boolean).join(" · ")),
      el("div", { class: "about" }, el("a", { href: `#/sessions${query({ session: entry.session })}` }, `session ${entry.session}`),
        entry.owner && ` · ${entry.owner}`, entry.address && ` · ${entry.address}`, entry.trace_id && ` · trace ${entry.trace_id}`),
      entry.upgrading_since_at && el("div", { class: "asked" }, `waits to be the only holder for ${age(entry.upgrading_since_at)}`),
      asked && el("div", { class: "asked" }, `asked to give up by ${asked.by} ${age(asked.requested_at)} ago: ${asked.reason}`,
        asked.answer !== null && el("b", null, ` — ${asked.answer}`)),
      mayLock("break", name) && el("div", { class: "acts" },
        el("button", { type: "button", class: "small danger", onclick: () => breakHolder(entry, holds) }, holds ? "Break" : "Remove")));
  }

  function breakHolder(entry, holds) {
    const who = el("b", null, party(entry));
    confirmed({
      title: holds ? "Break this hold?" : "Take out of the queue?",
      text: holds ? ["The lock is taken from ", who, ", which may continue to work for a while without knowing. The storage that it guards should check the fencing token."]
        : [who, " no longer waits, and gets an error."],
      action: holds ? "Break the lock" : "Remove",
      act: (reason) => post(`${address}/break`, { holder: entry.holder, reason }),
    }).then((done) => {
      if (done) note(holds ? `${name} was broken.` : "It waits no more.");
      look();
    });
  }

  function askAll() {
    confirmed({
      title: "Ask the holders to give up?",
      text: ["Each holder of ", el("b", null, name), " is asked, and may answer, release it, or go on."],
      action: "Ask",
      danger: false,
      act: (reason) => post(`${address}/release-request`, { reason }),
    }).then((done) => {
      if (done) note("They were asked.");
      look();
    });
  }

  function setDraining() {
    const will = !draining;
    confirmed({
      title: will ? "Drain this lock?" : "Let the queue go on?",
      text: will ? ["Nobody new gets ", el("b", null, name), " or into its queue. Holders stay until they release it."]
        : ["Waiters of ", el("b", null, name), " are granted again."],
      action: will ? "Drain" : "Stop draining",
      danger: will,
      act: (reason) => patch(address, { draining: will, reason }),
    }).then((done) => {
      if (done) note(will ? `${name} is drained.` : `${name} is open again.`);
      look();
    });
  }

  async function showHistory(older) {
    historyLooked = Date.now();
    try {
      const page = await get(`${address}/history${query({ limit: HISTORY, cursor: older ? before : null })}`);
      if (!isOpen) return;
      const entries = page.history.map(past);
      if (older) history.append(...entries);
      // The position stays while the user reads older ones.
      else if (history.children.length <= HISTORY) show(history, entries);
      else return;
      before = page.next_cursor;
      more.hidden = before === null;
      const gaps = page.gaps.length ? `This node missed something in ${plural(page.gaps.length, "period")}. ` : "";
      const nothing = history.children.length === 0 ? "Nobody is known to have held it. " : "";
      setText(historyNote, `${nothing}${gaps}`);
    } catch (error) {
      if (isOpen) setText(historyNote, error.code === "no_history" ? "History is switched off." : error.message);
    }
  }

  look();
  const aging = setInterval(() => changed(), 5000);
  return {
    name,
    element,
    changed,
    close() {
      isOpen = false;
      clearTimeout(due);
      clearInterval(aging);
    },
  };
}

function past(entry) {
  const end = entry.ended === null ? el("span", { class: "badge good" }, "holds")
    : el("span", { class: `badge ${entry.ended === "broken" || entry.ended === "session_expired" ? "bad" : ""}` }, ending(entry.ended));
  const length = entry.from_at && entry.until_at ? duration(Date.parse(entry.until_at) - Date.parse(entry.from_at)) : null;
  const about = [`token ${entry.fencing_token}`, entry.mode, length && `for ${length}`, entry.trace_id && `trace ${entry.trace_id}`, entry.by && `by ${entry.by}`, entry.reason];
  return el("li", null, el("span", { class: "soft", title: entry.from_at ?? "" }, clock(entry.from_at)),
    el("span", null, el("span", { class: "wrap" }, party(entry)), el("br"), el("span", { class: "soft" }, about.filter(Boolean).join(" · "))), end);
}
