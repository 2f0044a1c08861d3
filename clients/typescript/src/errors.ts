/** Errors of the client. Refused, unavailable and unknown never share a class, because a caller reacts to each in another way. */

/** Base class of all errors of this package. */
export class LockgateError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The cluster decided against the request and changed nothing. `code` is the word that programs switch on. */
export class Refused extends LockgateError {
  constructor(
    readonly code: string,
    readonly detail: string,
    readonly status = 0,
    /** further fields of the answer */
    readonly facts: Readonly<Record<string, unknown>> = {},
  ) {
    super(detail || code);
  }

  /** Whether the refusal says that the session has ended. */
  get endsSession(): boolean {
    const { ended } = this.facts;
    return this.code === "session_expired" || this.code === "no_session" || ended === "session_expired" || ended === "session_closed";
  }

  /** Whether the refusal is about the caller's identity or role. */
  get concernsCaller(): boolean {
    return this.code === "unauthenticated" || this.code === "forbidden";
  }
}

/** The lock was not free, at once (`lock_busy`) or in time (`lock_timeout`). The caller is no longer in the queue. */
export class NotAcquired extends Refused {}

/** Nothing was done within the patience of the client. The same call may succeed later. */
export class Unavailable extends LockgateError {}

/** The request may have been executed, or may still be. Check before repeating it. */
export class OutcomeUnknown extends LockgateError {}

/** This program has closed the gate. */
export class GateClosed extends LockgateError {
  constructor() {
    super("the gate is closed");
  }
}

/** Words for the reason of a loss. `no_heartbeat`: the session was not confirmed in time. */
export type LossReason = "no_heartbeat" | "expired" | "closed" | "broken" | "deleted" | "released" | "taken_away" | "max_hold";

/** Reason why a lock is lost, or may be. */
export interface Loss {
  readonly reason: LossReason;
  /** proven identity of the caller that took the lock, such as `ip:10.0.0.7` */
  readonly by?: string | undefined;
  /** text that this caller gave */
  readonly detail?: string | undefined;
}

const TEXTS: Record<LossReason, string> = {
  no_heartbeat: "no heartbeat of the session was confirmed in time",
  expired: "the cluster has ended the session",
  closed: "the session was closed",
  broken: "the lock was broken",
  deleted: "the lock's znode was deleted",
  released: "the lock was released elsewhere",
  taken_away: "the lock was broken, deleted, released elsewhere, or held for its maximum time",
  max_hold: "the hold has ended after its maximum time",
};

/** Returns the reason of a loss, and its explanation. */
export function lossText(loss: Loss): string {
  return `${loss.reason}: ${TEXTS[loss.reason]}` + (loss.by ? ` by ${loss.by}` : "") + (loss.detail ? `: ${loss.detail}` : "");
}

/** The lock is lost, or its whole session is. `loss` says why. */
export class LockLost extends LockgateError {
  constructor(
    readonly loss: Loss,
    options?: ErrorOptions,
  ) {
    super(lossText(loss), options);
  }
}
