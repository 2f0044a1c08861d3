/** Driver of the conformance suite. `clients/conformance/PROTOCOL.md` has the protocol. */

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

import { Gate, type GateOptions, Leadership, type Lock, LockLost, type LockWish, OutcomeUnknown, type LockOptions, Refused, Unavailable } from "lockgate";
import { FakeCluster } from "lockgate/fake";

type Json = Record<string, any>;
type Command = Json & { client: string; as: string; lock: string; path: string };

const LOG: string[] = [];
const gates = new Map<string, Gate>();
const fakes = new Map<string, FakeCluster>();
const grants = new Map<string, { gate: Gate; lock: Lock }>();
const blocks = new Map<string, (error?: string) => void>();
const running = new Map<number, AbortController>();

const logger = {
  debug: (line: string) => void LOG.push(`debug ${line}`),
  warn: (line: string) => {
    LOG.push(`warn ${line}`);
    console.error(line);
  },
};

function say(line: Json): void {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function errorOf(error: unknown): Json {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof Refused) return { kind: "refused", code: error.code, message };
  if (error instanceof LockLost) return { kind: "lost", ...error.loss, message };
  if (error instanceof Unavailable) return { kind: "unavailable", message };
  if (error instanceof OutcomeUnknown) return { kind: "unknown", message };
  if (error instanceof Error && error.name === "AbortError") return { kind: "cancelled", message };
  return { kind: "usage", message };
}

/** Returns the document of one result among several. */
function settled<T>(result: PromiseSettledResult<T>, document: (value: T) => Json): Json {
  return result.status === "fulfilled" ? document(result.value) : { error: errorOf(result.reason) };
}

function gate(name: string): Gate {
  const found = gates.get(name);
  if (!found) throw new Error(`no client ${name}`);
  return found;
}

function grant(name: string): { gate: Gate; lock: Lock } {
  const found = grants.get(name);
  if (!found) throw new Error(`no grant ${name}`);
  return found;
}

/** Names a grant, and reports its loss and release requests. */
function note(as: string, of: Gate, lock: Lock): Json {
  grants.set(as, { gate: of, lock });
  lock.onLost((loss) => say({ event: "lost", as, reason: loss.reason, by: loss.by ?? null, detail: loss.detail ?? null }));
  lock.onReleaseRequest((asked) => say({ event: "release_requested", as, by: asked.by, reason: asked.reason }));
  return { fencing_token: lock.token, holder: lock.holder, mode: lock.mode };
}

/** Takes the fields of a command that are options of an acquire. Fields that are left are errors. */
function options(fields: Json): LockOptions {
  const { wait_ms, max_hold_ms, mode, limit, permits, owner, note, poll, ...unknown } = fields;
  none(unknown);
  return { wait: wait_ms ?? undefined, maxHold: max_hold_ms, mode, limit, permits, owner, note, poll };
}

function none(unknown: Json): void {
  const [name] = Object.keys(unknown);
  if (name) throw new Error(`unknown field ${name}`);
}

async function body(as: string, signal: AbortSignal, hold: boolean): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    let raised = false;
    blocks.set(as, (text) => {
      raised = true;
      if (text === undefined) resolve();
      else reject(new Error(text));
    });
    const interrupted = (): void => {
      if (raised) return;
      say({ event: "interrupted", as, reason: (signal.reason as LockLost).loss.reason });
      if (!hold) reject(signal.reason);
    };
    if (signal.aborted) interrupted();
    signal.addEventListener("abort", interrupted);
  });
}

async function work(as: string, lock: Lock, every: number): Promise<void> {
  while (true) {
    const checkedAt = Number(process.hrtime.bigint()) / 1e9;
    try {
      lock.check();
    } catch (error) {
      say({ event: "stopped", as, reason: error instanceof LockLost ? error.loss.reason : "released" });
      return;
    }
    say({ event: "worked", as, checked_at: checkedAt });
    await pause(every);
  }
}

async function observe(of: Gate, as: string, election: string): Promise<void> {
  for await (const leader of of.election(election).observe()) say({ event: "leader", as, candidate: leader ?? null });
}

