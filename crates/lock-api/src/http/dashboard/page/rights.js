// Rights of the user, so that the page offers nothing else. The cluster checks each action again.

import { get } from "./api.js";

let known = { secured: false, you: { kind: "nobody", name: null, role: null, grants: null } };

export async function learn() {
  known = await get("/v1/access");
  return known;
}

export function access() {
  return known;
}

/** Whether there is a right at a path, or in `locks` of it. */
export function may(right, path) {
  const grants = known.you.grants;
  if (grants === null) return true;
  const covers = (prefix) => prefix === "/" || path === prefix || path.startsWith(`${prefix}/`);
  return grants.some((grant) => grant.rights.includes(right) && covers(grant.path));
}

export const mayLock = (right, lock) => may(right, `/locks/${lock}`);
export const mayAdminister = () => may("administer", "/");
