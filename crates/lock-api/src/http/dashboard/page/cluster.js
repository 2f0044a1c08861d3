// Condition of the cluster: its nodes, the leader, the lag of each node, their disks, and the alarms.

import { get, post } from "./api.js";
import { confirmed } from "./dialog.js";
import { el, note, setText, show, svg } from "./dom.js";
import { namespacesSheet } from "./namespaces.js";
import { mayAdminister } from "./rights.js";
import { bytes, clock, count, duration } from "./words.js";

/** The leader is asked how all are at most so often. */
const ASK_EVERY_MS = 2000;

/** Number of seconds of commits in the chart. */
const DRAWN = 90;

const ROLE = { leader: "accent", follower: "", candidate: "warn", learner: "" };

function open(root) {
  let [status, conditions, asked, isOpen] = [null, new Map(), 0, true];
  let condition = "";
  const commits = [];
  const figures = el("dl", { class: "sheet figures" });
  const alarms = el("div", { class: "view", hidden: true });
  const rows = el("tbody");
  const spark = svg("svg", { class: "spark", viewBox: `0 0 ${DRAWN - 1} 56`, preserveAspectRatio: "none", role: "img",
    "aria-label": "Commits per second" }, svg("path", { class: "area" }), svg("path"));
  const rate = el("span", { class: "soft" });
  const hand = el("button", { type: "button", onclick: () => handOver(null) }, "Hand leadership over");
  const changes = el("a", { href: "#/events?group=cluster" }, "Changes of leader and members");
  const title = el("h1", null, "Cluster");
  const lead = el("p", { class: "lead" });
  const failed = el("p", { class: "error", hidden: true });
  const namespaces = namespacesSheet();
  show(root,
    el("div", { class: "head" }, title, lead, el("div", { class: "push" }, changes, hand)),
    failed, alarms, figures,
    el("section", { class: "sheet" }, el("header", null, el("h2", null, "Nodes"), el("span", { class: "soft" }, "")),
      el("table", { class: "cards" },
        el("thead", null, el("tr", null, ["Node", "Role", "Address"].map((name) => el("th", null, name)),
          ["Behind", "Disk free", "Log sync"].map((name) => el("th", { class: "num" }, name)), el("th", null, "Version"),
          el("th", null, el("span", { hidden: true }, "Actions")))), rows)),
    namespaces.sheet,
    el("section", { class: "sheet" }, el("header", null, el("h2", null, "Commits per second"), rate),
      el("div", { class: "body" }, spark)));

  function handOver(node) {
    const to = node ? `node ${node}` : "the voter that has most of the log";
    return confirmed({
      title: node ? `Make node ${node} the leader?` : "Hand leadership over?",
      text: `Node ${status.leader} goes on as a follower, and ${to} leads. Writes wait some tens of milliseconds.`,
      action: "Hand over",
      danger: false,
      act: (reason) => post("/v1/cluster/leader", node ? { node_id: node, reason } : { reason }),
    }).then((done) => done && note("Leadership was handed over."));
  }

  async function ask() {
    if (Date.now() - asked < ASK_EVERY_MS) return;
    asked = Date.now();
    try {
      const { members } = await get("/v1/cluster/members");
      conditions = new Map(members.map((member) => [member.node_id, member]));
      condition = "";
    } catch (error) {
      // While nobody leads, nobody knows.
      conditions = new Map();
      condition = error.message;
    }
    if (isOpen && status) showNodes();
    // A node that does not answer is reported by the status.
    namespaces.refresh().catch(() => { namespaces.sheet.hidden = true; });
  }

  function showNodes() {
    hand.hidden = !mayAdminister();
    hand.disabled = !status.leader;
    show(rows, status.members.map((member) => {
      const news = conditions.get(member.node_id);
      const disk = news?.disk ?? (member.node_id === status.node_id ? status.disk : null);
      const isHere = member.node_id === status.node_id;
      const unheard = conditions.size > 0 && !news?.disk;
      const canLead = member.role === "follower" && mayAdminister() && status.leader && !unheard;
      return el("tr", { "data-node": member.node_id },
        el("td", { "data-label": "Node" }, el("b", null, member.node_id), isHere ? el("span", { class: "soft" }, " · this page") : ""),
        el("td", { "data-label": "Role" }, el("span", { class: "badges" },
          el("span", { class: `badge ${ROLE[member.role] ?? ""}` }, member.role),
          unheard && el("span", { class: "badge bad" }, "not heard"))),
        el("td", { "data-label": "Address" }, isHere ? el("span", { class: "mono" }, member.http)
          : el("a", { class: "mono", href: `${location.protocol}//${member.http}/#/cluster` }, member.http)),
        el("td", { class: "num", "data-label": "Behind" }, lag(news)),
        el("td", { class: "num", "data-label": "Disk free" }, space(disk)),
        el("td", { class: "num", "data-label": "Log sync" }, disk?.sync_us ? `${(disk.sync_us / 1000).toFixed(1)} ms` : "–"),
        el("td", { "data-label": "Version" }, member.versions?.program ?? "–"),
        el("td", { class: "whole" }, el("div", { class: "acts" },
          canLead && el("button", { type: "button", class: "small", onclick: () => handOver(member.node_id) }, "Make leader"))));
    }));
  }

  function draw() {
    const now = performance.now();
    const last = commits.at(-1);
    if (last && now - last.now < 500) return;
    const perSecond = last ? Math.max(0, ((status.committed_index - last.index) * 1000) / (now - last.now)) : null;
    commits.push({ now, index: status.committed_index, perSecond });
    while (commits.length > DRAWN + 1) commits.shift();
    const values = commits.slice(1).map((commit) => commit.perSecond);
    const most = Math.max(10, ...values);
    const x = (place) => DRAWN - values.length + place;
    const points = values.map((value, place) => `${x(place)} ${(54 - (50 * value) / most).toFixed(1)}`);
    const line = points.length < 2 ? "" : `M${points.join(" L")}`;
    spark.firstChild.setAttribute("d", line && `${line} L${DRAWN - 1} 56 L${x(0)} 56 Z`);
    spark.lastChild.setAttribute("d", line);
    const latest = values.at(-1);
    setText(rate, latest === undefined ? "" : `${count(Math.round(latest))} now · at most ${count(Math.round(most))} in view`);
  }

  return {
    status(now) {
      status = now;
      failed.hidden = true;
      setText(lead, now.read_only ? "read-only" : now.ready ? "" : now.not_ready_reason ?? "");
      showFigures(figures, now);
      showAlarms(alarms, now.alarms);
      showNodes();
      draw();
      ask();
    },
    statusFailed(error) {
      setText(failed, error.message);
      failed.hidden = error.status === 401;
    },
    close() {
      isOpen = false;
    },
  };
}

