/**
 * One acquire call, from the first attempt to its end: under one request id, at one server after the other. If it ends without a lock for its
 * caller, it withdraws from the queue, and gives a late grant back.
 *
 * With `"wait": "queue"` in the body no connection is open while it waits: the place belongs to the session, and long polls ask for the grant.
 * For a lease, the document of the place is returned in place of a grant.
 */

import { abortable, now, onAbort, sleep, TimedOut, within } from "./clock.js";
import { GateClosed, LockLost, OutcomeUnknown, Refused } from "./errors.js";
import type { Life } from "./life.js";
import type { Json } from "./names.js";
import { call, inDoubtError, NotExecuted, Pauses, requestId, segment, type Servers, Uncertain } from "./servers.js";

/** Longest sleep of a waiting call before it reads the clock of the session. */
const LOOK_EVERY = 1000;

/** Time that a server gets for a lease without a limit of the wait, before the call continues at the next one. */
const LEASE_WAIT = 30_000;

/** What is acquired. */
export interface Wish {
  readonly servers: Servers;
  /** session; none for a lease */
  readonly life: Life | undefined;
  readonly path: string;
  readonly body: Json;
  /** milliseconds; 0 tries, `Infinity` waits until the session ends */
  readonly wait: number;
  /** aborted by a caller that gives up */
  readonly signal: AbortSignal | undefined;
  /** gives back what nobody wants any more */
  readonly undo: (granted: Json) => Promise<unknown>;
}

/** Acquires, and returns the document of the grant. */
export async function acquire(wish: Wish): Promise<Json> {
  return new Acquire(wish).run();
}

class Acquire {
  private readonly servers: Servers;
  private readonly body: Json;
  private readonly until: number;
  private readonly giveUpAt: number;
  private attempts = 0;
  private inDoubt = false;
  private wait: number;
  private queued: boolean;
  /** contender in the queue */
  private place: string | undefined;
  /**
   * Attempts without an answer. Their connections stay open until the call is over: a server that sees a closed connection withdraws the
   * contender, perhaps before the next attempt has taken its place.
   */
  private readonly unanswered = new Set<AbortController>();

  constructor(private readonly wish: Wish) {
    this.servers = wish.servers;
    this.wait = wish.wait;
    const { wait, ...body } = wish.body;
    this.queued = wait === "queue" && !(wish.life && wish.wait === 0);
    this.body = { ...body, request_id: requestId() };
    this.until = now() + wish.wait;
    this.giveUpAt = this.until + wish.servers.options.patience;
  }

  async run(): Promise<Json> {
    try {
      return await this.repeat();
    } catch (error) {
      if (this.inDoubt && !this.wish.life?.loss()) this.servers.inBackground("withdrawing an acquire", this.takeBack());
      else this.dropAttempts();
      throw error;
    }
  }

  private async repeat(): Promise<Json> {
    let pauses = new Pauses();
    while (true) {
      this.check();
      let why: string;
      try {
        const granted = await this.attempt();
        if (this.queued && this.wish.life && !granted["fencing_token"]) {
          this.place = granted["holder"] ?? this.place;
          // The last request is a try, which leaves the queue.
          this.queued = now() < this.until;
          pauses = new Pauses();
          continue;
        }
        this.inDoubt = false;
        // A session that is lost holds nothing, whatever the cluster granted.
        this.check(false);
        this.dropAttempts();
        return granted;
      } catch (error) {
        if (error instanceof Refused) {
          // The caller may have had the right when an earlier attempt was executed, and may have lost it since.
          if (this.inDoubt && error.concernsCaller) throw new OutcomeUnknown(error.detail, { cause: error });
          this.inDoubt = false;
          throw error;
        }
        if (!(error instanceof NotExecuted || error instanceof Uncertain)) throw error;
        why = error.message;
      }
      const pause = this.servers.pause(pauses.next());
      if (now() + pause >= this.giveUpAt) throw inDoubtError(this.inDoubt, why);
      await abortable(sleep(pause, true), this.wish.signal);
    }
  }

  private check(cancelled = true): void {
    const loss = this.wish.life?.loss();
    if (loss) throw new LockLost(loss);
    if (this.servers.closed) throw new GateClosed();
    if (cancelled) this.wish.signal?.throwIfAborted();
  }

