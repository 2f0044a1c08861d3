// Drawing of the graph of waits: owners, the locks that they hold, and the locks that they wait for. Chains go from left to right.

import { get, query } from "./api.js";
import { el, setText, show, svg } from "./dom.js";
import { follow } from "./stream.js";
import { count, plural } from "./words.js";

/** Asked again at most so often. */
const LOOK_EVERY_MS = 1500;

/** Maximum number of waits in the picture. With more it is unreadable, and a prefix helps. */
const MAX_DRAWN = 80;

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [164, 42, 56, 14];

function open(root, first) {
  let prefix = first.prefix ?? "";
  let [isOpen, looked, due] = [true, 0, null];
  let stop = () => {};
  let typed = null;
  let before = "";
  root.classList.add("fills");
  const search = el("input", { type: "search", placeholder: "Locks that begin with …", "aria-label": "Search locks by prefix", value: prefix,
    autocomplete: "off", spellcheck: "false" });
  const lead = el("p", { class: "lead" });
  const failed = el("p", { class: "error", hidden: true });
  const picture = el("div", { class: "graph", tabindex: 0, role: "img", "aria-label": "Graph of waits" });
  show(root, el("div", { class: "head" }, el("h1", null, "Waits"), lead, el("div", { class: "push" }, search)), failed,
    el("section", { class: "sheet list" }, picture,
      el("p", { class: "legend" }, el("span", null, "dashed: waits for the lock"), el("span", null, "solid: the lock is held by"))));

  async function look() {
    looked = Date.now();
    try {
      const graph = await get(`/v1/lock-graph${query({ prefix })}`);
      if (!isOpen) return;
      failed.hidden = true;
      const now = JSON.stringify(graph);
      if (now === before) return;
      before = now;
      const drawn = graph.waits.slice(0, MAX_DRAWN);
      const all = `${plural(graph.waits.length, "wait")}${graph.complete ? "" : " and more"}`;
      setText(lead, drawn.length < graph.waits.length ? `${count(drawn.length)} of ${all} drawn; search for fewer` : all);
      show(picture, drawn.length ? draw(drawn) : el("p", { class: "empty" }, "Nobody waits."));
    } catch (error) {
      if (!isOpen) return;
      setText(failed, error.message);
      failed.hidden = error.status === 401;
    }
  }

  function changed() {
    due ??= setTimeout(() => {
      due = null;
      if (isOpen && !document.hidden) look();
    }, Math.max(0, LOOK_EVERY_MS - (Date.now() - looked)));
  }

  function begin() {
    stop();
    stop = follow(`/v1/events?${new URLSearchParams({ prefix })}`, changed, changed);
    look();
  }

  search.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => {
      prefix = search.value;
      history.replaceState(null, "", `#/graph${query({ prefix })}`);
      begin();
    }, 200);
  });
  begin();
  return {
    close() {
      isOpen = false;
      clearTimeout(due);
      clearTimeout(typed);
      stop();
    },
  };
}

/** The parties and locks of these waits, and what leads from one to another. */
export function arrange(waits) {
  const nodes = new Map();
  const edges = new Map();
  const node = (key, make) => {
    if (!nodes.has(key)) nodes.set(key, { key, ...make() });
    return key;
  };
  const partyOf = ({ session, session_name, owner }) =>
    node(`party ${session} ${owner}`, () => ({ kind: "party", session, name: session_name, owner }));
  const edge = (from, to, kind) => edges.set(`${from}\n${to}`, { from, to, kind });
  for (const wait of waits) {
    const lock = node(`lock ${wait.lock}`, () => ({ kind: "lock", lock: wait.lock }));
    edge(partyOf(wait.waiter), lock, "waits");
    for (const other of wait.waits_for) {
      if (other.standing === "holds") edge(lock, partyOf(other), "holds");
    }
  }
  const next = new Map([...nodes.keys()].map((key) => [key, []]));
  for (const { from, to } of edges.values()) next.get(from).push(to);
  // Distance of each contender from the end of its chain; in a cycle one edge is ignored.
  const depth = new Map();
  const under = new Set();
  const depthOf = (key) => {
    if (depth.has(key)) return depth.get(key);
    if (under.has(key)) return -1;
    under.add(key);
    const deepest = Math.max(-1, ...next.get(key).map(depthOf));
    under.delete(key);
    depth.set(key, deepest + 1);
    return deepest + 1;
  };
  for (const key of nodes.keys()) depthOf(key);
  const deepest = Math.max(0, ...depth.values());
  const columns = [];
  for (const [key, of] of nodes) {
    of.column = deepest - depth.get(key);
    (columns[of.column] ??= []).push(of);
  }
  // Each beside those that it leads to, from the last column back, so that fewer lines cross.
  for (let place = columns.length - 1; place >= 0; place--) {
    const column = columns[place] ?? [];
    const middle = (of) => {
      const rows = next.get(of.key).map((key) => nodes.get(key).row).filter((row) => row !== undefined);
      return rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : Infinity;
    };
    column.sort((one, other) => middle(one) - middle(other) || 0);
    column.forEach((of, row) => { of.row = row; });
  }
  return { nodes, edges: [...edges.values()], columns };
}

function draw(waits) {
  const { nodes, edges, columns } = arrange(waits);
  const tallest = Math.max(...columns.map((column) => column?.length ?? 0));
  const [width, height] = [columns.length * (WIDTH + GAP_X) - GAP_X + 4, tallest * (HEIGHT + GAP_Y) + 4];
  const x = (of) => 2 + of.column * (WIDTH + GAP_X);
  const y = (of) => 2 + ((tallest - columns[of.column].length) / 2 + of.row) * (HEIGHT + GAP_Y);
  const arrow = (id, kind) => svg("marker", { id, class: kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0 L8 4 L0 8 Z" }));
  const lines = edges.map(({ from, to, kind }) => {
    const [one, other] = [nodes.get(from), nodes.get(to)];
    const [x1, y1, x2, y2] = [x(one) + WIDTH, y(one) + HEIGHT / 2, x(other), y(other) + HEIGHT / 2];
    const isBack = x2 <= x1;
    const bend = isBack ? 70 : (x2 - x1) / 2;
    return svg("path", { class: kind, d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": `url(#arrow-${kind})` });
  });
  const boxes = [...nodes.values()].map((of) => {
    const isLock = of.kind === "lock";
    const href = isLock ? `#/locks${query({ lock: of.lock })}` : `#/sessions${query({ session: of.session })}`;
    const name = isLock ? of.lock : of.name || of.session;
    const beside = of.owner || (of.name ? of.session : "session");
    return svg("a", { href, class: of.kind, transform: `translate(${x(of)} ${y(of)})` },
      svg("title", null, isLock ? `lock ${of.lock}` : `session ${of.session} ${of.name} ${of.owner}`),
      svg("rect", { width: WIDTH, height: HEIGHT, rx: isLock ? 6 : 20 }),
      svg("text", { x: 14, y: isLock ? 25 : 18 }, short(name, 19)),
      !isLock && svg("text", { class: "sub", x: 14, y: 33 }, short(beside, 22)));
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
    svg("defs", null, arrow("arrow-waits", "waits"), arrow("arrow-holds", "holds")), lines, boxes);
}

function short(text, length) {
  const all = [...text];
  return all.length <= length ? text : `${all.slice(0, length - 1).join("")}…`;
}

export const graphView = { name: "graph", title: "Waits", open,
  icon: ["M5 5.5h4v4H5zM15 14.5h4v4h-4zM15 5.5h4v4h-4z", "M9 7.5h6M7 9.5v7h8"] };
