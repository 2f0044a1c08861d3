/** What the parts of a gate share: its options, the sessions that are opened when they are needed, and the requests about locks. */

import { acquire } from "./acquire.js";
import { abortable, now, sleep } from "./clock.js";
import { GateClosed, LockLost, Refused } from "./errors.js";
import { Http, type TlsOptions, type Transport } from "./http.js";
import type { Hold, Life, Logger } from "./life.js";
import { type Json, NO_ROUTE } from "./names.js";
import { call, type Observer, requestId, segment, Servers, type Span, type Token } from "./servers.js";
import { Session } from "./session.js";

/** Time for a connection to one server. */
const CONNECT_WITHIN = 2000;

/** Longest time to wait for the event that explains a loss which an answer has shown without its reason. */
const TOLD_WITHIN = 500;

/** Options of a gate. Times are in milliseconds. */
export interface GateOptions {
  /** time after which the cluster gives the locks of a silent process to others (10 000) */
  readonly ttl?: number;
  /** text shown to people who look at the session */
  readonly name?: string;
  /** time for a call at all servers together, beside a wait (10 000) */
  readonly patience?: number;
  /** prefer the server that leads */
  readonly atLeader?: boolean;
  /** token, or provider that is called whenever one is needed; a session keeps the token with which it was opened */
  readonly token?: Token;
  /** TLS: `ca`, and `cert` and `key` of a client certificate. Addresses that begin with `https://` need none of them */
  readonly tls?: TlsOptions;
  /** `traceparent` of requests, or a function that returns it in the context of the caller */
  readonly traceparent?: string | (() => string | undefined);
  /** called after each request */
  readonly onRequest?: Observer;
  /** begins a span of OpenTelemetry for a request, in the context of the caller: `(operation) => tracer.startSpan(operation, …)` */
  readonly startSpan?: (operation: string) => Span;
  /** receiver of log lines; only warnings go to `console` by default */
  readonly logger?: Logger;
  /** way to the servers, for a fake */
  readonly transport?: Transport;
}

/** Mode of a lock. */
export type Mode = "exclusive" | "shared" | "upgradeable" | "semaphore";

/** One lock of an acquire. */
export interface LockWish {
  readonly name: string;
  readonly mode?: Mode | undefined;
  /** permits of a semaphore in all, and those that are taken (1) */
  readonly limit?: number | undefined;
  readonly permits?: number | undefined;
}

/** Options of an acquire. Times are in milliseconds. */
export interface AcquireOptions {
  /** longest wait; 0 tries, and without it the call waits until it is granted or aborted */
  readonly wait?: number | undefined;
  /** gives up the wait: the call leaves the queue, and gives back what was granted in the same moment */
  readonly signal?: AbortSignal | undefined;
  /** uses a session with this TTL in place of that of the gate */
  readonly ttl?: number | undefined;
  /** an owner may acquire its lock again; without one nothing is re-entered */
  readonly owner?: string | undefined;
  /** text shown to people who look at the lock, of at most 1,024 bytes */
  readonly note?: string | undefined;
  /** time for which nobody is granted the lock after this session has expired */
  readonly lockDelay?: number | undefined;
  /** time from the grant in which nobody else is granted the lock, even if it is released early */
  readonly minHold?: number | undefined;
  /** time after which the lock is lost, even if the session lives */
  readonly maxHold?: number | undefined;
  /** keeps no connection open while it waits, but asks by long polls: for proxies that cut idle connections. Not for several locks */
  readonly poll?: boolean | undefined;
}

const SILENT: Logger = { debug: () => undefined, warn: (line) => console.warn(`lockgate: ${line}`) };

/** Gates that have opened a session. They are closed when the program ends by itself. */
const open = new Set<Core>();

process.on("beforeExit", () => {
  for (const core of open) void core.closeSessions().catch((error: unknown) => core.log.warn(`a session was not closed at the end of the program: ${String(error)}`));
});

/** Inner side of one gate. */
export class Core {
  readonly servers: Servers;
  readonly log: Logger;
  readonly ttl: number;
  readonly counts: Record<string, number> = { requests: 0, sessions_opened: 0, acquired: 0, lost: 0 };
  private readonly sessions = new Map<number, Promise<Session>>();
  private current: Session | undefined;
  private closing: Promise<void> | undefined;

