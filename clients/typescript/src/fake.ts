/**
 * Cluster in memory, for the tests of programs that use this package. Gates are the real ones, over a transport that goes nowhere:
 *
 *     const cluster = new FakeCluster();
 *     const gate = cluster.gate();
 *     const lock = await gate.acquire("orders/42");
 *     cluster.breakLock("orders/42", "test");
 *     await lock.untilLost();
 *
 * It keeps the rules of locks, sessions, leases and simple znodes. Sessions end when they are closed or by `expireSessions`; time ends none. It
 * has no access control, no quotas, and no failures of servers.
 */

import type { GateOptions } from "./core.js";
import { Gate } from "./gate.js";
import type { Answer, Block, Request, Stream, Transport } from "./http.js";
import type { Json } from "./names.js";

class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
  ) {
    super(detail);
  }
}

interface Contender {
  readonly holder: string;
  readonly lock: string;
  readonly session: string;
  readonly wish: Json;
  mode: string;
  token: number;
  holds: number;
  upgrading: boolean;
}

/** Contenders of one acquire, which are granted together. */
interface Call {
  readonly contenders: Contender[];
  readonly changed: (() => void)[];
}

interface Session {
  readonly ttl: number;
  readonly streams: FakeStream[];
}

interface FakeZnode {
  data: string;
  version: number;
  mzxid: number;
  readonly session: string | undefined;
}

/** Cluster in memory. */
export class FakeCluster implements Transport {
  private numbers = 0;
  private zxid = 0;
  private readonly sessions = new Map<string, Session>();
  private readonly holders = new Map<string, Contender[]>();
  private queue: Call[] = [];
  private readonly calls = new Map<string, Call>();
  private readonly znodes = new Map<string, FakeZnode>([["/", { data: "", version: 0, mzxid: 0, session: undefined }]]);
  private readonly watchers = new Set<{ path: string; wake: () => void }>();

  /** Returns a gate to this cluster. Each has a session of its own. */
  gate(options: GateOptions = {}): Gate {
    return new Gate("fake:1", { ...options, transport: this });
  }

  /** Takes a lock from its holders. */
  breakLock(name: string, reason = ""): void {
    for (const each of [...this.held(name)]) this.end(each, "broken", reason);
    this.grant();
  }

  /** Asks the holders of a lock to release it. */
  requestRelease(name: string, reason = ""): void {
    for (const { session, holder } of this.held(name)) {
      const requested_at = String(++this.numbers);
      this.tell(session, "release_requested", { lock: name, holder, by: "test", reason, requested_at });
    }
  }

  /** Ends all sessions, as if no heartbeat had arrived for their TTL. */
  expireSessions(): void {
    for (const session of [...this.sessions.keys()]) this.endSession(session, "session_expired");
    this.grant();
  }

  // The transport.

  /** Answers a request. */
  send(_server: string, request: Request, signal: AbortSignal): Promise<Answer> {
    return this.answer(request, signal);
  }

  private async answer(request: Request, signal: AbortSignal): Promise<Answer> {
    const url = new URL(request.path, "http://fake");
    const parts = url.pathname.split("/").slice(2).map(decodeURIComponent);
    try {
      const body = request.body ? (JSON.parse(request.body) as Json) : {};
      const answer = await this.route(request.method, parts, url.searchParams, body, signal);
      return { status: 200, body: answer === undefined ? "" : JSON.stringify(answer) };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { status, code, message } = error;
      return { status, body: JSON.stringify({ status, code, detail: message }) };
    }
  }

  /** Opens the event stream of a session. */
  async stream(_server: string, request: Request): Promise<Stream> {
    const id = request.path.split("/")[3] ?? "";
    const session = this.alive(id);
    const stream = new FakeStream();
    session.streams.push(stream);
    const held = [...this.holders.values()].flat().filter((each) => each.session === id);
    stream.add("state", { zxid: this.zxid, held: held.map(view), awaited: [], release_requested: [] });
    return stream;
  }

