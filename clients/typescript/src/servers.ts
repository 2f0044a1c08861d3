/** Servers of a cluster: judges their answers, and repeats requests at one after the other. Sessions and locks are not known here. */

import { randomBytes } from "node:crypto";

import { abortable, now, sleep, TimedOut, within } from "./clock.js";
import { GateClosed, type LockgateError, NotAcquired, OutcomeUnknown, Refused, Unavailable } from "./errors.js";
import { type Answer, Broken, NotSent, type Request, type Stream, type Transport } from "./http.js";
import type { Logger } from "./life.js";
import type { Json } from "./names.js";

/** First and longest pause between two attempts. An election takes some hundred milliseconds; a longer pause would lengthen every failover. */
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 250;

/** Shortest time for an answer, however little of the total is left: a request that is dropped too early has an unknown outcome. */
const SHORTEST_TRY = 500;

/** Longest time for an answer of one server. */
const LONGEST_TRY = 5000;

/** Largest number of requests in a batch, as servers accept it. */
const LARGEST_BATCH = 128;

/** Codes of refusals after which the same request may succeed at another server or later. Nothing was done. */
const TRY_AGAIN: readonly string[] = ["unavailable", "read_only", "request_timeout", "too_many_requests"];

/** Token, or provider that is called for each request outside a session, and once for each session. */
export type Token = string | (() => string | Promise<string>) | undefined;

/** Called after each request with the operation, the code of the outcome (`ok`, `unavailable`, `unknown`, `lock_busy`…) and milliseconds. */
export type Observer = (operation: string, outcome: string, ms: number) => void;

/** Returns the name of a call for logs and metrics, without names of locks and znodes, and without ids, which may be secret. */
export function operationOf(request: Request): string {
  const [family = "", ...rest] = (request.path.split("?", 1)[0] ?? "").split("/").slice(2);
  const named = ["locks", "sessions", "leases"].includes(family);
  const verbs = named ? rest.slice(1) : family === "multilock" ? rest : [];
  return `${request.method} ${[family, ...verbs].join("/")}`;
}

/** This attempt executed nothing. `retryAfter` is the time that the server named. */
export class NotExecuted extends Error {
  constructor(
    why: string,
    readonly retryAfter = 0,
  ) {
    super(why);
  }
}

/** This attempt may have executed the request. */
export class Uncertain extends Error {}

/** Returns a new id of a request. */
export function requestId(): string {
  return randomBytes(16).toString("hex");
}

/** Encodes a name as one segment of a path. */
export const segment = encodeURIComponent;

/** Encodes the path of a znode, with its slashes. */
export function znodePath(path: string): string {
  return path.split("/").map(segment).join("/");
}

/** Returns a query with the fields that are not `undefined`. */
export function query(fields: Record<string, string | number | boolean | undefined>): string {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined);
  return present.length ? "?" + present.map(([name, value]) => `${name}=${segment(String(value))}`).join("&") : "";
}

/** Returns a request with a document. */
export function call(method: string, path: string, body?: Json): Request {
  return body ? { method, path, body: JSON.stringify(body) } : { method, path };
}

/** Growing pauses with jitter: clients that lost the same server should not return at the same moment. */
export class Pauses {
  private longest = FIRST_PAUSE;

  next(): number {
    const pause = this.longest * (0.5 + Math.random() / 2);
    this.longest = Math.min(2 * this.longest, LONGEST_PAUSE);
    return pause;
  }

  reset(): void {
    this.longest = FIRST_PAUSE;
  }
}

