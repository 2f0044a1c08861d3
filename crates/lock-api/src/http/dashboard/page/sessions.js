// All sessions, loaded as they are scrolled to: whose they are, when they were heard last, what they hold and wait for.

import { get, query, remove } from "./api.js";
import { confirmed } from "./dialog.js";
import { el, note, setText, show } from "./dom.js";
import { List } from "./list.js";
import { Pages } from "./pages.js";
import { access, mayAdminister } from "./rights.js";
import { age, clock, count, duration, part, plural } from "./words.js";

const PAGE = 200;

/** What is seen is asked for anew so often: heartbeats are no events. */
const REFRESH_MS = 3000;

function open(root, first) {
  let parameters = first;
  let prefix = first.prefix ?? "";
  let last = null;
  let detail = null;
  let typed = null;
  root.classList.add("fills");
  const search = el("input", { type: "search", placeholder: "Names or ids that begin with …", "aria-label": "Search sessions by prefix",
    value: prefix, autocomplete: "off", spellcheck: "false" });
  const failed = el("p", { class: "error", hidden: true });
  const split = el("div", { class: "split" });
  const list = new List({
    kind: "sessions",
    label: "Sessions",
    columns: [["Session"], ["Id", "wide"], ["Address", "wide"], ["Holds", "num"], ["Waits", "num"], ["TTL", "num wide"], ["Heard", "num wide"]],
    key: (session) => session.session,
    make: (id) => el("a", { href: address(id), "data-session": id },
      el("span", { role: "cell" }, el("span", { class: "title" }), el("span", { class: "sub mono" }, id)), el("span", { role: "cell", class: "wide mono soft" }, id),
      el("span", { role: "cell", class: "wide soft" }), el("span", { role: "cell", class: "num" }), el("span", { role: "cell", class: "num" }),
      el("span", { role: "cell", class: "num wide soft" }), el("span", { role: "cell", class: "num wide soft" })),
    fill: (row, session) => {
      const [name, , from, holds, waits, ttl, heard] = row.children;
      row.href = address(session.session);
      row.setAttribute("aria-selected", String(parameters.session === session.session));
      setText(name.firstChild, session.name || `session ${session.session}`);
      setText(from, session.address || "–");
      setText(holds, count(session.held.length));
      setText(waits, count(session.awaited.length));
      setText(ttl, duration(session.ttl_ms));
      setText(heard, session.last_heartbeat_at ? `${age(session.last_heartbeat_at)}` : "–");
    },
    near: () => pages.more(),
  });
  const pages = new Pages({
    failed,
    ask: () => get(`/v1/sessions${query({ prefix, cursor: last, limit: PAGE })}`),
    take: ({ sessions, next_cursor }) => {
      last = next_cursor;
      list.set(list.items.concat(sessions));
      showFoot();
    },
  });
  split.append(list.element);
  show(root, el("div", { class: "head" }, el("h1", null, "Sessions"), el("div", { class: "push" }, search)), failed, split);

  function address(id) {
    return `#/sessions${query({ prefix, session: id })}`;
  }

  function showFoot() {
    const known = list.items.length;
    const { isComplete } = pages;
    setText(list.foot, known === 0 && isComplete ? "No session." : isComplete ? plural(known, "session") : `${plural(known, "session")} so far; more as you scroll`);
  }

  /** What is seen, anew. Ids are drawn at random, so new ones come anywhere. */
  async function refresh() {
    if (!pages.isOpen || document.hidden || pages.isLoading) return;
    const isCurrent = pages.current();
    const [from, to] = list.range();
    const before = list.items[from - 1]?.session ?? null;
    try {
      const page = await get(`/v1/sessions${query({ prefix, cursor: before, limit: Math.max(20, to - from + 10) })}`);
      if (!isCurrent() || pages.isLoading) return;
      const end = page.next_cursor;
      const isWithin = ({ session }) => (before === null || session > before) && (end === null || session <= end);
      const kept = list.items.filter((session) => !isWithin(session));
      const at = before === null ? 0 : kept.findIndex(({ session }) => session > before);
      kept.splice(at < 0 ? kept.length : at, 0, ...page.sessions);
      if (end === null) pages.isComplete = true;
      else if (last !== null && end > last) last = end;
      list.set(kept);
      showFoot();
    } catch {
      // The next look tries again; the header shows that the node does not answer.
    }
    detail?.look();
  }

  function begin() {
    pages.begin();
    last = null;
    list.set([]);
    showFoot();
    pages.more();
  }

  function showDetail() {
    if (detail?.id === parameters.session) return;
    detail?.close();
    detail?.element.remove();
    detail = parameters.session ? openSession(parameters.session, `#/sessions${query({ prefix })}`) : null;
    split.toggleAttribute("data-open", Boolean(detail));
    if (detail) split.append(detail.element);
    list.refill();
  }

  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      prefix = search.value;
      history.replaceState(null, "", `#/sessions${query({ prefix, session: parameters.session })}`);
      begin();
    }, 200);
  });
  const timer = setInterval(refresh, REFRESH_MS);
  begin();
  showDetail();
  return {
    update(next) {
      parameters = next;
      showDetail();
    },
    close() {
      pages.end();
      clearInterval(timer);
      clearTimeout(typed);
      detail?.close();
      list.end();
    },
  };
}

