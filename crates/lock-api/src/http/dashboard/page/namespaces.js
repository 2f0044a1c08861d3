// Namespaces with quotas that the user may see: the usage beside each quota.

import { get, query } from "./api.js";
import { el, setText, show } from "./dom.js";
import { bytes, count } from "./words.js";

const PAGE = 100;

/** The share of a quota from which on its usage is marked. */
const NEAR = 0.9;

const COLUMNS = [["Sessions", "sessions", count], ["Locks", "locks", count], ["Znodes", "znodes", count], ["Data", "bytes", bytes]];

/** The table, hidden while there is none, and the function that fills it. */
export function namespacesSheet() {
  const rows = el("tbody");
  const more = el("span", { class: "soft" });
  const names = [...COLUMNS.map(([name]) => name), "Requests/s"];
  const sheet = el("section", { class: "sheet", hidden: true },
    el("header", null, el("h2", null, "Namespaces"), more),
    el("table", { class: "cards" },
      el("thead", null, el("tr", null, el("th", null, "Namespace"), names.map((name) => el("th", { class: "num" }, name)))), rows));

  async function refresh() {
    const page = await get(`/v1/namespaces${query({ limit: PAGE })}`);
    sheet.hidden = page.namespaces.length === 0;
    setText(more, page.next_cursor ? `the first ${PAGE}` : "");
    show(rows, page.namespaces.map(row));
  }

  return { sheet, refresh };
}

function row({ namespace, usage, quotas }) {
  const cell = ([name, key, shown]) => {
    const [used, limit] = [usage[key], quotas[key]];
    const isNear = limit !== null && used >= NEAR * limit;
    const text = limit === null ? shown(used) : `${shown(used)} of ${shown(limit)}`;
    return el("td", { class: "num", "data-label": name }, el("span", { class: isNear && "badge bad" }, text));
  };
  const rate = quotas.requests_per_second;
  return el("tr", { "data-namespace": namespace },
    el("td", { "data-label": "Namespace" }, el("a", { href: `#/locks${query({ prefix: `${namespace}/` })}` }, namespace)),
    COLUMNS.map(cell), el("td", { class: "num", "data-label": "Requests/s" }, rate === null ? "–" : count(rate)));
}
