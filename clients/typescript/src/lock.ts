/** Handle of a granted lock, or of several that were granted together. */

import { acquire } from "./acquire.js";
import { abortable, onAbort } from "./clock.js";
import { type AcquireOptions, type Core, explained, type Mode } from "./core.js";
import { LockgateError, type Loss, LockLost } from "./errors.js";
import type { Hold, ReleaseRequest } from "./life.js";
import type { Json } from "./names.js";
import { requestId, segment } from "./servers.js";
import type { Session } from "./session.js";

/** A granted lock. `await using lock = …` releases it at the end of the block. */
export class Lock implements AsyncDisposable {
  private readonly controller = new AbortController();
  private readonly subscribed: (() => void)[] = [];
  private releasing: Promise<void> | undefined;
  private told = false;

  /** @internal */
  constructor(
    /** @internal */ readonly core: Core,
    /** @internal */ readonly session: Session,
    /** @internal */ readonly holds: readonly Hold[],
  ) {
    for (const hold of holds) {
      const loss = hold.loss();
      if (loss) this.controller.abort(new LockLost(loss));
      else this.subscribe(hold.onLost, (why) => this.controller.abort(new LockLost(why)));
    }
  }

  private subscribe<T>(callbacks: Set<(news: T) => void>, callback: (news: T) => void): void {
    callbacks.add(callback);
    this.subscribed.push(() => callbacks.delete(callback));
  }

  private get first(): Hold {
    return this.holds[0] as Hold;
  }

  /** Name of the lock; of several, joined by commas. */
  get name(): string {
    return this.holds.map((hold) => hold.lock).join(",");
  }

  /** Id of this holder at the cluster. */
  get holder(): string {
    return this.first.holder;
  }

  get mode(): Mode {
    return this.first.mode as Mode;
  }

  /** Fencing token: storage should refuse a write with a smaller one than it has seen. */
  get token(): number {
    return this.first.token;
  }

  /** Fencing tokens, one for each lock. */
  get tokens(): readonly number[] {
    return this.holds.map((hold) => hold.token);
  }

  /** Signal that is aborted at the loss. Its `reason` is a `LockLost`. Pass it to whatever works under the lock. */
  get signal(): AbortSignal {
    this.told = true;
    // The clock may know of a loss that no timer has noticed yet.
    void this.loss;
    return this.controller.signal;
  }

  /** Why the lock is lost, as of this moment, by the clock. */
  get loss(): Loss | undefined {
    if (!this.controller.signal.aborted && !this.releasing) for (const hold of this.holds) hold.loss();
    return this.controller.signal.aborted ? (this.controller.signal.reason as LockLost).loss : undefined;
  }

  /** Whether the lock is surely held at this moment. Asks nobody. */
  get held(): boolean {
    return !this.releasing && !this.loss;
  }

  /**
   * Returns the fencing token if the lock is surely held at this moment; throws `LockLost` otherwise. Asks nobody, so call it before every step
   * that needs the lock: a program that was suspended finds the loss here before its timers have run.
   */
  check(): number {
    const { loss } = this;
    if (loss) {
      this.told = true;
      throw new LockLost(loss);
    }
    if (this.releasing) throw new LockgateError(`the lock ${this.name} was released`);
    return this.token;
  }

  /** Asks the cluster whether it knows this grant as held at this moment. */
  async verify(): Promise<boolean> {
    const answers = await Promise.all(this.holds.map((hold) => this.core.ask("GET", `/v1/locks/${segment(hold.lock)}/check?fencing_token=${hold.token}`)));
    return answers.every((answer) => answer["held"]);
  }

  /** Calls back at the loss; at once if it is lost already. */
  onLost(callback: (loss: Loss) => void): void {
    const notify = (): void => this.session.life.guarded(() => callback((this.controller.signal.reason as LockLost).loss));
    onAbort(this.signal, notify);
  }

  /** Waits for the loss, and keeps the program alive meanwhile. Rejects if `signal` is aborted before. */
  untilLost(signal?: AbortSignal): Promise<Loss> {
    const alive = setInterval(() => this.loss, 1000);
    return abortable(new Promise<Loss>((resolve) => this.onLost(resolve)), signal).finally(() => clearInterval(alive));
  }

  /** Unanswered request of another caller that this lock be released. */
  get releaseRequested(): ReleaseRequest | undefined {
    return this.holds.map((hold) => hold.request).find((request) => request);
  }

  /** Calls back when another caller asks for the lock; at once if one has. */
  onReleaseRequest(callback: (request: ReleaseRequest) => void): void {
    for (const hold of this.holds) {
      this.subscribe(hold.onRequest, callback);
      const { request } = hold;
      if (request) this.session.life.guarded(() => callback(request));
    }
  }

  /** Answers a release request. */
  async replyRelease(answer: string): Promise<void> {
    this.check();
    const body = { session: this.session.id, holder: this.holder, answer, request_id: requestId() };
    await this.core.askRenamed(this.first.lock, "release-request/reply", "revoke", body);
  }

  /** Renews the session now. It is renewed in the background anyway. */
  async extend(): Promise<void> {
    this.check();
    await this.session.beat();
  }

  /** Makes an upgradeable lock exclusive, and returns its new fencing token. */
  async upgrade(options: Pick<AcquireOptions, "wait" | "signal"> = {}): Promise<number> {
    this.check();
    const { servers, life } = this.session;
    const path = `/v1/locks/${segment(this.first.lock)}/upgrade`;
    const body = { session: this.session.id, holder: this.holder };
    const undo = (): Promise<number> => this.downgrade("upgradeable");
    return this.change(acquire({ servers, life, path, body, wait: options.wait ?? Infinity, signal: options.signal, undo }));
  }

  /** Makes the lock `shared` or `upgradeable`, without a gap, and returns its fencing token. */
  async downgrade(mode: "shared" | "upgradeable" = "shared"): Promise<number> {
    this.check();
    const body = { session: this.session.id, holder: this.holder, mode, request_id: requestId() };
    return this.change(this.core.ofSession(this.session, `/v1/locks/${segment(this.first.lock)}/downgrade`, body));
  }

  private async change(changing: Promise<Json>): Promise<number> {
    try {
      const grant = await changing;
      this.first.mode = grant["mode"];
      this.first.token = grant["fencing_token"];
      return this.token;
    } catch (error) {
      this.session.ended(error);
      throw await explained(this.session.life, [this.first], error);
    }
  }

  /** Releases the lock. Repeated, nothing happens. Throws `LockLost` if it was lost before. */
  async release(): Promise<void> {
    if (this.releasing) return this.releasing.catch(() => undefined);
    void this.loss;
    this.releasing = this.core.release(this.session, this.holds);
    for (const end of this.subscribed.splice(0)) end();
    return this.releasing;
  }

  /**
   * Releases the lock at the end of an `await using` block. A loss is thrown here only if nothing could have told it to the block: neither
   * `signal`, `check` nor `onLost` was used. So it does not hide the error by which the block ended.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    const { told } = this;
    try {
      await this.release();
    } catch (error) {
      if (!(error instanceof LockLost && told)) throw error;
    }
  }
}
