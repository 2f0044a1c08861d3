/** Life of one session: its deadline, its holds, and who is notified of their loss. Sends no requests. */

import { now } from "./clock.js";
import { type Loss, lossText } from "./errors.js";
import type { Json } from "./names.js";

/** Longest memory of lost holders whose grants may still be on their way. */
const MAX_GONE = 256;

/** Part by which the local clock may be slower than the cluster's, and the time that a program has to stop after a loss was reported. */
const MARGIN_RATE = 0.01;
const MARGIN_MS = 100;

/** Receiver of log lines. `console` is one. */
export interface Logger {
  debug(line: string): void;
  warn(line: string): void;
}

/** Request of another caller that a holder release its lock. */
export interface ReleaseRequest {
  readonly by: string;
  readonly reason: string;
  readonly requestedAt: string;
}

/** One granted lock. Re-entered grants of one holder share it. */
export class Hold {
  readonly lock: string;
  readonly holder: string;
  mode: string;
  token: number;
  readonly since = now();
  entries = 0;
  request: ReleaseRequest | undefined;
  /** time of the latest release request */
  requestedAt = -Infinity;
  readonly onLost = new Set<(loss: Loss) => void>();
  readonly onRequest = new Set<(request: ReleaseRequest) => void>();
  private lost: Loss | undefined;

  constructor(
    readonly life: Life,
    grant: Json,
  ) {
    this.lock = grant["lock"];
    this.holder = grant["holder"];
    this.mode = grant["mode"] ?? "exclusive";
    this.token = grant["fencing_token"];
  }

  /** Returns why the lock is lost, as of this moment. The clock decides, whether or not a heartbeat has noticed. */
  loss(): Loss | undefined {
    this.life.loss();
    return this.lost;
  }

  /** Records the loss, and notifies everybody. */
  lose(loss: Loss): void {
    if (this.lost) return;
    this.lost = loss;
    for (const notify of this.onLost) this.life.guarded(() => notify(loss));
    this.onLost.clear();
  }
}

/** Deadline and holds of one session. */
export class Life {
  followed = false;
  firstToken: number | undefined;
  readonly holds = new Map<string, Hold>();
  private lost: Loss | undefined;
  private readonly gone = new Map<string, Loss>();

  constructor(
    readonly session: string,
    public confirmed: number,
    public ttl: number,
    private readonly log: Logger,
  ) {}

  /** End of the time in which the session surely lives. The TTL is counted from when a heartbeat was *sent*, so network delays are covered. */
  get validUntil(): number {
    return this.confirmed + Math.max(0, this.ttl * (1 - MARGIN_RATE) - MARGIN_MS);
  }

  /** Records a confirmed heartbeat that was sent at this time. A lost session stays lost, because its loss was reported. */
  confirm(sent: number, ttl: number): void {
    if (this.loss() || sent < this.confirmed) return;
    this.confirmed = sent;
    this.ttl = ttl;
  }

  /** Reads the clock. Returns why the session is lost. */
  loss(): Loss | undefined {
    if (!this.lost && now() >= this.validUntil) this.lose({ reason: "no_heartbeat" });
    return this.lost;
  }

  /** Ends the session, unless it is lost already. */
  lose(loss: Loss): void {
    if (this.lost) return;
    this.lost = loss;
    const holds = [...this.holds.values()];
    this.holds.clear();
    if (loss.reason !== "closed") {
      this.log.warn(`session ${this.session} is lost, with the locks ${holds.map((hold) => hold.lock).join(", ") || "(none)"}: ${lossText(loss)}`);
    }
    for (const hold of holds) hold.lose(loss);
  }

  /** Adds a grant. It may be lost already. */
  enter(grant: Json): Hold {
    let hold = this.holds.get(grant["holder"]);
    if (!hold) {
      hold = new Hold(this, grant);
      const gone = this.loss() ?? this.gone.get(hold.holder);
      if (gone) hold.lose(gone);
      else this.holds.set(hold.holder, hold);
    }
    hold.entries += 1;
    this.firstToken ??= hold.token;
    return hold;
  }

  /** Removes one entry of a hold that is released. */
  leave(hold: Hold): void {
    hold.entries -= 1;
    if (hold.entries <= 0) this.holds.delete(hold.holder);
  }

  /** Records the loss of one lock, while the session lives. */
  loseHolder(holder: string, loss: Loss): void {
    this.gone.delete(holder);
    this.gone.set(holder, loss);
    for (const oldest of this.gone.keys()) {
      if (this.gone.size <= MAX_GONE) break;
      this.gone.delete(oldest);
    }
    const hold = this.holds.get(holder);
    if (!hold) return;
    this.holds.delete(holder);
    this.log.warn(`lock ${hold.lock} is lost: ${lossText(loss)}`);
    hold.lose(loss);
  }

  /** Returns why a holder has lost its lock, if an event has said so. */
  whyGone(holder: string): Loss | undefined {
    return this.gone.get(holder);
  }

  /** Applies the state at a log position: the session had exactly these contenders. */
  holdsAt(zxid: number, holders: readonly string[]): void {
    this.loseMissing(holders, (hold) => hold.token <= zxid);
  }

  /** Applies the answer to a question of this time: the session held exactly these. */
  holdsOnly(asked: number, holders: readonly string[]): void {
    this.loseMissing(holders, (hold) => hold.since < asked);
  }

  private loseMissing(holders: readonly string[], concerns: (hold: Hold) => boolean): void {
    for (const hold of [...this.holds.values()]) {
      if (concerns(hold) && !holders.includes(hold.holder)) this.loseHolder(hold.holder, { reason: "taken_away" });
    }
  }

  /** Applies the release requests in the answer to a heartbeat that was sent at this time: these are unanswered, and no others. */
  noteRequests(sent: number, requests: readonly Json[]): void {
    const holders = requests.map((request) => request["holder"]);
    for (const hold of this.holds.values()) {
      // A request that arrived meanwhile is newer.
      if (!holders.includes(hold.holder) && hold.requestedAt < sent) hold.request = undefined;
    }
    for (const request of requests) this.noteRequest(request);
  }

  /** Records a release request, and hands it to the holder once. */
  noteRequest(news: Json): void {
    const hold = this.holds.get(news["holder"]);
    if (!hold) return;
    const request: ReleaseRequest = { by: news["by"] ?? "", reason: news["reason"] ?? "", requestedAt: news["requested_at"] ?? "" };
    hold.requestedAt = now();
    const known = hold.request;
    if (known && known.by === request.by && known.reason === request.reason && known.requestedAt === request.requestedAt) return;
    hold.request = request;
    for (const notify of hold.onRequest) this.guarded(() => notify(request));
  }

  /** Calls a callback of the program, whose errors are not the client's. */
  guarded(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.log.warn(`a callback of a lock has failed: ${String(error)}`);
    }
  }
}
