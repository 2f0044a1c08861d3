/** One session: opening and closing it, its heartbeats, and its event stream. Nothing here keeps the program alive but opening and closing. */

import { now, onAbort, sleep, Wakeable, within } from "./clock.js";
import { GateClosed, type Loss, Refused } from "./errors.js";
import { type Block, Broken, type Stream } from "./http.js";
import { type Hold, Life } from "./life.js";
import { eventName, type Json, lossOf, releaseRequests } from "./names.js";
import { call, judge, Pauses, requestId, type Server, type Servers } from "./servers.js";

/** Heartbeats per TTL, and the part of the TTL after which a server without an answer to one is suspected. */
const BEATS_PER_TTL = 3;
const SILENT_AFTER = 6;

/** Longest silence of a stream. A server writes at least every 15 s and every third of the TTL. */
const LONGEST_SILENCE = 45_000;

/** Pause before the next attempt if no server gives a stream. Heartbeats continue, and ask which locks are held. */
const NO_STREAM_PAUSE = 10_000;

/** Longest time to close a session that is lost: others need not wait for its end. */
const CLOSE_LOST_WITHIN = 1000;

/** Heartbeat without an answer. */
interface Unanswered {
  readonly sent: number;
  suspected: boolean;
}

/** Session of a gate. */
export class Session {
  readonly life: Life;
  private readonly unanswered = new Map<Server, Unanswered>();
  private readonly news = new Wakeable();
  private readonly beatPauses = new Pauses();
  private readonly ending = new AbortController();
  private nextBeat: number;
  private following = false;
  private asking = false;
  private lastEvent = "";

  private constructor(
    readonly servers: Servers,
    opened: Json,
    sent: number,
    private readonly atLeader: boolean,
  ) {
    this.life = new Life(opened["session"], sent, opened["ttl_ms"], servers.log);
    this.nextBeat = this.life.confirmed + (atLeader ? 0 : this.interval());
    void this.keepAlive();
  }

  /** Opens a session. The time of its TTL is counted from before the first attempt that may have opened it. */
  static async open(servers: Servers, ttl: number, name: string | undefined, atLeader: boolean): Promise<Session> {
    const pinned = await servers.forSession();
    let sent = now();
    const opened = await pinned.ask(call("POST", "/v1/sessions", { ttl_ms: ttl, name, request_id: requestId() }));
    if (now() - sent > opened["ttl_ms"] / BEATS_PER_TTL) {
      // The first attempt may have opened it long ago.
      sent = now();
      await pinned.ask(call("POST", `/v1/sessions/${opened["session"]}/heartbeat`, {}));
    }
    servers.log.debug(`session ${opened["session"]} is open for ${opened["ttl_ms"]} ms`);
    return new Session(pinned, opened, sent, atLeader);
  }

  get id(): string {
    return this.life.session;
  }

  /** Ends the session, so that nobody waits for its TTL. */
  async close(): Promise<void> {
    const loss = this.life.loss();
    this.lose({ reason: "closed" });
    if (loss?.reason === "expired") return;
    const total = loss ? CLOSE_LOST_WITHIN : Math.min(this.life.ttl, this.servers.options.patience);
    try {
      await this.servers.ask(call("DELETE", `/v1/sessions/${this.id}?request_id=${requestId()}`), total);
    } catch (error) {
      if (!(error instanceof Refused && error.endsSession)) throw error;
    } finally {
      this.servers.closed = true;
    }
  }

  private lose(loss: Loss): void {
    this.life.lose(loss);
    this.ending.abort(new GateClosed());
    this.news.wake();
  }

  /** Adds a grant. From the first one on the event stream is followed. */
  enter(grant: Json): Hold {
    const hold = this.life.enter(grant);
    if (!this.following) {
      this.following = true;
      void this.follow();
    }
    return hold;
  }

  /** Ends the session here if this error says that the cluster has ended it. */
  ended(error: unknown): void {
    if (error instanceof Refused && error.endsSession) this.lose({ reason: "expired" });
  }

