/** Access to the locks and znodes of a cluster. */

import { now } from "./clock.js";
import { type AcquireOptions, Core, explained, type GateOptions, type LockWish, type Mode } from "./core.js";
import { Election } from "./election.js";
import { LockgateError, LockLost, NotAcquired, Refused } from "./errors.js";
import { Lease, type LeaseOptions, type LeasesOptions } from "./lease.js";
import { Lock } from "./lock.js";
import { type Json, nextPage, WATCH_POSITION } from "./names.js";
import { query, requestId, segment, znodePath } from "./servers.js";

/** Options of an acquire, with the mode of the locks that are given by their name alone. */
export interface LockOptions extends AcquireOptions {
  /** `exclusive` if absent */
  readonly mode?: Mode | undefined;
  /** permits of a semaphore in all, and those that are taken (1) */
  readonly limit?: number | undefined;
  readonly permits?: number | undefined;
}

/** Modes of znodes. */
export type ZnodeMode =
  | "persistent"
  | "ephemeral"
  | "persistent_sequential"
  | "ephemeral_sequential"
  | "container"
  | "ttl"
  | "ttl_sequential";

/** Znode as it was read. `data` is `undefined` for null data. */
export interface Znode {
  readonly path: string;
  readonly data: Buffer | undefined;
  readonly text: string;
  readonly version: number;
  /** position of the last change of the data, for `watch` */
  readonly zxid: number;
  readonly stat: Json;
}

type Routine<T> = (signal: AbortSignal, lock: Lock) => Promise<T>;
type Names = string | readonly (string | LockWish)[];

/** Access to a cluster, with a session that is opened at the first lock and renewed in the background. */
export class Gate implements AsyncDisposable {
  /** @internal */ readonly core: Core;

  /** `servers`: `HOST:PORT` of each, or one text with commas. */
  constructor(servers: string | readonly string[], options: GateOptions = {}) {
    this.core = new Core(servers, options);
  }

  /** Acquires a lock. Throws `NotAcquired` if it is not free in time. */
  async acquire(name: string, options: LockOptions = {}): Promise<Lock> {
    return this.acquireAll([name], options);
  }

  /** Acquires a lock if it is free, and returns `undefined` otherwise. */
  async tryAcquire(name: string, options: Omit<LockOptions, "wait"> = {}): Promise<Lock | undefined> {
    try {
      return await this.acquire(name, { ...options, wait: 0 });
    } catch (error) {
      if (error instanceof NotAcquired) return undefined;
      throw error;
    }
  }

  /** Acquires several locks, all or none. Callers that want some of the same cannot deadlock. */
  async acquireAll(locks: readonly (string | LockWish)[], options: LockOptions = {}): Promise<Lock> {
    const { mode, limit, permits } = options;
    const wishes = locks.map((lock) => (typeof lock === "string" ? { name: lock, mode, limit, permits } : lock));
    const { session, holds } = await this.core.acquire(wishes, options);
    return new Lock(this.core, session, holds);
  }

  /**
   * Runs a routine under one or several locks, and releases them. The `signal` of the routine is aborted when a lock is lost, and the call then
   * rejects with `LockLost`, unless the routine fails with an error of its own. A number in place of the options is the TTL.
   */
  using<T>(names: Names, routine: Routine<T>): Promise<T>;
  using<T>(names: Names, options: LockOptions | number, routine: Routine<T>): Promise<T>;
  using<T>(names: Names, ttl: number, options: LockOptions, routine: Routine<T>): Promise<T>;
  async using<T>(names: Names, ...rest: [...(LockOptions | number)[], Routine<T>] | [Routine<T>]): Promise<T> {
    const routine = rest.pop() as Routine<T>;
    const options: LockOptions = Object.assign({}, ...rest.map((each) => (typeof each === "number" ? { ttl: each } : each)));
    const lock = await this.acquireAll(typeof names === "string" ? [names] : names, options);
    // A routine that waits for something that keeps nothing alive is still running.
    const alive = setInterval(() => lock.loss, 1000);
    let done: T;
    try {
      done = await routine(lock.signal, lock);
    } catch (error) {
      await lock.release().catch((failed: unknown) => this.core.log.debug(`${lock.name}, after an error: ${String(failed)}`));
      const { loss } = lock;
      if (loss && error instanceof Error && error.name === "AbortError") throw new LockLost(loss, { cause: error });
      throw error;
    } finally {
      clearInterval(alive);
    }
    await lock.release();
    return done;
  }