  /** Makes one attempt: until the server answers or is suspected, the session is lost, or the caller gives up. */
  private async attempt(): Promise<Json> {
    const server = this.servers.current;
    const doubtedBefore = this.inDoubt;
    this.inDoubt = true;
    const attempt = new AbortController();
    this.unanswered.add(attempt);
    server.waits += 1;
    const began = now();
    const ending = new AbortController();
    const stop = (why: unknown): void => ending.abort(why);
    const suspected = (): void => stop(new Uncertain(`${server.address}: the server is silent`));
    const look = setInterval(() => {
      try {
        this.check();
      } catch (error) {
        stop(error);
      }
      if (now() >= this.silentAt(began)) stop(new Uncertain(`${server.address}: no answer in time`));
    }, this.lookEvery(began));
    server.onSuspect.add(suspected);
    const endOfSignal = onAbort(this.wish.signal, () => stop(this.wish.signal?.reason));
    try {
      const sent = this.servers.send(server, this.next(), attempt.signal);
      const answered = sent.finally(() => this.unanswered.delete(attempt));
      // The outcome of an attempt that is given up here is asked for by the next one.
      return await abortable(answered, ending.signal);
    } catch (error) {
      if (error instanceof NotExecuted || error instanceof Refused) this.inDoubt = doubtedBefore;
      if (error instanceof NotExecuted || error instanceof Uncertain) this.servers.turnAway(server);
      throw error;
    } finally {
      server.waits -= 1;
      clearInterval(look);
      server.onSuspect.delete(suspected);
      endOfSignal();
    }
  }

  /**
   * Returns the time after which another server is asked: a bounded call should have an answer by then. Of one without a limit, the heartbeats of
   * the session find out whether the server lives; a lease has none.
   */
  private silentAt(began: number): number {
    if (this.queued) return began + this.servers.answerWithin;
    if (this.until < Infinity) return Math.max(began, this.until) + this.servers.answerWithin;
    return this.wish.life ? Infinity : began + LEASE_WAIT;
  }

  private lookEvery(began: number): number {
    return Math.min(LOOK_EVERY, Math.max(1, this.silentAt(began) - now()), Math.max(1, this.giveUpAt - now()));
  }

  /** Returns the next copy of the request, with its number. It waits for the remaining time. */
  private next(): ReturnType<typeof call> {
    const left = Math.max(0, this.until - now());
    if (this.queued && this.place) {
      const poll = Math.round(Math.min(left, this.servers.longestPoll));
      return call("GET", `${this.wish.path.replace(/acquire$/, "holders")}/${segment(this.place)}?wait_ms=${poll}`);
    }
    const wait = this.wait === 0 || this.place ? 0 : left;
    const waits = this.queued ? { wait: "queue" } : { wait_ms: wait === Infinity ? null : Math.round(wait) };
    return call("POST", this.wish.path, { ...this.body, ...waits, retry: this.attempts++ });
  }

  /** Withdraws the call: the same request without a wait. The answer is the end of the wait, or a grant, which is given back. */
  private async takeBack(): Promise<void> {
    this.wait = 0;
    this.queued = false;
    const pauses = new Pauses();
    // A lease that nobody knows ends with its TTL.
    const end = this.wish.life ? Infinity : now() + this.servers.options.patience;
    try {
      while (!this.wish.life?.loss() && now() < end) {
        const server = this.servers.current;
        try {
          const granted = await within(this.servers.answerWithin, true, undefined, (stop) => this.servers.send(server, this.next(), stop));
          await this.wish.undo(granted);
          return;
        } catch (error) {
          if (error instanceof Refused) return;
          if (!(error instanceof NotExecuted || error instanceof Uncertain || error instanceof TimedOut)) throw error;
          this.servers.turnAway(server);
        }
        await sleep(this.servers.pause(pauses.next()), true);
      }
    } finally {
      this.dropAttempts();
    }
  }

  private dropAttempts(): void {
    for (const attempt of this.unanswered) attempt.abort(new GateClosed());
    this.unanswered.clear();
  }
}