  /** Renews the session now. */
  async beat(): Promise<void> {
    const sent = now();
    this.renewed(undefined, sent, await this.servers.ask(call("POST", this.beatPath(), {})));
  }

  private beatPath(): string {
    return `/v1/sessions/${this.id}/heartbeat${this.atLeader ? "?leader=true" : ""}`;
  }

  private renewed(server: Server | undefined, sent: number, answer: Json): void {
    this.life.confirm(sent, answer["ttl_ms"]);
    this.life.noteRequests(sent, releaseRequests(answer));
    if (this.atLeader && server && answer["leads"]) this.servers.current = server;
  }

  /** Renews the session until it is lost: every third of the TTL, and at another server when one is silent for a sixth. */
  private async keepAlive(): Promise<void> {
    const { life } = this;
    while (!life.loss()) {
      const silentAfter = life.ttl / SILENT_AFTER;
      const ends = [life.validUntil];
      for (const [server, beat] of this.unanswered) {
        if (beat.suspected) continue;
        if (now() < beat.sent + silentAfter) {
          ends.push(beat.sent + silentAfter);
          continue;
        }
        beat.suspected = true;
        this.servers.suspect(server);
        this.nextBeat = now();
      }
      if (now() >= this.nextBeat) {
        this.nextBeat = now() + this.interval();
        // A server at which a call waits gets one too, so a silent one is suspected however long the wait is.
        for (const server of this.servers.list) if (server.waits || server === this.servers.current) void this.beatAt(server);
        if (!life.followed && life.holds.size) void this.askHoldings();
      }
      ends.push(this.nextBeat);
      // Timers may stand still during a suspend, so the clock is read at least once a second.
      await this.news.wait(Math.min(Math.max(Math.min(...ends) - now(), 1), 1000));
    }
    this.ending.abort(new GateClosed());
    this.servers.log.debug(`session ${this.id} is not renewed any more`);
  }

  /** Time to the next heartbeat: a third of the TTL, or at random up to a tenth less, so that clients do not beat in step. */
  private interval(): number {
    return (this.life.ttl / BEATS_PER_TTL) * (0.9 + Math.random() / 10);
  }

  private async beatAt(server: Server): Promise<void> {
    if (this.unanswered.has(server)) return;
    const sent = now();
    this.unanswered.set(server, { sent, suspected: false });
    const beat = { ...call("POST", this.beatPath(), {}), background: true };
    try {
      const answer = await within(this.life.ttl, false, this.ending.signal, (stop) => this.servers.send(server, beat, stop));
      this.renewed(server, sent, answer);
      this.beatPauses.reset();
      if (this.atLeader && !answer["leads"] && server === this.servers.current) {
        for (const other of this.servers.list) if (other !== server) void this.beatAt(other);
      }
    } catch (error) {
      if (this.ending.signal.aborted) return;
      if (error instanceof Refused) {
        this.ended(error);
        // Every server would refuse. The session lives on until its TTL is over.
        this.servers.log.warn(`a heartbeat of session ${this.id} is refused: ${error.message}`);
        return;
      }
      this.servers.log.debug(`a heartbeat of session ${this.id} has failed: ${String(error)}`);
      this.servers.suspect(server);
      this.nextBeat = Math.min(this.nextBeat, now() + this.servers.pause(this.beatPauses.next()));
    } finally {
      this.unanswered.delete(server);
      this.news.wake();
    }
  }

  /** Reads which locks the session holds: without an event stream this finds a broken lock. */
  private async askHoldings(): Promise<void> {
    // While no server can be reached, heartbeats follow each other faster than questions end.
    if (this.asking) return;
    this.asking = true;
    const asked = now();
    try {
      const request = { ...call("GET", `/v1/sessions/${this.id}?linearizable=true`), background: true };
      const found = await this.servers.ask(request, this.life.ttl / BEATS_PER_TTL, this.ending.signal);
      if (found["complete"] ?? true) this.life.holdsOnly(asked, holdersOf(found["held"]));
    } catch (error) {
      this.ended(error);
      this.servers.log.debug(`the locks of session ${this.id} are not known: ${String(error)}`);
    } finally {
      this.asking = false;
    }
  }