const commands: Record<string, (command: Command, signal: AbortSignal) => unknown> = {
  open({ client, servers, ttl_ms, name, patience_ms, at_leader, ca_file, cert_file, key_file, token, token_file, traceparent, fake, as: _, ...unknown }) {
    none(unknown);
    const read = (file: string | undefined): Buffer | undefined => (file ? readFileSync(file) : undefined);
    const given: GateOptions = {
      ttl: ttl_ms,
      name,
      patience: patience_ms,
      atLeader: at_leader,
      token: token_file ? async () => (await readFile(token_file, "utf8")).trim() : token,
      tls: ca_file ? { ca: read(ca_file), cert: read(cert_file), key: read(key_file) } : undefined,
      traceparent,
      logger,
    };
    if (fake) {
      const cluster = new FakeCluster();
      fakes.set(client, cluster);
      gates.set(client, cluster.gate(given));
    } else gates.set(client, new Gate(servers, given));
  },
  session: ({ client }) => ({ session: gate(client).sessionId ?? null, ttl_ms: gate(client).sessionTtl ?? null }),
  close: ({ client }) => gate(client).close(),
  metrics: ({ client }) => gate(client).metrics(),
  logs: () => ({ lines: LOG }),

  async acquire({ client, as, lock, ...fields }, signal) {
    return note(as, gate(client), await gate(client).acquire(lock, { ...options(fields), signal }));
  },
  async cycle({ client, lock, workers, seconds }) {
    const end = performance.now() + seconds * 1_000;
    const work = async (worker: number): Promise<number> => {
      let count = 0;
      for (; performance.now() < end; count++) await (await gate(client).acquire(`${lock}/${worker}`)).release();
      return count;
    };
    const counts = await Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)));
    return { cycles: counts.reduce((sum, count) => sum + count, 0) };
  },
  async acquire_many({ client, as, locks, ...fields }, signal) {
    const wishes: LockWish[] = locks.map(({ lock, mode, limit, permits, ...unknown }: Json) => {
      none(unknown);
      return { name: lock, mode, limit, permits };
    });
    const lock = await gate(client).acquireAll(wishes, { ...options(fields), signal });
    note(as, gate(client), lock);
    return { fencing_tokens: lock.tokens };
  },
  cancel: ({ command }) => running.get(command)?.abort(),
  release: ({ as }) => grant(as).lock.release(),
  check: ({ as }) => ({ valid: grant(as).lock.held }),
  verify: async ({ as }) => ({ held: await grant(as).lock.verify() }),
  async upgrade({ as, wait_ms }, signal) {
    const { lock } = grant(as);
    return { fencing_token: await lock.upgrade({ wait: wait_ms ?? undefined, signal }), mode: lock.mode };
  },
  async downgrade({ as, mode }) {
    const { lock } = grant(as);
    return { fencing_token: await lock.downgrade(mode), mode: lock.mode };
  },
  reply_release: ({ as, answer }) => grant(as).lock.replyRelease(answer),
  async block({ client, as, lock, hold, ...fields }, signal) {
    await gate(client).using(lock, { ...options(fields), signal }, async (lost, held) => {
      note(as, gate(client), held);
      say({ event: "entered", as, fencing_token: held.token });
      await body(as, lost, hold ?? false);
    });
  },
  end_block: (command) => blocks.get(command.as)?.(command["raise"]),
  work: ({ as, every_ms }) => void work(as, grant(as).lock, every_ms),

  async lease_acquire({ client, lock, ttl_ms, wait_ms, min_hold_ms, max_hold_ms, note, queue }, signal) {
    const wait = wait_ms ?? Infinity;
    const lease = await gate(client).lease(lock, { ttl: ttl_ms, wait, minHold: min_hold_ms, maxHold: max_hold_ms, note, queue, signal });
    return { lease: lease.text, fencing_token: lease.token ?? null, expires_in_ms: lease.expiresIn };
  },
  async lease_wait({ client, lease, wait_ms }, signal) {
    const handle = gate(client).resumeLease(lease);
    await handle.wait({ wait: wait_ms ?? undefined, signal });
    return { fencing_token: handle.token ?? null };
  },
  async lease_renew({ client, lease, ttl_ms }) {
    const handle = gate(client).resumeLease(lease);
    return { expires_in_ms: await handle.renew(ttl_ms), fencing_token: handle.token };
  },
  lease_release: ({ client, lease }) => gate(client).resumeLease(lease).release(),
  lease_get: ({ client, lease }) => gate(client).resumeLease(lease).inspect(),
  async leases_acquire({ client, locks, ttl_ms }, signal) {
    const leases = await gate(client).leases(locks.map((each: Json) => each["lock"]), { ttl: ttl_ms, signal });
    return { leases: leases.map((each) => settled(each, (lease) => ({ lease: lease.text, fencing_token: lease.token }))) };
  },
  async leases_renew({ client, leases, ttl_ms }) {
    const handles = leases.map((text: string) => gate(client).resumeLease(text));
    const renewed = await gate(client).renewLeases(handles, ttl_ms);
    return { leases: renewed.map((each, at) => settled(each, () => ({ fencing_token: handles[at].token }))) };
  },
  async leases_release({ client, leases }) {
    const handles = leases.map((text: string) => gate(client).resumeLease(text));
    return { leases: (await gate(client).releaseLeases(handles)).map((each) => settled(each, () => ({}))) };
  },

  async campaign({ client, as, election, candidate, wait_ms }, signal) {
    const leadership = await gate(client).election(election).campaign(candidate, { wait: wait_ms ?? undefined, signal });
    return note(as, gate(client), leadership);
  },
  resign: ({ as }) => (grant(as).lock as Leadership).resign(),
  leader: async ({ client, election }) => ({ candidate: (await gate(client).election(election).leader()) ?? null }),
  observe: ({ client, as, election }) => void observe(gate(client), as, election),
  hand_over: ({ as, to }) => (grant(as).lock as Leadership).handOver(to),

  create: async ({ client, path, data, mode, ttl_ms, parents }) => ({ path: await gate(client).create(path, data, { mode, ttl: ttl_ms, parents }) }),
  async get({ client, path }) {
    const { text, version } = await gate(client).get(path);
    return { data: text, version };
  },
  set: async ({ client, path, data, version }) => ({ version: await gate(client).set(path, data, version) }),
  delete: ({ client, path, version }) => gate(client).delete(path, { version }),
  children: async ({ client, path }) => ({ children: await gate(client).children(path) }),
  async watch({ client, as, path, kind, timeout_ms: timeout }) {
    const of = gate(client);
    const found = kind === "exists" ? undefined : await of.get(path);
    const since = kind === "children" ? found?.stat["pzxid"] : found?.zxid;
    const watching = of.watch(path, { kind, timeout, since });
    void watching.then((event) => event && say({ event: "watch", as, kind: event["event"], path: event["path"] }));
    // Without a position in the log the watch is armed when the server has it.
    if (kind === "exists") await pause(300);
  },
  async guarded_set({ as, path, data }) {
    const { gate: of, lock } = grant(as);
    await of.transaction([{ set: { path, data } }], lock);
  },
  fake_break: ({ client, lock, reason }) => fakes.get(client)?.breakLock(lock, reason),
  fake_expire: ({ client }) => fakes.get(client)?.expireSessions(),
};

async function execute({ id, do: name, ...command }: Json): Promise<void> {
  const cancel = new AbortController();
  running.set(id, cancel);
  try {
    const run = commands[name];
    if (!run) throw new Error(`unknown command ${name}`);
    say({ id, ok: (await run(command as Command, cancel.signal)) ?? {} });
  } catch (error) {
    say({ id, error: errorOf(error) });
  } finally {
    running.delete(id);
  }
}

say({ event: "ready", client: "typescript", unsupported: {} });
createInterface({ input: process.stdin }).on("line", (line) => void execute(JSON.parse(line)));