  /** Closes nothing: the cluster may have other gates. */
  close(): void {
    return;
  }

  private async route(method: string, parts: string[], query: URLSearchParams, body: Json, signal: AbortSignal): Promise<Json | undefined> {
    const [kind, name = ""] = parts;
    const path = "/" + parts.slice(1).filter(Boolean).join("/");
    if (kind === "sessions") return this.session(method, parts, body);
    if (kind === "leases") return this.lease(method, name, body);
    if (kind === "locks" && parts[2] === "holders") return this.poll(parts[3] ?? "", Number(query.get("wait_ms")), signal);
    if (kind === "locks" || kind === "multilock") return this.lock(method, kind, name, parts.at(-1), query, body, signal);
    if (kind === "znodes") return this.znode(method, path, query, body);
    if (kind === "watch") return this.watch(path, Number(query.get("timeout_ms")), signal);
    if (kind === "txn") return this.transaction(body);
    if (kind === "batch") return { results: await Promise.all(body["requests"].map((each: Json) => this.one(each, signal))) };
    throw new Problem(404, "no_route", "the fake has no such route");
  }

  /** Returns the result of one request of a batch. */
  private async one(each: Json, signal: AbortSignal): Promise<Json> {
    const body = each["body"] && { body: JSON.stringify(each["body"]) };
    const answer = await this.answer({ method: each["method"] ?? "POST", path: each["path"], ...body }, signal);
    return { status: answer.status, ...(answer.body && { [answer.status < 400 ? "body" : "problem"]: JSON.parse(answer.body) }) };
  }

  // Sessions.

  private alive(id: string): Session {
    const session = this.sessions.get(id);
    if (!session) throw new Problem(410, "session_expired", "the session has ended");
    return session;
  }

  private session(method: string, parts: string[], body: Json): Json | undefined {
    const id = parts[1];
    if (id === undefined) {
      const session = `s${++this.numbers}`;
      this.sessions.set(session, { ttl: body["ttl_ms"], streams: [] });
      return { session, ttl_ms: body["ttl_ms"] };
    }
    if (method === "DELETE") {
      this.endSession(id, "session_closed");
      this.grant();
      return undefined;
    }
    return { ttl_ms: this.alive(id).ttl, leads: true, release_requested: [], held: [], complete: false };
  }

  private endSession(id: string, ended: string): void {
    const session = this.sessions.get(id);
    this.sessions.delete(id);
    for (const each of [...this.holders.values()].flat()) if (each.session === id) this.end(each, ended);
    for (const call of [...this.queue]) if (call.contenders[0]?.session === id) this.leave(call);
    for (const [path, znode] of this.znodes) if (znode.session === id) this.remove(path);
    for (const stream of session?.streams ?? []) stream.add("session_ended", { reason: ended });
  }

  private tell(session: string, event: string, data: Json): void {
    for (const stream of this.sessions.get(session)?.streams ?? []) stream.add(event, data);
  }

  // Locks.

  private held(name: string): Contender[] {
    const held = this.holders.get(name) ?? [];
    this.holders.set(name, held);
    return held;
  }

  private find(holder: string): Contender {
    const found = [...this.holders.values()].flat().find((each) => each.holder === holder);
    if (!found) throw new Problem(409, "not_holder", "the lock is not held");
    return found;
  }

