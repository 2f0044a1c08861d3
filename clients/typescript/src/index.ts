/**
 * Client of the Lockgate lock server.
 *
 *     const gate = new Gate(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"]);
 *     await using lock = await gate.acquire("orders/42", { wait: 10_000 });
 *     console.log(lock.token);
 *
 * Read the modules in this order: `errors`, `clock`, `life` (until when a lock is held), `servers` (what an answer means), `session`
 * (heartbeats and events), `acquire` (a call that waits), `core`, `lock`, `election`, `lease`, `gate`, `fake`.
 */

/// <reference lib="esnext.disposable" preserve="true" />

export type { AcquireOptions, GateOptions, LockWish, Mode } from "./core.js";
export { Election, Leadership } from "./election.js";
export { GateClosed, LockgateError, LockLost, NotAcquired, OutcomeUnknown, Refused, Unavailable } from "./errors.js";
export type { Loss, LossReason } from "./errors.js";
export { Gate } from "./gate.js";
export type { LockOptions, Znode, ZnodeMode } from "./gate.js";
export type { TlsOptions, Transport } from "./http.js";
export { Lease } from "./lease.js";
export type { LeaseOptions, LeasesOptions } from "./lease.js";
export type { Logger, ReleaseRequest } from "./life.js";
export { Lock } from "./lock.js";
export type { Observer, Span, Token } from "./servers.js";
