// The frame: which view is shown, whether the node answers, and whose token is shown.

import { get, linkIsUp, on, setToken, token } from "./api.js";
import { askForToken } from "./dialog.js";
import { el, icon, setText, show } from "./dom.js";
import { access, learn } from "./rights.js";
import { themeSwitch } from "./theme.js";
import { accessView } from "./access.js";
import { clusterView } from "./cluster.js";
import { eventsView } from "./events.js";
import { graphView } from "./graph.js";
import { locksView } from "./locks.js";
import { sessionsView } from "./sessions.js";
import { treeView } from "./tree.js";

/** How often it is looked how the cluster is. */
const LOOK_EVERY_MS = 1000;

const VIEWS = [clusterView, locksView, graphView, sessionsView, treeView, eventsView, accessView];

const main = document.getElementById("main");
let shown = null;
let asking = null;
/** A user who declines to enter a token is not asked again, and the node is not called again either. */
let declined = false;
let status = null;
let nodes = [];

/** `#/locks?prefix=a%2F` is the view `locks` with a parameter. */
function place() {
  const [name, text] = location.hash.replace(/^#\/?/, "").split("?");
  const view = VIEWS.find((view) => view.name === name) ?? clusterView;
  return { view, parameters: Object.fromEntries(new URLSearchParams(text ?? "")) };
}

function go() {
  const { view, parameters } = place();
  document.title = `${view.title} · Lockgate`;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (shown?.view === view) {
    shown.open.update?.(parameters);
    return;
  }
  shown?.open.close?.();
  main.scrollTop = 0;
  const root = el("div", { class: "view" });
  show(main, root);
  shown = { view, open: view.open(root, parameters) };
  if (status) shown.open.status?.(status);
}

/** Makes the view anew: it may show more, or less, than before. */
function again() {
  shown?.open.close?.();
  shown = null;
  go();
}

async function prove(problem, byHand = false) {
  if (asking || (declined && !byHand)) return;
  const hadToken = token() !== null;
  asking = askForToken(hadToken ? `The token that was shown does not count: ${problem.detail ?? ""}` : "");
  const text = await asking;
  asking = null;
  declined = text === null;
  showLink();
  // An invalid token is not sent again; otherwise a user who declines once could never enter another one.
  if (declined && !hadToken) return;
  setToken(text);
  await begin();
}

async function begin() {
  try {
    await learn();
  } catch (error) {
    if (error.status === 401) return;
  }
  showWho();
  again();
  look();
}

function showWho() {
  const { secured, you } = access();
  const button = document.getElementById("who");
  button.hidden = !secured;
  const name = you.kind === "nobody" ? "Show a token" : `${you.role ?? you.kind}`;
  setText(button, name);
  button.title = you.name ? `${you.kind} ${you.name}` : "";
}

function showStatus() {
  const where = document.getElementById("where");
  const line = status ? `${status.cluster} · node ${status.node_id}` : "";
  if (where.textContent !== line) {
    show(where, status ? [el("b", null, status.cluster), ` · node ${status.node_id}`] : []);
  }
  const alarms = document.querySelector('#views [data-view="cluster"] .count');
  setText(alarms, status?.alarms.length || "");
  alarms.toggleAttribute("data-alarm", Boolean(status?.alarms.length));
  for (const [view, number] of [["locks", status?.counts.locks], ["sessions", status?.counts.sessions]]) {
    setText(document.querySelector(`#views [data-view="${view}"] .count`), number?.toLocaleString("en-US") ?? "");
  }
}

function showLink() {
  const element = document.getElementById("link");
  if (declined) {
    element.dataset.state = "lost";
    setText(element, "no token was shown");
    return;
  }
  if (linkIsUp()) {
    element.dataset.state = "live";
    const leader = status?.leader;
    const text = leader ? `node ${leader} leads` : status ? "no leader" : "connected";
    if (status && !leader) element.dataset.state = "lost";
    setText(element, text);
    return;
  }
  element.dataset.state = "lost";
  // The page itself may go on at another node, if that is where this browser can reach it.
  const others = nodes.map((node) => [" ", el("a", { href: `${location.protocol}//${node.http}/${location.hash}` }, node.node_id)]);
  const text = status ? `node ${status.node_id} does not answer` : "this node does not answer";
  if (element.textContent.startsWith(text)) return;
  show(element, text, others.length ? el("span", { class: "long" }, ": go to node", others) : []);
}

let looking = false;

/** Looks how the cluster is: for all views, and to know that the node answers. */
async function look() {
  if (looking || asking || declined || document.hidden) return;
  looking = true;
  try {
    status = await get("/v1/cluster");
    nodes = status.members.filter((member) => member.node_id !== status.node_id);
    shown?.open.status?.(status);
  } catch (error) {
    shown?.open.statusFailed?.(error);
  } finally {
    looking = false;
  }
  showStatus();
  showLink();
}

function makeFrame() {
  show(document.getElementById("views"), VIEWS.map((view) =>
    el("a", { href: `#/${view.name}`, "data-view": view.name }, icon(...view.icon), el("span", null, view.title),
      el("span", { class: "count" }))));
  themeSwitch(document.getElementById("theme"));
  document.getElementById("who").addEventListener("click", () => {
    if (access().you.kind === "nobody") prove({}, true);
    else location.hash = "#/access";
  });
  on("refused", prove);
  on("link", () => showLink());
  addEventListener("hashchange", go);
  addEventListener("token", begin);
  document.addEventListener("visibilitychange", look);
  document.addEventListener("keydown", (event) => {
    const inField = event.target.closest?.("input, textarea, select, dialog");
    if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = VIEWS[Number(event.key) - 1];
    if (view) location.hash = `#/${view.name}`;
    else if (event.key === "/") {
      const search = main.querySelector('input[type="search"]');
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });
}

makeFrame();
go();
begin();
setInterval(look, LOOK_EVERY_MS);