  private async lock(
    method: string,
    kind: string,
    name: string,
    verb: string | undefined,
    query: URLSearchParams,
    body: Json,
    signal: AbortSignal,
  ): Promise<Json | undefined> {
    if (method === "GET" && verb === "check") return { held: this.held(name).some((each) => each.token === Number(query.get("fencing_token"))) };
    if (method === "GET") {
      const waiting = this.queue.flatMap((call) => call.contenders).filter((each) => each.lock === name);
      return { lock: name, holders: this.held(name).map(view), queue: waiting.map(view) };
    }
    if (verb === "acquire") return this.acquire(kind === "multilock" ? body["locks"] : [{ ...body, name }], body, signal);
    if (verb === "upgrade") return this.upgrade(this.find(body["holder"]), body["wait_ms"]);
    if (verb === "release-request") this.requestRelease(name, body["reason"]);
    else if (verb === "reply") this.find(body["holder"]);
    else if (verb === "break") this.end(this.find(body["holder"]), "broken", body["reason"]);
    else if (verb === "downgrade") {
      const contender = this.find(body["holder"]);
      contender.mode = body["mode"];
      this.grant();
      return view(contender);
    } else if (verb === "release") {
      const released = (body["holders"] ?? [{ lock: name, holder: body["holder"] }]).map((each: Json) => this.release(each));
      if (released.every((each: Json) => each["holds"] === null)) throw new Problem(409, "not_holder", "the lock is not held");
      this.grant();
      return kind === "multilock" ? { released } : released[0];
    }
    this.grant();
    return undefined;
  }

  private async acquire(wishes: Json[], body: Json, signal: AbortSignal): Promise<Json> {
    const isLease = body["session"] === undefined;
    const session: string = body["session"] ?? `lease-${body["request_id"]}`;
    const alive = (): unknown => isLease || this.alive(session);
    alive();
    const key = `${session} ${body["request_id"]}`;
    let call = this.calls.get(key);
    if (!call) {
      call = { contenders: wishes.map((wish) => this.contender(session, { ...body, ...wish })), changed: [] };
      this.calls.set(key, call);
      this.queue.push(call);
      this.grant();
    }
    const { contenders } = call;
    const lease = isLease ? { lease: session, expires_in_ms: body["ttl_ms"] } : {};
    const position = this.queue.indexOf(call) + 1;
    if (position && body["wait"] === "queue") return { ...view(contenders[0] as Contender), fencing_token: null, position, ...lease };
    const wait: number = body["wait_ms"] ?? Infinity;
    await this.changedOrOver(call, wait, signal);
    this.leave(call);
    signal.throwIfAborted();
    if (!contenders.every((each) => each.token)) {
      alive();
      throw new Problem(409, wait > 0 ? "lock_timeout" : "lock_busy", "the lock is not free");
    }
    const grants = contenders.map(view);
    if (wishes.length > 1) return { holders: grants };
    return { ...grants[0], ...lease };
  }