/** Returns the document of a success. Throws `Refused`, `NotExecuted` or `Uncertain` otherwise, by the code alone. */
export function judge(server: string, answer: Answer): Json {
  const document = parse(answer.body);
  if (answer.status >= 200 && answer.status < 300 && document) return document;
  const code: unknown = document?.["code"];
  // Not from a server of the cluster: a proxy's page, for example.
  if (!document || typeof code !== "string") throw new Uncertain(`${server}: ${answer.status} ${answer.body.slice(0, 80)}`);
  const detail = String(document["detail"] ?? "");
  const why = `${server}: ${detail || code}`;
  if (TRY_AGAIN.includes(code)) throw new NotExecuted(why, 1000 * (Number(answer.retryAfter) || 0));
  if (code === "outcome_unknown" || answer.status < 400 || answer.status >= 500) throw new Uncertain(why);
  const { type: _type, title: _title, status: _status, detail: _detail, code: _code, ...facts } = document;
  const Kind = code === "lock_busy" || code === "lock_timeout" ? NotAcquired : Refused;
  throw new Kind(code, detail, answer.status, facts);
}

function parse(text: string): Json | undefined {
  if (!text.trim()) return {};
  try {
    const document: unknown = JSON.parse(text);
    return typeof document === "object" && document !== null ? (document as Json) : document === null ? {} : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the error of a call that has found no definite answer in time. */
export function inDoubtError(inDoubt: boolean, why: string): LockgateError {
  return inDoubt ? new OutcomeUnknown(`the outcome is unknown: ${why}`) : new Unavailable(why);
}

/** Change that is sent together with others. */
export interface Change {
  readonly method: "POST" | "DELETE";
  readonly path: string;
  /** document; an acquire counts its attempts in `retry` */
  readonly body?: Json;
}

/** Returns the document of one result of a batch, or throws as `judge`. */
function resultOf(server: string, answered: PromiseSettledResult<Json>, at: number): Json {
  if (answered.status === "rejected") throw answered.reason;
  const result: Json | undefined = answered.value["results"]?.[at];
  if (!result) throw new Uncertain(`${server}: an answer without all results`);
  return judge(server, { status: result["status"], body: JSON.stringify(result["problem"] ?? result["body"] ?? {}) });
}

/** Knowledge about a request after some attempts. */
class Attempts {
  why = "";
  private inDoubt = false;
  private readonly changes: boolean;

  constructor(method: string) {
    this.changes = method !== "GET";
  }

  /** Takes the failure of an attempt. Throws the error of the request if it is definite. */
  note(error: unknown): void {
    if (error instanceof Refused && this.inDoubt && this.changes && error.concernsCaller) {
      // The caller may have had the right when an earlier attempt was executed, and may have lost it since.
      throw new OutcomeUnknown(error.detail, { cause: error });
    }
    if (!(error instanceof NotExecuted || error instanceof Uncertain)) throw error;
    this.why = error.message;
    this.inDoubt ||= error instanceof Uncertain;
  }

  /** Returns the error of a request that is not sent again. */
  givenUp(): LockgateError {
    return inDoubtError(this.inDoubt && this.changes, this.why);
  }
}

/** One server. */
export class Server {
  /** time before which the server wants no more requests (`Retry-After`) */
  notBefore = -Infinity;
  /** called when the server leaves a heartbeat without an answer */
  readonly onSuspect = new Set<() => void>();
  /** number of calls of a session that wait here */
  waits = 0;

  constructor(readonly address: string) {}
}

/** Span of a request: the part of OpenTelemetry's `Span` that the client uses. */
export interface Span {
  spanContext(): { traceId: string; spanId: string; traceFlags: number };
  setAttribute(key: string, value: string): unknown;
  end(): void;
}

/** Returns the trace context of a span, for the server. */
function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}

/** What the servers of a gate need to know. */
export interface ServersOptions {
  readonly transport: Transport;
  readonly patience: number;
  readonly token: Token;
  readonly traceparent: () => string | undefined;
  readonly observer: Observer;
  readonly startSpan: ((operation: string) => Span) | undefined;
  readonly log: Logger;
  /** last requests of calls that were cancelled */
  readonly background: Set<Promise<void>>;
}

/** All servers, with the one that gets the next request. */
export class Servers {
  closed = false;
  current: Server;
  readonly list: readonly Server[];
  readonly answerWithin: number;
  /** longest time of a long poll, whose answer has to arrive in the time of an attempt */
  readonly longestPoll: number;

  constructor(
    readonly options: ServersOptions,
    private readonly addresses: readonly string[],
    first?: number,
  ) {
    this.answerWithin = Math.min(LONGEST_TRY, options.patience);
    this.longestPoll = 0.8 * this.answerWithin;
    this.list = addresses.map((address) => new Server(address));
    // Clients with the same list begin at different servers.
    this.current = this.list[first ?? Math.floor(Math.random() * this.list.length)] as Server;
  }

  get log(): Logger {
    return this.options.log;
  }

  /** Returns the same servers for one session, with the token of this moment: no other token may use the session. */
  async forSession(): Promise<Servers> {
    const token = await this.token();
    return new Servers({ ...this.options, token }, this.addresses, this.list.indexOf(this.current));
  }

  private async token(): Promise<string | undefined> {
    const { token } = this.options;
    if (typeof token !== "function") return token;
    try {
      return await token();
    } catch (error) {
      throw new Unavailable(`the provider of tokens has failed: ${String(error)}`, { cause: error });
    }
  }

  /** Makes the next server the current one, unless another call has done so. Servers that named a time come last. */
  turnAway(server: Server): void {
    if (server !== this.current) return;
    const at = this.list.indexOf(server);
    const time = now();
    for (const other of [...this.list.slice(at + 1), ...this.list.slice(0, at + 1)]) {
      if (this.current === server || Math.max(other.notBefore, time) < Math.max(this.current.notBefore, time)) this.current = other;
    }
  }

  /** Notifies the calls that wait at this server, and changes to another one. */
  suspect(server: Server): void {
    this.turnAway(server);
    const notified = [...server.onSuspect];
    server.onSuspect.clear();
    for (const notify of notified) notify();
  }

  /** Returns the time until the next attempt: this pause, or longer if the next server has named a time. */
  pause(pause: number): number {
    return Math.max(pause, this.current.notBefore - now());
  }

  /** Makes one attempt at one server. */
  async send(server: Server, request: Request, signal: AbortSignal): Promise<Json> {
    const began = now();
    const operation = operationOf(request);
    const span = request.background ? undefined : this.options.startSpan?.(operation);
    let outcome = "ok";
    try {
      const headers = await this.headers(request);
      if (span) {
        span.setAttribute("server.address", server.address);
        headers["traceparent"] = traceparentOf(span);
      }
      return judge(server.address, await this.options.transport.send(server.address, { ...request, headers }, signal));
    } catch (error) {
      if (error instanceof NotExecuted || error instanceof NotSent) {
        outcome = "unavailable";
        if (error instanceof NotSent) throw new NotExecuted(error.message);
        server.notBefore = now() + error.retryAfter;
      } else if (error instanceof Uncertain || error instanceof Broken) {
        outcome = "unknown";
        if (error instanceof Broken) throw new Uncertain(error.message);
      } else {
        outcome = error instanceof Refused ? error.code : "cancelled";
      }
      throw error;
    } finally {
      this.options.observer(operation, outcome, now() - began);
      if (outcome !== "ok") span?.setAttribute("error.type", outcome);
      span?.end();
    }
  }

  /** Opens a stream at one server. */
  async stream(server: Server, request: Request, signal: AbortSignal): Promise<Stream> {
    return this.options.transport.stream(server.address, { ...request, headers: await this.headers(request) }, signal);
  }

  private async headers(request: Request): Promise<Record<string, string>> {
    const headers = { ...request.headers };
    const token = await this.token();
    const traceparent = request.background ? undefined : this.options.traceparent();
    if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
    if (traceparent) headers["traceparent"] = traceparent;
    return headers;
  }

  /** Sends a request until a server gives a definite answer. */
  async ask(request: Request, total = this.options.patience, signal?: AbortSignal): Promise<Json> {
    const deadline = now() + total;
    const attempts = new Attempts(request.method);
    const pauses = new Pauses();
    let time: number | undefined = this.answerWithin;
    while (true) {
      const server = this.current;
      try {
        return await this.attempt(server, request, time, signal);
      } catch (error) {
        attempts.note(error);
      }
      time = await this.nextAttempt(server, pauses, deadline, !request.background, signal);
      if (time === undefined) throw attempts.givenUp();
      this.log.debug(`${request.method} ${request.path} is sent again: ${attempts.why}`);
    }
  }

  private async attempt(server: Server, request: Request, time: number, signal?: AbortSignal): Promise<Json> {
    if (this.closed) throw new GateClosed();
    signal?.throwIfAborted();
    try {
      return await within(time, !request.background, signal, (stop) => this.send(server, request, stop));
    } catch (error) {
      throw error instanceof TimedOut ? new Uncertain(`${server.address}: ${error.message}`) : error;
    }
  }

  /** Waits before the next attempt, which goes to another server. Returns the time for it; `undefined` if none is left. */
  private async nextAttempt(server: Server, pauses: Pauses, deadline: number, keepAlive: boolean, signal?: AbortSignal): Promise<number | undefined> {
    this.turnAway(server);
    const pause = this.pause(pauses.next());
    if (now() + pause >= deadline) return undefined;
    await abortable(sleep(pause, keepAlive), signal);
    return Math.min(this.answerWithin, Math.max(deadline - now(), SHORTEST_TRY));
  }

  /**
   * Sends changes together until each has a definite answer: after each attempt those without one again, as if they were sent alone. The results are
   * in the order of the changes.
   */
  async batch(changes: readonly Change[]): Promise<PromiseSettledResult<Json>[]> {
    const results: PromiseSettledResult<Json>[] = [];
    for (let at = 0; at < changes.length; at += LARGEST_BATCH) results.push(...(await this.batchPart(changes.slice(at, at + LARGEST_BATCH))));
    return results;
  }

  private async batchPart(changes: readonly Change[]): Promise<PromiseSettledResult<Json>[]> {
    const deadline = now() + this.options.patience;
    const pauses = new Pauses();
    const all = changes.map((change) => ({ change, attempts: new Attempts(change.method), result: undefined as PromiseSettledResult<Json> | undefined }));
    let time: number | undefined = this.answerWithin;
    for (let retry = 0; time !== undefined; retry++) {
      const pending = all.filter((each) => !each.result);
      if (!pending.length) break;
      const server = this.current;
      const requests = pending.map(({ change }) => (change.body && "retry" in change.body ? { ...change, body: { ...change.body, retry } } : change));
      const [answered] = await Promise.allSettled([this.attempt(server, call("POST", "/v1/batch", { requests }), time)]);
      pending.forEach((each, at) => {
        try {
          each.result = { status: "fulfilled", value: resultOf(server.address, answered, at) };
        } catch (error) {
          try {
            each.attempts.note(error);
          } catch (reason) {
            each.result = { status: "rejected", reason };
          }
        }
      });
      if (all.some((each) => !each.result)) time = await this.nextAttempt(server, pauses, deadline, true);
    }
    return all.map(({ result, attempts }) => result ?? { status: "rejected", reason: attempts.givenUp() });
  }

  /**
   * Sends a long poll, whose `path` ends with the parameter of its time. It waits for these milliseconds, or for less, and its retries have the
   * whole patience.
   */
  poll(path: string, ms: number, signal?: AbortSignal): Promise<Json> {
    const wait = Math.round(Math.max(0, Math.min(ms, this.longestPoll)));
    return this.ask(call("GET", `${path}=${wait}`), wait + this.options.patience, signal);
  }

  /** Runs the last request of a call that was cancelled. */
  inBackground(what: string, running: Promise<unknown>): void {
    const done: Promise<void> = running.then(
      () => undefined,
      (error: unknown) => this.log.warn(`${what} has failed: ${String(error)}`),
    );
    this.options.background.add(done);
    void done.then(() => this.options.background.delete(done));
  }
}