function lag(news) {
  if (!news || news.lag === null) return "–";
  return news.lag === 0 ? "up to date" : count(news.lag);
}

function space(disk) {
  if (!disk) return "–";
  const kind = disk.low || disk.log_full ? "badge bad" : "";
  return [el("span", { class: kind }, bytes(disk.free_bytes)), disk.log_full && el("div", { class: "soft" }, "log full")];
}

function showFigures(figures, now) {
  const all = [
    ["Leader", now.leader ? `node ${now.leader}` : "none", `term ${count(now.term)}`],
    ["Sessions", count(now.counts.sessions), ""],
    ["Locks in use", count(now.counts.locks), ""],
    ["Znodes", count(now.counts.znodes), ""],
    ["Watches here", count(now.counts.watches), ""],
    ["Committed", count(now.committed_index), now.committed_index > now.applied_index ? `${count(now.committed_index - now.applied_index)} to apply` : ""],
    ["Log", bytes(now.log_bytes), ""],
    ["Snapshot", bytes(now.snapshot_bytes), now.snapshot_age_ms === null ? "none yet" : `${duration(now.snapshot_age_ms)} old`],
  ];
  if (figures.children.length !== all.length) {
    show(figures, all.map(([name]) => el("div", null, el("dt", null, name), el("dd", null, el("span"), " ", el("small")))));
  }
  all.forEach(([, value, beside], place) => {
    const [first, second] = figures.children[place].lastChild.children;
    setText(first, value);
    setText(second, beside);
  });
}

function showAlarms(element, alarms) {
  element.hidden = alarms.length === 0;
  show(element, alarms.map((alarm) => el("div", { class: "alarm", role: "alert" },
    el("b", null, `${alarm.kind.replaceAll("_", " ")}${alarm.node_id ? ` · node ${alarm.node_id}` : ""}`),
    el("span", null, alarm.detail), el("span", { class: "soft" }, `${alarm.action} · since ${clock(alarm.since_at)}`))));
}

export const clusterView = { name: "cluster", title: "Cluster", open,
  icon: ["M4 5h16v5H4zM4 14h16v5H4z", "M8 7.5h.01M8 16.5h.01"] };