function openSession(id, back) {
  let isOpen = true;
  const address = `/v1/sessions/${part(id)}`;
  const failed = el("p", { class: "error", hidden: true });
  const [title, body] = [el("h2", null, id), el("div")];
  const end = el("button", { type: "button", class: "small danger", onclick: endIt }, "End session");
  const element = el("article", { class: "sheet detail", "aria-label": `Session ${id}` },
    el("header", null, title, el("div", { class: "push" }, end, el("a", { href: back }, "Close"))), failed, body);

  async function look() {
    try {
      const session = await get(address);
      if (!isOpen) return;
      failed.hidden = true;
      setText(title, session.name || `session ${id}`);
      end.hidden = access().secured && !mayAdminister();
      show(body,
        el("section", null, el("dl", { class: "facts" }, [
          ["Id", el("span", { class: "mono" }, session.session)], ["Address", session.address || "–"], ["Opened", `${clock(session.opened_at)} (${age(session.opened_at)} ago)`],
          ["Heard", session.last_heartbeat_at ? `${age(session.last_heartbeat_at)} ago` : "only the leader knows"],
          ["Lives without a word", duration(session.ttl_ms)], ["Ephemeral znodes", count(session.ephemerals)],
        ].map(([name, value]) => [el("dt", null, name), el("dd", null, value)]))),
        standing("Holds", session.held), standing("Waits for", session.awaited));
    } catch (error) {
      if (!isOpen) return;
      const isOver = error.code === "session_expired" || error.code === "no_session";
      setText(failed, isOver ? "This session has ended." : error.message);
      failed.hidden = false;
      if (isOver) [end.hidden] = [true, show(body)];
    }
  }

  function endIt() {
    confirmed({
      title: "End this session?",
      text: ["All that ", el("b", null, title.textContent), " holds is released to the waiters, and its ephemeral znodes are deleted."],
      action: "End session",
      act: (reason) => remove(`${address}${query({ reason })}`),
    }).then((done) => {
      if (done) note("The session was ended.");
      look();
    });
  }

  look();
  return { id, element, look, close: () => { isOpen = false; } };
}

function standing(title, places) {
  const shown = places.slice(0, 200);
  return el("section", null, el("h3", null, `${title} ${plural(places.length, "lock")}`),
    shown.map(({ lock }) => el("div", { class: "wrap mono" }, el("a", { href: `#/locks${query({ lock })}` }, lock))),
    places.length > shown.length && el("p", { class: "soft" }, `and ${plural(places.length - shown.length, "other")}`));
}

export const sessionsView = { name: "sessions", title: "Sessions", open,
  icon: ["M12 12a4 4 0 1 0 0-8a4 4 0 0 0 0 8", "M4.5 20a7.5 7.5 0 0 1 15 0"] };
