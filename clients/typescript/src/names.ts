/** Names of the HTTP API that differ between servers before and after version 1. Everything here accepts both. */

import type { Loss, LossReason } from "./errors.js";

/** Document of the API. */
export type Json = Record<string, any>;

/** Codes by which a znode is missing, or exists. */
export const NO_ZNODE: readonly string[] = ["no_znode", "no_node"];
export const ZNODE_EXISTS: readonly string[] = ["node_exists", "znode_exists"];
/** Codes of a route that the server does not know. */
export const NO_ROUTE: readonly string[] = ["no_route", "method_not_allowed"];
/** Query parameter of a watch that has the position of an earlier read: now, and before. */
export const WATCH_POSITION = ["zxid", "seen_zxid"] as const;

/** Returns the present name of an event of a session. */
export function eventName(name: string): string {
  return name === "revoke_requested" ? "release_requested" : name;
}

/** Returns the release requests in a heartbeat's answer or in an event `state`. */
export function releaseRequests(news: Json): Json[] {
  return (news["release_requested"] ?? news["revoke_requested"] ?? []) as Json[];
}

/** Returns the query parameter for the next page, if there is one. */
export function nextPage(page: Json): Record<string, string> | undefined {
  if (page["next_cursor"] != null) return { cursor: String(page["next_cursor"]) };
  if (page["next_after"] != null) return { after: String(page["next_after"]) };
  return undefined;
}

const ENDED: readonly string[] = ["broken", "deleted", "released", "max_hold"];

/** Returns the loss that an event `lost` reports. */
export function lossOf(news: Json): Loss {
  const reason = ENDED.includes(news["ended"]) ? (news["ended"] as LossReason) : "taken_away";
  return { reason, by: news["by"] ?? undefined, detail: news["reason"] || undefined };
}
