// Who looks, what that lets them do, and, for administrators, all tokens: to revoke what should count no more.

import { get, query, remove, setToken } from "./api.js";
import { confirmed } from "./dialog.js";
import { el, note, setText, show } from "./dom.js";
import { access, learn, mayAdminister } from "./rights.js";
import { clock, part } from "./words.js";

const PAGE = 100;

function open(root) {
  let [isOpen, after] = [true, null];
  const [you, rows] = [el("div", { class: "body" }), el("tbody")];
  const failed = el("p", { class: "error", hidden: true });
  const more = el("button", { type: "button", class: "small", hidden: true, onclick: () => load() }, "More");
  const tokens = el("section", { class: "sheet", hidden: true }, el("header", null, el("h2", null, "Tokens")),
    el("table", { class: "cards" }, el("thead", null, el("tr", null, ["Token", "Role", "Description", "Made", "Expires", ""].map((name) => el("th", null, name)))), rows),
    el("div", { class: "body" }, more));
  show(root, el("div", { class: "head" }, el("h1", null, "Access")), failed,
    el("section", { class: "sheet" }, el("header", null, el("h2", null, "You")), you), tokens);

  async function look() {
    try {
      await learn();
    } catch (error) {
      setText(failed, error.message);
      failed.hidden = error.status === 401;
    }
    if (!isOpen) return;
    showYou();
    tokens.hidden = !(access().secured && mayAdminister());
    if (!tokens.hidden) load();
  }

  function showYou() {
    const { secured, you: now } = access();
    const grants = now.grants;
    show(you, el("dl", { class: "facts" }, [
      ["Cluster", secured ? "secured" : "not secured: every caller has all rights"],
      ["You are", now.name ? `${now.kind} ${now.name}` : now.kind], ["Role", now.role ?? "none"],
      ["You may", grants === null ? "everything" : grants.length === 0 ? "nothing"
        : grants.map(({ path, rights }) => el("div", null, `${rights.join(", ")} at `, el("span", { class: "mono" }, path)))],
    ].map(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
    now.kind === "token" && el("p", null, el("br"), el("button", { type: "button", onclick: forget }, "Forget this token")));
  }

  function forget() {
    setToken(null);
    dispatchEvent(new Event("token"));
  }

  async function load() {
    try {
      const page = await get(`/v1/tokens${query({ cursor: after, limit: PAGE })}`);
      if (!isOpen) return;
      after = page.next_cursor;
      more.hidden = after === null;
      rows.append(...page.tokens.map(row));
    } catch (error) {
      setText(failed, error.message);
      failed.hidden = error.status === 401;
    }
  }

  function row(token) {
    const isOwn = access().you.name === token.id;
    const shown = el("tr", null,
      el("td", { class: "whole mono" }, token.id), el("td", { "data-label": "Role" }, el("span", { class: "badge" }, token.role)),
      el("td", { "data-label": "Description" }, token.description || "–"), el("td", { "data-label": "Made" }, clock(token.created_at)),
      el("td", { "data-label": "Expires" }, token.expires_at ? clock(token.expires_at) : "never"),
      el("td", null, el("div", { class: "acts" }, el("button", { type: "button", class: "small danger", onclick: revoke }, "Revoke"))));
    function revoke() {
      confirmed({
        title: "Revoke this token?",
        text: [isOwn ? "It is the one that you show yourself. " : "", "From now on nobody gets in with ", el("b", null, token.description || token.id), "."],
        action: "Revoke",
        act: (reason) => remove(`/v1/tokens/${part(token.id)}${query({ reason })}`),
      }).then((done) => {
        if (!done) return;
        shown.remove();
        note("The token was revoked.");
      });
    }
    return shown;
  }

  look();
  return { close: () => { isOpen = false; } };
}

export const accessView = { name: "access", title: "Access", open,
  icon: ["M12 3l7 3v5c0 4.5-3 8-7 10c-4-2-7-5.500-7-10V6z", "M9.500 12l2 2l3.500-4"] };