  /** Follows the event stream: at one server after the other, from the last event on. Fencing tokens are log positions. */
  private async follow(): Promise<void> {
    const { list } = this.servers;
    let server = this.servers.current;
    const pauses = new Pauses();
    this.lastEvent = String(this.life.firstToken ?? "");
    while (!this.life.loss()) {
      const before = this.lastEvent;
      let againAfter: number | undefined;
      try {
        againAfter = await this.listen(server);
      } catch (error) {
        this.servers.log.debug(`the events of session ${this.id} are followed elsewhere: ${String(error)}`);
      } finally {
        this.life.followed = false;
      }
      if (this.lastEvent !== before) pauses.reset();
      if (againAfter === undefined) {
        server = list[(list.indexOf(server) + 1) % list.length] as Server;
        againAfter = pauses.next();
      }
      await sleep(againAfter, false);
    }
  }

  /** Applies events until the stream ends. Returns the pause before it is opened again here (`undefined`: elsewhere). */
  private async listen(server: Server): Promise<number | undefined> {
    const silence = Math.min(this.life.ttl, LONGEST_SILENCE);
    const headers = { "last-event-id": this.lastEvent };
    const request = { ...call("GET", `/v1/sessions/${this.id}/events?heartbeat=false`), headers, background: true };
    const stream = await within(silence, false, this.ending.signal, (stop) => this.servers.stream(server, request, stop));
    const suspected = (): void => stream.close(new Broken("the server is silent"));
    const silent = setTimeout(suspected, silence).unref();
    server.onSuspect.add(suspected);
    const endOfSignal = onAbort(this.ending.signal, () => stream.close(new GateClosed()));
    try {
      if (this.ending.signal.aborted) return undefined;
      if (stream.status !== 200) return await this.refusedStream(server, stream);
      this.life.followed = true;
      while (true) {
        const block = await stream.next();
        if (!block) throw new Broken("the stream has ended");
        silent.refresh();
        const again = this.apply(block);
        // Only now: the next server repeats an event that was not understood.
        this.lastEvent = block.id ?? this.lastEvent;
        if (again !== undefined) return again;
      }
    } finally {
      clearTimeout(silent);
      server.onSuspect.delete(suspected);
      endOfSignal();
      stream.close(new GateClosed());
    }
  }

  private async refusedStream(server: Server, stream: Stream): Promise<number> {
    const body = await stream.body();
    try {
      judge(server.address, { status: stream.status, body });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.ended(error);
    }
    return NO_STREAM_PAUSE;
  }

  /** Applies an event. Returns the pause before the next stream if this one ends with it. */
  private apply(block: Block): number | undefined {
    if (!block.event) return undefined;
    const event = eventName(block.event);
    const news = JSON.parse(block.data || "{}") as Json;
    if (event === "state") {
      this.life.holdsAt(news["zxid"], [...holdersOf(news["held"]), ...holdersOf(news["awaited"])]);
      for (const request of releaseRequests(news)) this.life.noteRequest(request);
    } else if (event === "lost") {
      // The end of the session has an event of its own.
      if (news["ended"] !== "session_closed" && news["ended"] !== "session_expired") this.life.loseHolder(news["holder"], lossOf(news));
    } else if (event === "release_requested") {
      this.life.noteRequest(news);
    } else if (event === "session_ended") {
      this.lose({ reason: "expired" });
    } else if (event === "stream_ended") {
      if (["renew", "too_slow", "state_replaced"].includes(news["reason"])) return 0;
      if (news["reason"] === "access_lost") return NO_STREAM_PAUSE;
      throw new Broken(`the stream has ended: ${news["reason"]}`);
    }
    return undefined;
  }
}

function holdersOf(contenders: readonly Json[]): string[] {
  return contenders.map((contender) => contender["holder"]);
}
