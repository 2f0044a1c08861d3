// Requests to the node that this page comes from. The token stays in this tab: it is gone when the tab is closed.

import { heardTime } from "./words.js";

const KEY = "lockgate-token";

/** An answer takes no longer, unless the node is in trouble. */
const PATIENCE_MS = 10_000;

const listeners = { refused: [], link: [] };
let isUp = true;

/** Calls back when a token is needed (`refused`), or when the node answers or does not (`link`). */
export function on(what, callback) {
  listeners[what].push(callback);
}

export function link(up) {
  if (up === isUp) return;
  isUp = up;
  for (const callback of listeners.link) callback(up);
}

export function linkIsUp() {
  return isUp;
}

export function token() {
  return sessionStorage.getItem(KEY);
}

export function setToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** What a node refused, or that it did not answer: then `status` is 0. */
export class Refused extends Error {
  constructor(status, code, detail, problem = {}) {
    super(detail);
    Object.assign(this, { status, code, problem });
  }
}

export function headers() {
  const shown = token();
  return shown ? { Authorization: `Bearer ${shown}` } : {};
}

/** Builds the error for an invalid answer. */
export async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401) for (const callback of listeners.refused) callback(problem);
  return new Refused(response.status, problem.code ?? "", problem.detail ?? `status ${response.status}`, problem);
}

async function call(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: headers(),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE_MS),
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    link(false);
    throw new Refused(0, "no_answer", "this node does not answer");
  }
  heardTime(response.headers.get("date"));
  link(true);
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? null : response.json();
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

/** `query({prefix: "a", cursor: null})` is `?prefix=a`. */
export function query(parameters) {
  const said = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return said.length ? `?${new URLSearchParams(said)}` : "";
}