  /** Returns an election. */
  election(name: string): Election {
    return new Election(this.core, name);
  }

  /** Acquires a lock for `ttl`, without a session. Nothing renews it but `Lease.renew`. It does not wait unless `wait` says so. */
  lease(name: string, options: LeaseOptions): Promise<Lease> {
    return Lease.acquire(this.core, name, options);
  }

  /**
   * Acquires many locks for `ttl` each, by one request for each 128, without waiting. Settles each by itself, as `Promise.allSettled` does. If the
   * signal is aborted meanwhile, all are released.
   */
  leases(names: readonly string[], options: LeasesOptions): Promise<PromiseSettledResult<Lease>[]> {
    return Lease.acquireMany(this.core, names, options);
  }

  /** Renews many leases, by one request for each 128. Settles each with the milliseconds that are left. */
  renewLeases(leases: readonly Lease[], ttl?: number): Promise<PromiseSettledResult<number>[]> {
    return Lease.renewMany(this.core, leases, ttl);
  }

  /** Releases many leases, by one request for each 128. May be repeated. */
  releaseLeases(leases: readonly Lease[]): Promise<PromiseSettledResult<void>[]> {
    return Lease.releaseMany(this.core, leases);
  }

  /** Returns the lease that another process has written down. */
  resumeLease(text: string): Lease {
    return new Lease(this.core, text);
  }

  /** Returns who holds a lock (`holders`), and who waits for it (`queue`), as the HTTP API has them. */
  inspect(lock: string): Promise<Json> {
    return this.core.inspect(lock);
  }

  /** Asks the holders of a lock to release it. */
  requestRelease(lock: string, reason: string): Promise<void> {
    return this.core.askRenamed(lock, "release-request", "revoke", { reason, request_id: requestId() });
  }

  /** Takes a lock from its holders by force, or from one of them. They learn of it, but may be in the middle of a step. */
  async breakLock(lock: string, reason: string, holder?: string): Promise<void> {
    const holders: string[] = holder ? [holder] : (await this.inspect(lock))["holders"].map((each: Json) => each["holder"]);
    for (const each of holders) {
      await this.core.ask("POST", `/v1/locks/${segment(lock)}/break`, { holder: each, reason, request_id: requestId() });
    }
  }

  /** Creates a znode, and returns its path. Ephemeral ones live as long as the session of this gate. */
  async create(path: string, data: string | Uint8Array = "", options: { mode?: ZnodeMode; ttl?: number; parents?: boolean } = {}): Promise<string> {
    const { mode = "persistent", ttl, parents } = options;
    const session = mode.startsWith("ephemeral") ? (await this.core.liveSession()).id : undefined;
    const body = { ...dataField(data), mode, ttl_ms: ttl, parents, session, request_id: requestId() };
    return (await this.core.ask("POST", znode(path), body))["path"];
  }

  /** Reads a znode. */
  async get(path: string): Promise<Znode> {
    const { data, data_base64, stat } = await this.core.ask("GET", znode(path) + "?linearizable=true");
    const bytes = typeof data === "string" ? Buffer.from(data) : data_base64 ? Buffer.from(data_base64, "base64") : undefined;
    return { path, data: bytes, text: bytes?.toString() ?? "", version: stat["version"], zxid: stat["mzxid"], stat };
  }

