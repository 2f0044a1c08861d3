// What happens, as it does: the latest first.

import { el, setText, show } from "./dom.js";
import { query } from "./api.js";
import { List } from "./list.js";
import { follow } from "./stream.js";
import { clock, duration, ending, party, plural } from "./words.js";

/** Maximum number of events in this page. */
const KEPT = 2000;

/** Number of earlier events to request. */
const LAST = 300;

const KINDS = {
  queued: ["waits", ""], granted: ["granted", "good"], downgraded: ["downgraded", ""], lost: ["lost", ""], left_queue: ["left queue", ""],
  release_requested: ["asked", "warn"], release_replied: ["answered", "warn"], closed: ["closed", "warn"], opened: ["opened", "good"],
  session_opened: ["session", ""], session_ended: ["session over", ""], access_changed: ["access", "accent"],
  leader_changed: ["leader", "accent"], members_changed: ["members", "accent"], alarm_began: ["alarm", "bad"], alarm_over: ["alarm over", "good"],
};

/** Events of the cluster come beside the others, and again from each node to which the page connects. */
const OF_CLUSTER = ["leader_changed", "members_changed", "alarm_began", "alarm_over"];

const GROUPS = {
  all: () => true,
  locks: (event) => event.lock !== undefined,
  losses: (event) => isLoss(event) || event.event === "release_requested",
  sessions: (event) => event.event.startsWith("session_"),
  access: (event) => event.event === "access_changed",
  cluster: (event) => OF_CLUSTER.includes(event.event),
};

function isLoss(event) {
  return ["broken", "session_expired", "expired", "deleted", "never_grantable", "forbidden", "max_hold"].includes(event.ended);
}

function open(root, first) {
  let group = GROUPS[first.group] ? first.group : "all";
  let [isPaused, waiting, missed] = [false, [], false];
  const known = [];
  root.classList.add("fills");
  const search = el("input", { type: "search", placeholder: "Text in it …", "aria-label": "Search in events", autocomplete: "off", spellcheck: "false" });
  const choice = el("select", { "aria-label": "Which events" }, Object.keys(GROUPS).map((name) => el("option", { value: name, selected: name === group }, name === "all" ? "all events" : name)));
  const pause = el("button", { type: "button", onclick: () => setPaused(!isPaused) }, "Pause");
  const list = new List({
    kind: "log",
    label: "Events",
    columns: [["Time"], ["What"], ["Of"], ["", "wide"]],
    key: (event) => event.id,
    make: () => el("a", null, el("span", { role: "cell", class: "soft mono" }), el("span", { role: "cell" }, el("span", { class: "badge" }), el("span", { class: "sub" })),
      el("span", { role: "cell", class: "wide name" }), el("span", { role: "cell", class: "wide soft" })),
    fill: fillRow,
  });
  show(root, el("div", { class: "head" }, el("h1", null, "Events"), el("div", { class: "push" }, search, choice, pause)), list.element);

  function fillRow(row, event) {
    const [time, what, of, about] = row.children;
    const [word, kind] = KINDS[event.event] ?? [event.event, ""];
    const said = event.ended && !event.event.startsWith("session_") ? ending(event.ended) : word;
    setText(time, clock(event.at));
    what.firstChild.setAttribute("class", `badge ${isLoss(event) ? "bad" : kind}`);
    setText(what.firstChild, said);
    setText(of, event.lock ?? event.session_name ?? event.session ?? event.by ?? (event.node_id ? `node ${event.node_id}` : ""));
    setText(about, details(event));
    setText(what.lastChild, `${of.textContent} ${about.textContent}`);
    if (event.lock !== undefined) row.href = `#/locks${query({ lock: event.lock })}`;
    else if (event.event === "session_opened") row.href = `#/sessions${query({ session: event.session })}`;
    else if (OF_CLUSTER.includes(event.event)) row.href = "#/cluster";
    else row.removeAttribute("href");
    row.tabIndex = 0;
  }

  function isMeant(event) {
    const text = search.value.toLowerCase();
    return GROUPS[group](event) && (text === "" || JSON.stringify(event).toLowerCase().includes(text));
  }

  function draw() {
    const items = known.filter(isMeant);
    const { scrollTop } = list.rows;
    const added = items.length - list.items.length;
    list.set(items);
    // A user who has scrolled down keeps the position.
    if (scrollTop > list.height && added > 0 && known.length < KEPT) list.rows.scrollTop = scrollTop + added * list.height;
    const rest = waiting.length ? ` · ${plural(waiting.length, "more event")} when you go on` : "";
    setText(list.foot, `${plural(items.length, "event")}${missed ? " · more events happened than are shown here" : ""}${rest}`);
  }

  function setPaused(now) {
    isPaused = now;
    setText(pause, isPaused ? "Go on" : "Pause");
    pause.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) take(waiting.splice(0));
  }

  function take(events) {
    known.unshift(...events.toReversed());
    known.length = Math.min(known.length, KEPT);
    draw();
  }

  function onEvent(word, data) {
    if (word !== "happened") return;
    missed ||= data.more && known.length > 0;
    const isKnown = ({ id }) => known.some((event) => event.id === id) || waiting.some((event) => event.id === id);
    const ofCluster = (data.cluster ?? []).filter((event) => !isKnown(event));
    const events = ofCluster.length ? [...data.events, ...ofCluster].sort((one, other) => Date.parse(one.at) - Date.parse(other.at)) : data.events;
    if (isPaused) {
      waiting.push(...events);
      waiting.splice(0, Math.max(0, waiting.length - KEPT));
      draw();
    } else take(events);
  }

  search.addEventListener("input", draw);
  choice.addEventListener("change", () => {
    group = choice.value;
    draw();
  });
  const stop = follow(`/v1/events${query({ last: LAST, cluster: true })}`, onEvent);
  draw();
  return {
    close() {
      stop();
      list.end();
    },
  };
}

function details(event) {
  const who = event.event.startsWith("session_") || !(event.session || event.holder) ? "" : party(event);
  const parts = [who, event.mode, event.fencing_token && `token ${event.fencing_token}`,
    event.event === "session_ended" && ending(event.ended), event.delay_ms && `for ${duration(event.delay_ms)}`,
    event.term && `term ${event.term}`, event.kind && event.kind.replaceAll("_", " "), event.detail, event.change, event.by && `by ${event.by}`, event.reason, event.answer, event.event === "session_opened" && event.address];
  return parts.filter(Boolean).join(" · ");
}

export const eventsView = { name: "events", title: "Events", open,
  icon: ["M5 6h14M5 12h14M5 18h9"] };
