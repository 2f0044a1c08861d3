/** Leases: locks without a session, which any process can renew and release. */

import { acquire } from "./acquire.js";
import { type AcquireOptions, acquireRequest, type Core } from "./core.js";
import type { Json } from "./names.js";
import { requestId, segment } from "./servers.js";

/** Options of a lease. Times are in milliseconds. */
export interface LeaseOptions extends Omit<AcquireOptions, "ttl" | "owner"> {
  /** time after which the lock is free, unless the lease is renewed */
  readonly ttl: number;
  /** time from the grant in which nobody else is granted the lock, even if it is released early */
  readonly minHold?: number;
}

/** Lock with a time to live of its own. Whoever knows its `text` can renew and release it. */
export class Lease implements AsyncDisposable {
  /** @internal */
  constructor(
    private readonly core: Core,
    readonly text: string,
    /** fencing token; unknown before the first renewal of a lease that was written down */
    public token?: number,
    /** milliseconds that were left at the last answer */
    public expiresIn?: number,
  ) {}

  /** @internal */
  static async acquire(core: Core, name: string, options: LeaseOptions): Promise<Lease> {
    const [path, { reentrant: _, ...body }] = acquireRequest([{ name }], options);
    const { ttl, wait = 0, signal, minHold } = options;
    const undo = (late: Json): Promise<void> => new Lease(core, late["lease"]).release();
    const wanted = { ...body, ttl_ms: ttl, min_hold_ms: minHold };
    const granted = await acquire({ servers: core.servers, life: undefined, path, body: wanted, wait, signal, undo });
    return new Lease(core, granted["lease"], granted["fencing_token"], granted["expires_in_ms"]);
  }

  /** Renews it for `ttl` milliseconds, or for the time of before. Returns the milliseconds that are left. */
  async renew(ttl?: number): Promise<number> {
    const renewed = await this.core.ask("POST", `/v1/leases/${segment(this.text)}/renew`, { ttl_ms: ttl, request_id: requestId() });
    this.token = renewed["fencing_token"];
    this.expiresIn = renewed["expires_in_ms"];
    return renewed["expires_in_ms"];
  }

  /** Releases the lock. May be repeated. */
  async release(): Promise<void> {
    await this.core.ask("DELETE", `/v1/leases/${segment(this.text)}`);
  }

  /** Returns lock, fencing token, time that is left, and note, as the HTTP API has them. */
  inspect(): Promise<Json> {
    return this.core.ask("GET", `/v1/leases/${segment(this.text)}`);
  }

  /** Releases the lock at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