  /** Replaces the data, if it has this version, and returns the new one. */
  async set(path: string, data: string | Uint8Array, version?: number): Promise<number> {
    const body = { ...dataField(data), request_id: requestId() };
    return (await this.core.ask("PUT", znode(path) + query({ version }), body))["stat"]["version"];
  }

  /** Deletes a znode, if it has this version. */
  async delete(path: string, options: { version?: number; recursive?: boolean } = {}): Promise<void> {
    const { version, recursive } = options;
    await this.core.ask("DELETE", znode(path) + query({ version, recursive: recursive || undefined, request_id: requestId() }));
  }

  /** Returns the names of the children, sorted. */
  async children(path: string): Promise<string[]> {
    const found: string[] = [];
    let page: Record<string, string> | undefined = {};
    while (page) {
      const answer: Json = await this.core.ask("GET", znode(path) + query({ children: true, linearizable: true, ...page }));
      found.push(...answer["children"].map((child: Json) => child["name"]));
      page = nextPage(answer);
    }
    return found.sort();
  }

  /**
   * Waits for one change: of `data`, `children`, or whether the znode `exists`. `since` is the `zxid` of an earlier read, after which no change
   * is missed. Returns `undefined` after `timeout`.
   */
  async watch(
    path: string,
    options: { kind?: "data" | "children" | "exists"; timeout?: number; since?: number; signal?: AbortSignal } = {},
  ): Promise<Json | undefined> {
    const { kind = "data", timeout = Infinity, since, signal } = options;
    const until = now() + timeout;
    let position: string | undefined = WATCH_POSITION[0];
    while (true) {
      const asked = query({ kind, [position]: since, linearizable: true });
      try {
        const event = await this.core.servers.poll(`/v1/watch${znodePath(path)}${asked}&timeout_ms`, until - now(), signal);
        if (event["event"]) return event;
      } catch (error) {
        if (!(error instanceof Refused && error.code === "bad_request" && since !== undefined && position === WATCH_POSITION[0])) throw error;
        position = WATCH_POSITION[1];
        continue;
      }
      if (now() >= until) return undefined;
    }
  }

  /** Applies all operations (as in the HTTP API) or none; with `whileHeld`, only while these locks are held, or with `LockLost`. */
  async transaction(operations: readonly Json[], whileHeld: Lock | readonly Lock[] = []): Promise<Json[]> {
    const guards = whileHeld instanceof Lock ? [whileHeld] : whileHeld;
    for (const guard of guards) guard.check();
    const holds = guards.flatMap((guard) => guard.holds);
    const held = holds.map((hold) => ({ held: { lock: hold.lock, fencing_token: hold.token } }));
    const session = guards[0]?.session;
    try {
      const answer = await this.core.ask("POST", "/v1/txn", { ops: [...held, ...operations], session: session?.id, request_id: requestId() });
      return answer["results"].slice(held.length);
    } catch (error) {
      throw session ? await explained(session.life, holds, error) : error;
    }
  }

  /** Session that holds the locks of this gate; `undefined` before the first one, and after a loss. */
  get sessionId(): string | undefined {
    return this.core.session?.id;
  }

  /** Time to live that the cluster has granted to the session. */
  get sessionTtl(): number | undefined {
    return this.core.session?.life.ttl;
  }

  /** Returns counts: `requests`, `requests_ok`, `requests_CODE`, `sessions_opened`, `acquired`, `lost`. */
  metrics(): Record<string, number> {
    return { ...this.core.counts };
  }

  /** Closes the session: its locks are free at once. Done when the program ends by itself, too; not at `process.exit` or a signal. */
  close(): Promise<void> {
    return this.core.close();
  }

  /** Closes the gate at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function dataField(data: string | Uint8Array): Json {
  return typeof data === "string" ? { data } : { data_base64: Buffer.from(data).toString("base64") };
}

function znode(path: string): string {
  if (!path.startsWith("/")) throw new LockgateError(`the path of a znode begins with a slash: ${path}`);
  return "/v1/znodes" + znodePath(path);
}
