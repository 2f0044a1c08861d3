/** Leases: locks without a session, which any process can renew and release. */

import { acquire } from "./acquire.js";
import { abortable, now } from "./clock.js";
import { type AcquireOptions, acquireRequest, type Core } from "./core.js";
import { Refused } from "./errors.js";
import type { Json } from "./names.js";
import { type Change, requestId, segment } from "./servers.js";

/** Options of a lease. Times are in milliseconds. */
export interface LeaseOptions extends Omit<AcquireOptions, "ttl" | "owner" | "poll"> {
  /** time after which the lock is free, unless the lease is renewed */
  readonly ttl: number;
  /** returns at once, if need be with a place in the queue in place of the lock, for which `Lease.wait` waits */
  readonly queue?: boolean | undefined;
}

/** Options of many leases. */
export type LeasesOptions = Pick<LeaseOptions, "ttl" | "note" | "signal">;

function mapped<T, U>(result: PromiseSettledResult<T>, map: (value: T) => U): PromiseSettledResult<U> {
  return result.status === "fulfilled" ? { status: "fulfilled", value: map(result.value) } : result;
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

  /** @internal */
  static async acquireMany(core: Core, names: readonly string[], options: LeasesOptions): Promise<PromiseSettledResult<Lease>[]> {
    const { ttl, note, signal } = options;
    const body = (): Json => ({ ttl_ms: ttl, note, wait_ms: 0, retry: 0, request_id: requestId() });
    const changes = names.map((name) => ({ method: "POST", path: `/v1/locks/${segment(name)}/acquire`, body: body() }) as const);
    const acquired = core.servers.batch(changes).then((results) =>
      results.map((each) => mapped(each, (grant) => new Lease(core, grant["lease"], grant["fencing_token"], grant["expires_in_ms"]))),
    );
    try {
      return await abortable(acquired, signal);
    } catch (error) {
      const held = acquired.then((results) => results.flatMap((each) => (each.status === "fulfilled" ? [each.value] : [])));
      core.servers.inBackground("releasing leases", held.then((leases) => Lease.releaseMany(core, leases)));
      throw error;
    }
  }

  /** @internal */
  static async renewMany(core: Core, leases: readonly Lease[], ttl?: number): Promise<PromiseSettledResult<number>[]> {
    const results = await core.servers.batch(leases.map((lease) => lease.renewal(ttl)));
    return results.map((each, at) => mapped(each, (state) => (leases[at] as Lease).note(state)["expires_in_ms"]));
  }

  /** @internal */
  static async releaseMany(core: Core, leases: readonly Lease[]): Promise<PromiseSettledResult<void>[]> {
    const changes = leases.map(({ text }) => ({ method: "DELETE", path: `/v1/leases/${segment(text)}` }) as const);
    return (await core.servers.batch(changes)).map((each) => mapped(each, () => undefined));
  }

  /** Renews it for `ttl` milliseconds, or for the time of before. Returns the milliseconds that are left. */
  async renew(ttl?: number): Promise<number> {
    return (await this.renewed(ttl))["expires_in_ms"];
  }

  private async renewed(ttl?: number, signal?: AbortSignal): Promise<Json> {
    const { method, path, body } = this.renewal(ttl);
    return this.note(await this.core.ask(method, path, body, signal));
  }

  private renewal(ttl?: number): Change {
    return { method: "POST", path: `/v1/leases/${segment(this.text)}/renew`, body: { ttl_ms: ttl, request_id: requestId() } };
  }

  /** Takes the answer to a renewal. */
  private note(state: Json): Json {
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
