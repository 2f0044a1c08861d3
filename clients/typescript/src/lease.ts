/** Leases: locks without a session, which any process can renew and release. */

import { acquire } from "./acquire.js";
import { now } from "./clock.js";
import { type AcquireOptions, acquireRequest, type Core } from "./core.js";
import { Refused } from "./errors.js";
import type { Json } from "./names.js";
import { requestId, segment } from "./servers.js";

/** Options of a lease. Times are in milliseconds. */
export interface LeaseOptions extends Omit<AcquireOptions, "ttl" | "owner" | "poll"> {
  /** time after which the lock is free, unless the lease is renewed */
  readonly ttl: number;
  /** returns at once, if need be with a place in the queue in place of the lock, for which `Lease.wait` waits */
  readonly queue?: boolean | undefined;
}

/** Lock with a time to live of its own. Whoever knows its `text` can renew and release it. */
export class Lease implements AsyncDisposable {
  /** @internal */
  constructor(
    private readonly core: Core,
    readonly text: string,
    /** fencing token; none in the queue, and unknown before the first renewal of a lease that was written down */
    public token?: number,
    /** milliseconds that were left at the last answer */
    public expiresIn?: number,
  ) {}

  /** @internal */
  static async acquire(core: Core, name: string, options: LeaseOptions): Promise<Lease> {
    const { ttl, signal, queue, ...rest } = options;
    const [path, { reentrant: _, ...body }] = acquireRequest([{ name }], { ...rest, poll: queue });
    const wait = queue ? 0 : (options.wait ?? 0);
    const undo = (late: Json): Promise<void> => new Lease(core, late["lease"]).release();
    const granted = await acquire({ servers: core.servers, life: undefined, path, body: { ...body, ttl_ms: ttl }, wait, signal, undo });
    return new Lease(core, granted["lease"], granted["fencing_token"] ?? undefined, granted["expires_in_ms"]);
  }

  /** Renews it for `ttl` milliseconds, or for the time of before. Returns the milliseconds that are left. */
  async renew(ttl?: number): Promise<number> {
    return (await this.renewed(ttl))["expires_in_ms"];
  }

  private async renewed(ttl?: number, signal?: AbortSignal): Promise<Json> {
    const body = { ttl_ms: ttl, request_id: requestId() };
    const state = await this.core.ask("POST", `/v1/leases/${segment(this.text)}/renew`, body, signal);
    this.token = state["fencing_token"] ?? undefined;
    this.expiresIn = state["expires_in_ms"];
    return state;
  }

  /**
   * Waits in the queue until the lease has its lock, and renews it meanwhile. Returns `false` when the time is over: the place in the queue stays
   * until the lease is released or ends.
   */
  async wait(options: { wait?: number | undefined; signal?: AbortSignal | undefined } = {}): Promise<boolean> {
    const until = now() + (options.wait ?? Infinity);
    while (true) {
      const sent = now();
      const state = await this.renewed(undefined, options.signal);
      const end = Math.min(until, sent + state["ttl_ms"] / 3);
      const path = `/v1/locks/${segment(state["lock"])}/holders/${segment(state["holder"])}?wait_ms`;
      let ended = this.token !== undefined;
      while (!ended && now() < end) {
        try {
          ended = (await this.core.servers.poll(path, end - now(), options.signal))["holder"] !== undefined;
        } catch (error) {
          if (!(error instanceof Refused && error.code === "holder_gone")) throw error;
          // The lease has ended with its place, as the renewal says.
          ended = true;
        }
      }
      if (this.token !== undefined) return true;
      if (!ended && now() >= until) return false;
    }
  }

  /** Releases the lock. May be repeated. */
  async release(): Promise<void> {
    await this.core.ask("DELETE", `/v1/leases/${segment(this.text)}`);
  }

  /** Returns lock, holder, state (`holds`, `waits`), fencing token, time that is left, and note, as the HTTP API has them. */
  inspect(): Promise<Json> {
    return this.core.ask("GET", `/v1/leases/${segment(this.text)}`);
  }

  /** Releases the lock at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