  private async changedOrOver(call: Call, wait: number, signal: AbortSignal): Promise<void> {
    if (!this.queue.includes(call) || wait <= 0) return;
    await new Promise<void>((resolve) => {
      const timer = wait === Infinity ? undefined : setTimeout(resolve, wait);
      signal.addEventListener("abort", () => resolve(), { once: true });
      call.changed.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Waits for a contender in the queue to be granted its lock. */
  private async poll(holder: string, wait: number, signal: AbortSignal): Promise<Json | undefined> {
    const call = this.queue.find((each) => each.contenders[0]?.holder === holder);
    if (call) await this.changedOrOver(call, wait, signal);
    if (call && this.queue.includes(call)) return undefined;
    const found = [...this.holders.values()].flat().find((each) => each.holder === holder);
    if (!found) throw new Problem(410, "holder_gone", "the contender is gone");
    return view(found);
  }

  private contender(session: string, wish: Json): Contender {
    const own = this.held(wish["name"]).find((each) => each.session === session && each.wish["owner"] === wish["owner"]);
    if (wish["reentrant"] && own) return own;
    const mode = wish["mode"] ?? "exclusive";
    return { holder: `h${++this.numbers}`, lock: wish["name"], session, wish, mode, token: 0, holds: 0, upgrading: false };
  }

  private leave(call: Call): void {
    if (!this.queue.includes(call)) return;
    this.queue = this.queue.filter((each) => each !== call);
    for (const wake of call.changed) wake();
    this.grant();
  }

  /** Grants in the order of the queue: nobody overtakes a waiting call for the same lock. */
  private grant(): void {
    const blocked = new Set<string>();
    for (const held of this.holders.values()) {
      for (const each of held) {
        if (!each.upgrading) continue;
        if (held.length === 1) Object.assign(each, { mode: "exclusive", upgrading: false, token: ++this.zxid });
        else blocked.add(each.lock);
      }
    }
    for (const call of this.queue) {
      const { contenders } = call;
      if (contenders.every((each) => !blocked.has(each.lock) && (each.token || this.fits(each)))) {
        this.queue = this.queue.filter((each) => each !== call);
        const token = ++this.zxid;
        for (const each of contenders) {
          if (!each.token) this.held(each.lock).push(each);
          each.token ||= token;
          each.holds += 1;
        }
        for (const wake of call.changed) wake();
      } else for (const each of contenders) blocked.add(each.lock);
    }
  }

  private fits({ lock, mode, wish }: Contender): boolean {
    const held = this.held(lock);
    const beside: Record<string, string[]> = { exclusive: [], shared: ["shared", "upgradeable"], upgradeable: ["shared"] };
    if (mode !== "semaphore") return held.every((each) => beside[mode]?.includes(each.mode));
    const limit: number = wish["limit"] ?? held.find((each) => each.wish["limit"])?.wish["limit"] ?? 1;
    return [...held.map((each) => each.wish), wish].reduce((sum, each) => sum + Number(each["permits"] ?? 1), 0) <= limit;
  }

  private release({ lock, holder }: Json): Json {
    const contender = this.held(lock).find((each) => each.holder === holder);
    if (!contender) return { lock, holder, holds: null };
    contender.holds -= 1;
    if (contender.holds === 0) this.drop(contender);
    return { lock, holder, holds: contender.holds };
  }

  private drop(contender: Contender): void {
    this.holders.set(
      contender.lock,
      this.held(contender.lock).filter((each) => each !== contender),
    );
    contender.token = 0;
  }

  private end(contender: Contender, ended: string, reason = ""): void {
    this.tell(contender.session, "lost", { ...view(contender), ended, by: "test", reason });
    this.drop(contender);
  }

  private async upgrade(contender: Contender, wait: number | null): Promise<Json> {
    contender.upgrading = contender.mode !== "exclusive";
    this.grant();
    const until = Date.now() + (wait ?? Infinity);
    while (contender.upgrading) {
      if (Date.now() >= until) {
        contender.upgrading = false;
        throw new Problem(409, wait ? "lock_timeout" : "lock_busy", "there are readers");
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return view(contender);
  }

  private lease(method: string, lease: string, body: Json): Json | undefined {
    if (method === "DELETE") {
      this.endSession(lease, "session_closed");
      this.grant();
      return undefined;
    }
    const contenders = [...this.queue.flatMap((call) => call.contenders), ...[...this.holders.values()].flat()];
    const found = contenders.find((each) => each.session === lease);
    if (!found) throw new Problem(410, "lease_expired", "the lease has ended");
    const ttl_ms = body["ttl_ms"] ?? found.wish["ttl_ms"];
    const state = found.token ? "holds" : "waits";
    const { lock, holder, token } = found;
    return { lock, holder, state, fencing_token: token || null, note: found.wish["note"] ?? "", ttl_ms, expires_in_ms: ttl_ms };
  }

  // Znodes.

  private znode(method: string, path: string, query: URLSearchParams, body: Json): Json | undefined {
    if (method === "POST") return this.create(path, body);
    const znode = this.znodes.get(path);
    if (!znode) throw new Problem(404, "no_znode", `there is no znode ${path}`);
    const children = this.children(path);
    if (method === "GET") return { path, data: znode.data, stat: stat(znode), children: children.map((name) => ({ name })), next_cursor: null };
    const version = body["version"] ?? query.get("version") ?? -1;
    if (![-1, znode.version].includes(Number(version))) throw new Problem(409, "bad_version", `the version is ${znode.version}`);
    if (method === "PUT") {
      znode.data = body["data"] ?? "";
      znode.version += 1;
      znode.mzxid = ++this.zxid;
      this.changed(path);
      return { stat: stat(znode) };
    }
    if (children.length && !query.has("recursive")) throw new Problem(409, "not_empty", `the znode ${path} has children`);
    this.remove(path);
    return undefined;
  }

  private children(path: string): string[] {
    const below = path.replace(/\/$/, "") + "/";
    const names = [...this.znodes.keys()].filter((each) => each.startsWith(below)).map((each) => each.slice(below.length));
    return names.filter((name) => name && !name.includes("/"));
  }

  private create(wanted: string, { mode = "persistent", data = "", parents, session }: Json): Json {
    const path = mode.endsWith("sequential") ? wanted + String(++this.numbers).padStart(10, "0") : wanted;
    const parent = parentOf(path);
    if (this.znodes.has(path)) throw new Problem(409, "node_exists", `the znode ${path} exists`);
    if (!this.znodes.has(parent)) {
      if (!parents) throw new Problem(404, "no_znode", `there is no znode ${parent}`);
      this.create(parent, { parents });
    }
    const znode = { data, version: 0, mzxid: ++this.zxid, session: mode.startsWith("ephemeral") ? session : undefined };
    this.znodes.set(path, znode);
    this.changed(path);
    return { path, stat: stat(znode) };
  }

  private remove(path: string): void {
    for (const each of [...this.znodes.keys()]) {
      if (each !== path && !each.startsWith(path + "/")) continue;
      this.znodes.delete(each);
      this.changed(each);
    }
  }

  private changed(path: string): void {
    for (const watcher of [...this.watchers]) if (watcher.path === path || watcher.path === parentOf(path)) watcher.wake();
  }

  private watch(path: string, timeout: number, signal: AbortSignal): Promise<Json> {
    return new Promise((resolve) => {
      const end = (event: Json): void => {
        clearTimeout(timer);
        this.watchers.delete(watcher);
        resolve(event);
      };
      const watcher = { path, wake: () => end({ event: "changed", path, zxid: this.zxid }) };
      const timer = setTimeout(() => end({}), timeout);
      signal.addEventListener("abort", () => end({}), { once: true });
      this.watchers.add(watcher);
    });
  }

  /** Checks first, and applies then. */
  private transaction({ ops }: Json): Json {
    for (const op of ops as Json[]) {
      const [kind, fields] = Object.entries(op)[0] as [string, Json];
      if (kind === "held") {
        if (!this.held(fields["lock"]).some((each) => each.token === fields["fencing_token"])) throw new Problem(409, "not_holder", "the lock is not held");
      } else if (kind !== "create" && !this.znodes.has(fields["path"])) throw new Problem(404, "no_znode", `there is no znode ${fields["path"]}`);
    }
    const methods: Record<string, string> = { create: "POST", set: "PUT", delete: "DELETE" };
    const results = (ops as Json[]).map((op) => {
      const [kind, fields] = Object.entries(op)[0] as [string, Json];
      const method = methods[kind];
      return { [kind]: (method && this.znode(method, fields["path"], new URLSearchParams(), fields)) || {} };
    });
    return { results };
  }
}

function view({ lock, mode, holder, session, token, holds, wish }: Contender): Json {
  return { lock, mode, holder, session, fencing_token: token, holds, owner: wish["owner"] ?? "", note: wish["note"] ?? "", permits: wish["permits"] ?? 1 };
}

function stat({ version, mzxid }: FakeZnode): Json {
  return { version, mzxid, pzxid: mzxid };
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

/** Event stream of a fake session. */
class FakeStream implements Stream {
  readonly status = 200;
  private readonly blocks: Block[] = [];
  private closed: Error | undefined;
  private wake: () => void = () => undefined;

  add(event: string, data: Json): void {
    this.blocks.push({ event, data: JSON.stringify(data) });
    this.wake();
  }

  async next(): Promise<Block> {
    while (true) {
      const block = this.blocks.shift();
      if (block) return block;
      if (this.closed) throw this.closed;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  body(): Promise<string> {
    return Promise.resolve("");
  }

  close(why: Error): void {
    this.closed ??= why;
    this.wake();
  }
}
