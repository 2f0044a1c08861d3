// The tree of znodes: one level at a time, with the data, the stat and the access control list of the znode that is looked at.

import { get, query } from "./api.js";
import { el, setText, show } from "./dom.js";
import { List } from "./list.js";
import { bytes, clock, count, duration, part, plural } from "./words.js";

const PAGE = 200;

/** Maximum length of the data that is shown. A browser has trouble with a line of a megabyte. */
const SHOWN_BYTES = 64 * 1024;

function open(root, first) {
  let path = null;
  let [generation, after, isComplete, isLoading] = [0, null, false, false];
  root.classList.add("fills");
  const crumbs = el("nav", { class: "crumbs", "aria-label": "Path" });
  const failed = el("p", { class: "error", hidden: true });
  const detail = el("article", { class: "sheet detail", "aria-label": "Znode" });
  const list = new List({
    kind: "znodes",
    label: "Children",
    columns: [["Child"], ["Children", "num"], ["Data", "num"]],
    key: (child) => child.name,
    make: (name) => el("a", { href: address(child(path, name)) }, el("span", { role: "cell", class: "name" }, name),
      el("span", { role: "cell", class: "num soft" }), el("span", { role: "cell", class: "num soft" })),
    fill: (row, { stat }) => {
      setText(row.children[1], stat.num_children ? count(stat.num_children) : "");
      setText(row.children[2], stat.data_length ? bytes(stat.data_length) : "");
    },
    near: loadMore,
  });
  const again = el("button", { type: "button", onclick: () => look(path) }, "Refresh");
  show(root, el("div", { class: "head" }, el("h1", null, "Znodes"), crumbs, el("div", { class: "push" }, again)), failed,
    el("div", { class: "split tree" }, list.element, detail));

  async function look(next) {
    generation += 1;
    const mine = generation;
    [path, after, isComplete, isLoading] = [next, null, true, true];
    show(crumbs, steps(path));
    list.set([]);
    // Rows of another znode's children lead elsewhere.
    list.drawNow();
    setText(list.foot, "");
    try {
      const node = await get(`/v1/znodes${encoded(path)}${query({ children: true, limit: PAGE })}`);
      if (mine !== generation) return;
      failed.hidden = true;
      took(node);
      showNode(detail, node);
      const acl = await get(`/v1/acl${encoded(path)}`).catch((error) => error);
      if (mine === generation) showAcl(detail, acl);
    } catch (error) {
      if (mine !== generation) return;
      setText(failed, error.message);
      failed.hidden = error.status === 401;
      show(detail);
    }
  }

  function took({ children, next_cursor, stat }) {
    [after, isComplete, isLoading] = [next_cursor, next_cursor === null, false];
    list.set(list.items.concat(children));
    setText(list.foot, list.items.length === 0 ? "No children." : isComplete ? plural(list.items.length, "child", "children")
      : `${count(list.items.length)} of ${plural(stat.num_children, "child", "children")}; more as you scroll`);
  }

  async function loadMore() {
    if (isLoading || isComplete || path === null) return;
    isLoading = true;
    const mine = generation;
    try {
      const node = await get(`/v1/znodes${encoded(path)}${query({ children: true, limit: PAGE, cursor: after })}`);
      if (mine === generation) took(node);
    } catch (error) {
      if (mine !== generation) return;
      // It goes on when the list is scrolled again, or refreshed.
      isLoading = false;
      setText(list.foot, error.message);
    }
  }

  look(first.path || "/");
  return {
    update(next) {
      if ((next.path || "/") !== path) look(next.path || "/");
    },
    close() {
      generation += 1;
      list.end();
    },
  };
}

const address = (path) => `#/tree${query({ path })}`;
const child = (path, name) => (path === "/" ? `/${name}` : `${path}/${name}`);
const encoded = (path) => path.split("/").map(part).join("/");

function steps(path) {
  const parts = path.split("/").filter(Boolean);
  const links = [el("a", { href: address("/") }, "/")];
  parts.forEach((name, place) => {
    if (place > 0) links.push(el("span", { class: "soft" }, "/"));
    links.push(el("a", { href: address(`/${parts.slice(0, place + 1).join("/")}`) }, name));
  });
  return links;
}

function showNode(detail, node) {
  const { stat } = node;
  const kind = stat.ephemeral_owner ? "ephemeral" : stat.container ? "container" : stat.ttl_ms !== null ? "TTL" : "persistent";
  const facts = [
    ["Created", when(stat.created_at, stat.czxid)], ["Changed", when(stat.modified_at, stat.mzxid)],
    ["Children changed", `at ${stat.pzxid}`], ["Version", `${stat.version} · of children ${stat.cversion} · of list ${stat.aversion}`],
    ["Children", count(stat.num_children)], ["Data", bytes(stat.data_length)],
    stat.ephemeral_owner && ["Session", el("a", { href: `#/sessions${query({ session: stat.ephemeral_owner })}` }, stat.ephemeral_owner)],
    stat.ttl_ms !== null && ["Time to live", duration(stat.ttl_ms)],
  ].filter(Boolean);
  show(detail,
    el("header", null, el("h2", null, node.path), el("span", { class: "badge" }, kind)),
    dataOf(node),
    el("section", null, el("h3", null, "Stat"), el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", null, name), el("dd", null, value)]))),
    el("section", { class: "acl", hidden: true }));
}

/** A time and a position. What is there from the beginning has neither. */
function when(at, zxid) {
  return zxid === 0 ? "with the cluster" : `${clock(at)} at ${zxid}`;
}

function showAcl(detail, acl) {
  const section = detail.querySelector(".acl");
  if (!section) return;
  section.hidden = false;
  show(section, el("h3", null, "Access control list"), acl instanceof Error ? el("p", { class: "soft" }, acl.message)
    : el("dl", { class: "facts" }, (acl.acl ?? []).map(({ perms, scheme, id }) => [el("dt", { class: "mono" }, perms), el("dd", null, `${scheme}: ${id}`)])));
}

function dataOf(node) {
  const all = typeof node.data === "string" ? new TextEncoder().encode(node.data) : fromBase64(node.data_base64 ?? "");
  const some = all.subarray(0, SHOWN_BYTES);
  const text = node.data !== undefined ? new TextDecoder().decode(some) : null;
  let tree;
  try {
    tree = text !== null && all.length === some.length ? JSON.parse(text) : undefined;
  } catch {
    tree = undefined;
  }
  const isDocument = tree !== null && typeof tree === "object";
  const shown = el("pre", { class: "data", tabindex: 0 });
  const ways = { Text: () => text, JSON: () => JSON.stringify(tree, null, 2), Hex: () => hex(some) };
  const offered = ["Text", isDocument && "JSON", "Hex"].filter((name) => name && (name !== "Text" || text !== null));
  const buttons = offered.map((name) => el("button", { type: "button", onclick: () => choose(name) }, name));
  const choose = (name) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
    shown.classList.toggle("hex", name === "Hex");
    setText(shown, ways[name]());
  };
  choose(isDocument ? "JSON" : offered[0]);
  return el("section", null,
    el("h3", null, "Data", all.length > 0 && el("span", { class: "push tabs", role: "group", "aria-label": "Shown as" }, buttons)),
    all.length > 0 ? shown : el("p", { class: "soft" }, "None."),
    all.length > some.length && el("p", { class: "soft" }, `The first ${bytes(some.length)} of ${bytes(all.length)}.`));
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

export const treeView = { name: "tree", title: "Znodes", open,
  icon: ["M5 4v12a2 2 0 0 0 2 2h4M5 8h6", "M11 6h8v4h-8zM11 16h8v4h-8z"] };
