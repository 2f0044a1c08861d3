/** Election: the holder of a lock leads. `clients/conformance/PROTOCOL.md` has the record by which a leader names its successor. */

import { now, sleep } from "./clock.js";
import type { AcquireOptions, Core } from "./core.js";
import { Refused } from "./errors.js";
import { Lock } from "./lock.js";
import { type Json, NO_ZNODE, ZNODE_EXISTS } from "./names.js";
import { query, requestId, segment, znodePath } from "./servers.js";

/** How long the record of a hand-over is kept if the named candidate never leads. */
const HAND_OVER_TTL = 30_000;

/** Length of one long poll for the next leader, and the pause while nobody campaigns. */
const LOOK_EVERY = 1000;
const NOBODY_PAUSE = 250;

/** Lock of the candidate that leads. Its token is the term. */
export class Leadership extends Lock {
  /** @internal */
  constructor(
    readonly election: Election,
    readonly candidate: string,
    ...granted: ConstructorParameters<typeof Lock>
  ) {
    super(...granted);
  }

  /** Ends the leadership. Repeated, nothing happens. */
  resign(): Promise<void> {
    return this.release();
  }

  /** Resigns in favour of a waiting candidate, who leads next. Throws a `RangeError` if nobody of that name waits. */
  async handOver(to: string): Promise<void> {
    this.check();
    const { name } = this.election;
    if (!(await waiting(this.core, name)).includes(to)) throw new RangeError(`no candidate ${to} waits in the election ${name}`);
    const record = { data: to, request_id: requestId() };
    try {
      await this.core.ask("POST", recordPath(name), { ...record, mode: "ttl", ttl_ms: HAND_OVER_TTL, parents: true });
    } catch (error) {
      if (!(error instanceof Refused && ZNODE_EXISTS.includes(error.code))) throw error;
      await this.core.ask("PUT", recordPath(name), record);
    }
    await this.release();
  }
}

/** Election among the candidates that name the same lock. */
export class Election {
  /** @internal */
  constructor(
    private readonly core: Core,
    readonly name: string,
  ) {}

  /** Waits until this candidate leads. Without `wait`, until it does or `signal` is aborted. */
  async campaign(candidate: string, options: Pick<AcquireOptions, "wait" | "signal" | "ttl"> = {}): Promise<Leadership> {
    const until = now() + (options.wait ?? Infinity);
    while (true) {
      const wait = options.wait === 0 ? 0 : Math.max(0, until - now());
      const { session, holds } = await this.core.acquire([{ name: this.name }], { ...options, wait, note: candidate });
      const leadership = new Leadership(this, candidate, this.core, session, holds);
      try {
        if (await this.leads(candidate)) return leadership;
      } catch (error) {
        this.core.servers.inBackground("resigning", leadership.resign());
        throw error;
      }
      await leadership.resign();
    }
  }

  /** Returns whether the granted lock is this candidate's, or that of another one to whom the leader before has handed over. */
  private async leads(candidate: string): Promise<boolean> {
    const named = await missingOk(this.core.ask("GET", recordPath(this.name) + "?linearizable=true"));
    if (!named) return true;
    if (named["data"] !== candidate && (await waiting(this.core, this.name)).includes(named["data"])) return false;
    await missingOk(this.core.ask("DELETE", recordPath(this.name) + query({ request_id: requestId() })));
    return true;
  }

  /** Returns the candidate that leads. */
  async leader(): Promise<string | undefined> {
    const [holder] = (await this.core.inspect(this.name))["holders"] as Json[];
    return holder?.["note"];
  }

  /** Yields the leader, and every later one. Keeps the program alive until `signal` is aborted, or the loop is left. */
  async *observe(signal?: AbortSignal): AsyncGenerator<string | undefined, void, void> {
    let known = false;
    let before: string | undefined;
    while (!signal?.aborted) {
      const leads = await this.leader();
      if (!known || leads !== before) yield leads;
      else await this.changed(signal);
      known = true;
      before = leads;
    }
  }

  private async changed(signal: AbortSignal | undefined): Promise<void> {
    const path = `/v1/watch/locks/${znodePath(this.name)}?kind=children&timeout_ms`;
    try {
      if (!(await missingOk(this.core.servers.poll(path, LOOK_EVERY, signal)))) await sleep(NOBODY_PAUSE, true);
    } catch (error) {
      if (!signal?.aborted) throw error;
    }
  }
}

function recordPath(election: string): string {
  return "/v1/znodes" + znodePath(`/elections/${segment(election)}`);
}

async function waiting(core: Core, election: string): Promise<string[]> {
  return ((await core.inspect(election))["queue"] as Json[]).map((contender) => contender["note"]);
}

async function missingOk(asked: Promise<Json>): Promise<Json | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Refused && NO_ZNODE.includes(error.code)) return undefined;
    throw error;
  }
}