  constructor(
    servers: string | readonly string[],
    private readonly options: GateOptions,
  ) {
    const listed = (typeof servers === "string" ? servers.split(",") : servers).map((server) => server.trim());
    const addresses = listed.map((server) => server.replace(/^https?:\/\//, "").replace(/\/$/, ""));
    if (!addresses.length || !addresses.every((address) => /^.+:\d+$/.test(address))) throw new TypeError(`servers are HOST:PORT, not ${listed.join(",")}`);
    const tls = options.tls ?? (listed.some((server) => server.startsWith("https://")) ? {} : undefined);
    const { traceparent } = options;
    this.log = options.logger ?? SILENT;
    this.ttl = options.ttl ?? 10_000;
    this.servers = new Servers(
      {
        transport: options.transport ?? new Http(CONNECT_WITHIN, tls),
        patience: options.patience ?? 10_000,
        token: options.token,
        traceparent: typeof traceparent === "function" ? traceparent : () => traceparent,
        startSpan: options.startSpan,
        observer: (operation, outcome, ms) => this.observe(operation, outcome, ms),
        log: this.log,
        background: new Set(),
      },
      addresses,
    );
  }

  private observe(operation: string, outcome: string, ms: number): void {
    this.count("requests");
    this.count(`requests_${outcome}`);
    try {
      this.options.onRequest?.(operation, outcome, ms);
    } catch (error) {
      this.log.warn(`the callback for requests has failed: ${String(error)}`);
    }
  }

  private count(name: string): void {
    this.counts[name] = (this.counts[name] ?? 0) + 1;
  }

  /** Sends a request without a session. */
  ask(method: string, path: string, body?: Json, signal?: AbortSignal): Promise<Json> {
    return this.servers.ask(call(method, path, body), undefined, signal);
  }

  // Sessions.

  /** Session of the default TTL, if it lives. */
  get session(): Session | undefined {
    return this.current?.life.loss() ? undefined : this.current;
  }

  /** Returns the session with this TTL. Opens one at the first call, and after a loss. */
  async liveSession(ttl = this.ttl): Promise<Session> {
    while (true) {
      if (this.closing) throw new GateClosed();
      const opening = this.sessions.get(ttl) ?? this.open(ttl);
      const session = await opening;
      if (!session.life.loss()) return session;
      if (this.sessions.get(ttl) !== opening) continue;
      this.sessions.delete(ttl);
      // The cluster may still have it: others need not wait for its end.
      this.servers.inBackground("closing a lost session", session.close());
    }
  }

  private open(ttl: number): Promise<Session> {
    const opening = Session.open(this.servers, ttl, this.options.name, this.options.atLeader ?? false);
    this.sessions.set(ttl, opening);
    open.add(this);
    opening.then(
      (session) => {
        this.count("sessions_opened");
        if (ttl === this.ttl) this.current = session;
      },
      () => this.sessions.delete(ttl),
    );
    return opening;
  }

  /** Closes the sessions. A later call opens a new one. */
  async closeSessions(): Promise<void> {
    open.delete(this);
    const opened = await Promise.allSettled(this.sessions.values());
    this.sessions.clear();
    const closed = await Promise.allSettled(opened.map(async (each) => each.status === "fulfilled" && each.value.close()));
    for (const each of closed) if (each.status === "rejected") throw each.reason;
  }

  /** Closes the gate. Calls that wait end with an error. */
  close(): Promise<void> {
    this.closing ??= (async () => {
      try {
        await this.closeSessions();
      } finally {
        this.servers.closed = true;
        const { background, transport } = this.servers.options;
        while (background.size) await Promise.all(background);
        transport.close();
      }
    })();
    return this.closing;
  }

  // Locks.

  /** Acquires the locks, in whatever session lives then: the loss of one in which nothing is held yet is nobody's concern. */
  async acquire(locks: readonly LockWish[], options: AcquireOptions): Promise<{ session: Session; holds: Hold[] }> {
    const until = now() + (options.wait ?? Infinity);
    const [path, body] = acquireRequest(locks, options);
    while (true) {
      const session = await abortable(this.liveSession(options.ttl), options.signal);
      const wait = options.wait === 0 ? 0 : Math.max(0, until - now());
      const undo = (granted: Json): Promise<void> => this.releaseGrants(session, grantsOf(granted));
      const { servers, life } = session;
      let granted: Json;
      try {
        granted = await acquire({ servers, life, path, body: { ...body, session: session.id }, wait, signal: options.signal, undo });
      } catch (error) {
        session.ended(error);
        const ended = (error instanceof LockLost && error.loss.reason !== "closed") || (error instanceof Refused && error.endsSession);
        if (ended && !this.closing && now() < until) continue;
        throw error;
      }
      this.count("acquired");
      const holds = grantsOf(granted).map((grant) => session.enter(grant));
      for (const hold of holds) if (hold.entries === 1) hold.onLost.add((loss) => loss.reason !== "closed" && this.count("lost"));
      return { session, holds };
    }
  }

  /** Releases one entry of each. Throws `LockLost` if one was lost before. */
  async release(session: Session, holds: readonly Hold[]): Promise<void> {
    const lost = holds.map((hold) => hold.loss()).find((loss) => loss);
    for (const hold of holds) session.life.leave(hold);
    const alive = holds.filter((hold) => !hold.loss());
    if (alive.length) {
      try {
        await this.releaseGrants(session, alive);
      } catch (error) {
        throw await explained(session.life, alive, error);
      }
    }
    if (lost) throw new LockLost(lost);
  }

  private async releaseGrants(session: Session, grants: readonly { lock: string; holder: string }[]): Promise<void> {
    const [only] = grants;
    if (!only) return;
    const body: Json = { session: session.id, request_id: requestId() };
    if (grants.length === 1) {
      await this.ofSession(session, `/v1/locks/${segment(only.lock)}/release`, { ...body, holder: only.holder });
      return;
    }
    const holders = grants.map(({ lock, holder }) => ({ lock, holder }));
    const answer = await this.ofSession(session, "/v1/multilock/release", { ...body, holders });
    if (answer["released"].some((each: Json) => each["holds"] === null)) throw new Refused("not_holder", "one of the locks was lost before");
  }

  /** Sends a request about a hold: for the patience, or for as long as the session may live without a heartbeat. */
  async ofSession(session: Session, path: string, body: Json): Promise<Json> {
    try {
      return await session.servers.ask(call("POST", path, body), Math.max(session.life.ttl, this.servers.options.patience));
    } catch (error) {
      session.ended(error);
      throw error;
    }
  }

  /** Sends a request whose address has changed with version 1. */
  async askRenamed(lock: string, present: string, former: string, body: Json): Promise<void> {
    const path = `/v1/locks/${segment(lock)}/`;
    try {
      await this.ask("POST", path + present, body);
    } catch (error) {
      if (!(error instanceof Refused && NO_ROUTE.includes(error.code))) throw error;
      await this.ask("POST", path + former, body);
    }
  }

  /** Returns holders and queue. A lock that nobody uses has neither. */
  async inspect(lock: string): Promise<Json> {
    try {
      return await this.ask("GET", `/v1/locks/${segment(lock)}?linearizable=true`);
    } catch (error) {
      if (!(error instanceof Refused && error.code === "no_lock")) throw error;
      return { lock, holders: [], queue: [] };
    }
  }
}

/** Returns path and body of an acquire. Without an owner nothing is re-entered. */
export function acquireRequest(locks: readonly LockWish[], options: AcquireOptions): [path: string, body: Json] {
  const reentrant = options.owner !== undefined;
  const [only, ...others] = locks;
  if (!only) throw new TypeError("at least one lock is needed");
  const { owner, note, lockDelay: lock_delay_ms, minHold: min_hold_ms, maxHold: max_hold_ms, poll } = options;
  const common = { owner, note, lock_delay_ms, min_hold_ms, max_hold_ms, wait: poll ? "queue" : undefined };
  const wishes = locks.map(({ name, mode = "exclusive", limit, permits }) => ({
    ...{ name, mode, limit, permits },
    ...(mode === "semaphore" ? {} : { reentrant }),
  }));
  if (others.length) return ["/v1/multilock/acquire", { locks: wishes, ...common }];
  return [`/v1/locks/${segment(only.name)}/acquire`, { ...wishes[0], name: undefined, ...common }];
}

/** Returns the grants of an answer, in the order of the request. */
function grantsOf(granted: Json): (Json & { lock: string; holder: string })[] {
  return granted["holders"] ?? [granted];
}

/** Returns the error for the caller of a request about holds: the loss, if one is lost, with the reason that an event gives. */
export async function explained(life: Life, holds: readonly Hold[], error: unknown): Promise<unknown> {
  const lost = (): LockLost | undefined => {
    const loss = life.loss() ?? holds.map((hold) => hold.loss() ?? life.whyGone(hold.holder)).find((each) => each);
    return loss && new LockLost(loss, { cause: error });
  };
  if (!(error instanceof Refused && error.code === "not_holder")) return life.loss() ? lost() : error;
  const until = now() + (life.followed ? TOLD_WITHIN : 0);
  while (!lost() && now() < until) await sleep(10, true);
  return lost() ?? new LockLost({ reason: "taken_away" }, { cause: error });
}
