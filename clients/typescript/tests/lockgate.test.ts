/** Tests without a cluster: a transport that answers by a script, and the fake. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Gate, GateClosed, LockgateError, LockLost, NotAcquired, OutcomeUnknown, Refused, type Transport, Unavailable } from "lockgate";
import { FakeCluster } from "lockgate/fake";

const QUIET = { logger: { debug: () => undefined, warn: () => undefined } };

type Sent = Parameters<Transport["send"]>[1] & { server: string };
type Answer = Awaited<ReturnType<Transport["send"]>>;

/** Transport that hands each request to a function. Streams are those of a fake. */
function scripted(answer: (request: Sent, fake: FakeCluster, signal: AbortSignal) => Promise<Answer> | Answer): { transport: Transport; sent: Sent[] } {
  const fake = new FakeCluster();
  const sent: Sent[] = [];
  const transport: Transport = {
    async send(server, request, signal) {
      const each = { ...request, server };
      sent.push(each);
      return answer(each, fake, signal);
    },
    stream: (server, request) => fake.stream(server, request),
    close: () => undefined,
  };
  return { transport, sent };
}

function problem(status: number, code: string, retryAfter?: string): Answer {
  return { status, retryAfter, body: JSON.stringify({ type: "x", title: "x", status, detail: "because", code }) };
}

function bodyOf(request: Sent): Record<string, unknown> {
  return JSON.parse(request.body ?? "{}") as Record<string, unknown>;
}

test("acquire_grants_rising_tokens_and_release_may_be_repeated", async () => {
  await using gate = new FakeCluster().gate();
  const first = await gate.acquire("a");
  assert.equal(first.check(), first.token);
  assert.equal(await first.verify(), true);
  await first.release();
  await first.release();
  assert.equal(first.held, false);
  assert.throws(() => first.check(), LockgateError);
  assert.equal(first.signal.aborted, false);
  await using second = await gate.acquire("a");
  assert.ok(second.token > first.token);
});

test("busy_lock_is_refused_at_once_or_in_time", async () => {
  await using gate = new FakeCluster().gate();
  await using _held = await gate.acquire("a");
  assert.equal(await gate.tryAcquire("a"), undefined);
  await assert.rejects(gate.acquire("a", { wait: 0 }), (error) => error instanceof NotAcquired && error.code === "lock_busy");
  await assert.rejects(gate.acquire("a", { wait: 20 }), (error) => error instanceof NotAcquired && error.code === "lock_timeout");
});

test("abort_of_a_wait_rejects_with_its_reason_and_leaves_the_queue", async () => {
  await using gate = new FakeCluster().gate();
  const held = await gate.acquire("a");
  const giveUp = new AbortController();
  const waiting = gate.acquire("a", { signal: giveUp.signal });
  await pause(10);
  giveUp.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await pause(10);
  assert.deepEqual((await gate.inspect("a"))["queue"], []);
  await held.release();
  assert.deepEqual((await gate.inspect("a"))["holders"], []);
});

test("break_aborts_the_signal_with_author_and_reason", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const lock = await gate.acquire("a");
  const reasons: string[] = [];
  lock.onLost((loss) => reasons.push(loss.reason));
  await pause(5);
  cluster.breakLock("a", "stuck");
  const loss = await lock.untilLost();
  assert.deepEqual([loss.reason, loss.by, loss.detail], ["broken", "test", "stuck"]);
  assert.ok(lock.signal.aborted && lock.signal.reason instanceof LockLost);
  assert.deepEqual(reasons, ["broken"]);
  assert.throws(() => lock.check(), /broken by test: stuck/);
  await assert.rejects(lock.release(), LockLost);
});

test("using_aborts_its_routine_and_rejects_with_the_loss", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const running = gate.using(["a", "b"], { ttl: 5000 }, (signal) => pause(60_000, undefined, { signal }));
  await pause(20);
  cluster.breakLock("b", "stuck");
  await assert.rejects(running, (error) => error instanceof LockLost && error.loss.reason === "broken");
  assert.equal(await gate.using("a", 5000, async (_signal, lock) => lock.token > 0), true);
  assert.equal(await gate.using(["a"], async () => 7), 7);
  const mode = await gate.using(["a", { name: "b", mode: "shared" }], { mode: "upgradeable" }, async () => gate.inspect("a"));
  assert.equal(mode["holders"][0]["mode"], "upgradeable");
});

test("using_rejects_after_a_loss_that_the_routine_ignored", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const running = gate.using("a", async () => {
    await pause(5);
    cluster.breakLock("a");
    await pause(5);
  });
  await assert.rejects(running, LockLost);
});

test("using_keeps_the_error_of_its_routine_after_a_loss", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const running = gate.using("a", async (_signal, lock) => {
    cluster.breakLock("a");
    await lock.untilLost();
    throw new RangeError("own");
  });
  await assert.rejects(running, /own/);
});

test("end_of_a_block_throws_only_a_loss_that_nothing_has_told", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const untold = async (): Promise<void> => {
    await using _lock = await gate.acquire("a");
    await pause(5);
    cluster.breakLock("a");
    await pause(5);
  };
  await assert.rejects(untold(), LockLost);
  const told = async (): Promise<void> => {
    await using lock = await gate.acquire("a");
    await pause(5);
    cluster.breakLock("a");
    await pause(5);
    assert.ok(lock.signal.aborted);
    throw new RangeError("own");
  };
  await assert.rejects(told(), /own/);
});

test("lost_session_is_told_and_replaced", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const lock = await gate.acquire("a");
  const session = gate.sessionId;
  await pause(5);
  cluster.expireSessions();
  assert.equal((await lock.untilLost()).reason, "expired");
  assert.equal(gate.sessionId, undefined);
  await using _again = await gate.acquire("a");
  assert.notEqual(gate.sessionId, session);
});

test("session_without_heartbeats_is_lost_before_its_ttl", async () => {
  const { transport } = scripted((request, fake, signal) => {
    if (!request.path.endsWith("/heartbeat")) return fake.send("", request, signal);
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
  const gate = new Gate("fake:1", { ...QUIET, transport, ttl: 600 });
  const began = performance.now();
  const lock = await gate.acquire("a");
  const acquired = performance.now();
  const lost = lock.untilLost();
  let held = acquired;
  for (let time = acquired; lock.held; time = performance.now()) {
    held = time;
    await pause(1);
  }
  // The TTL less 1 % and 100 ms.
  assert.ok(performance.now() - began >= 494, "the lock is lost too early");
  assert.ok(held - acquired <= 494, "the lock is held too long");
  assert.equal((await lost).reason, "no_heartbeat");
  await gate.close();
});

test("check_finds_a_loss_before_any_timer_has_run", async () => {
  const cluster = new FakeCluster();
  const gate = cluster.gate({ ...QUIET, ttl: 300 });
  const lock = await gate.acquire("a");
  // The event loop stands still, as in a process that was stopped.
  const until = performance.now() + 320;
  while (performance.now() < until);
  assert.throws(() => lock.check(), (error) => error instanceof LockLost && error.loss.reason === "no_heartbeat");
  await gate.close();
});

test("time_of_day_that_goes_ahead_counts_as_a_suspend", async (t) => {
  await using gate = new FakeCluster().gate({ ...QUIET, ttl: 60_000 });
  const lock = await gate.acquire("a");
  const real = Date.now;
  t.after(() => (Date.now = real));
  Date.now = () => real() - 3_600_000;
  assert.equal(lock.held, true);
  Date.now = () => real() - 3_600_000 + 61_000;
  assert.equal(lock.held, false);
  assert.equal(lock.loss?.reason, "no_heartbeat");
});

test("semaphore_shared_and_upgradeable_modes", async () => {
  await using gate = new FakeCluster().gate();
  const one = await gate.acquire("s", { mode: "semaphore", limit: 3, permits: 2 });
  assert.equal(await gate.tryAcquire("s", { mode: "semaphore", limit: 3, permits: 2 }), undefined);
  await one.release();
  const reader = await gate.acquire("r", { mode: "shared" });
  const upgradeable = await gate.acquire("r", { mode: "upgradeable" });
  await assert.rejects(upgradeable.upgrade({ wait: 0 }), NotAcquired);
  await reader.release();
  const before = upgradeable.token;
  assert.ok((await upgradeable.upgrade()) > before);
  assert.equal(upgradeable.mode, "exclusive");
  await upgradeable.downgrade();
  assert.equal(upgradeable.mode, "shared");
});

test("owner_enters_again_and_one_release_of_two_keeps_the_lock", async () => {
  await using gate = new FakeCluster().gate();
  const outer = await gate.acquire("a", { owner: "me" });
  const inner = await gate.acquire("a", { owner: "me" });
  assert.equal(outer.token, inner.token);
  assert.equal(await gate.tryAcquire("a", { owner: "other" }), undefined);
  await inner.release();
  assert.equal(outer.held, true);
  assert.equal((await gate.inspect("a"))["holders"].length, 1);
  await outer.release();
  assert.equal((await gate.inspect("a"))["holders"].length, 0);
});

test("release_request_reaches_the_holder_once", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate();
  const lock = await gate.acquire("a");
  const asked: string[] = [];
  lock.onReleaseRequest((request) => asked.push(request.reason));
  await pause(5);
  await gate.requestRelease("a", "please");
  await pause(5);
  assert.deepEqual(asked, ["please"]);
  assert.equal(lock.releaseRequested?.reason, "please");
  await lock.replyRelease("soon");
});

test("election_hands_over_to_the_named_candidate", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate();
  const election = gate.election("e");
  const one = await election.campaign("one");
  assert.equal(await election.leader(), "one");
  await assert.rejects(one.handOver("nobody"), RangeError);
  assert.equal(one.held, true);
  const two = election.campaign("two");
  const three = election.campaign("three");
  await pause(20);
  await one.handOver("three");
  const third = await three;
  assert.ok(third.token > one.token);
  assert.equal(await election.leader(), "three");
  await third.resign();
  await (await two).resign();
  for await (const leader of election.observe()) {
    assert.equal(leader, undefined);
    break;
  }
});

test("lease_waits_in_the_queue_without_a_connection", async () => {
  const gate = new FakeCluster().gate(QUIET);
  const first = await gate.lease("a", { ttl: 60_000 });
  const second = await gate.lease("a", { ttl: 60_000, queue: true });
  const third = await gate.lease("a", { ttl: 60_000, queue: true });
  assert.equal(second.token, undefined);
  assert.equal(await second.wait({ wait: 20 }), false);
  const waits = gate.resumeLease(second.text).wait();
  await first.release();
  assert.equal(await waits, true);
  assert.equal(await second.wait({ wait: 0 }), true);
  assert.ok(Number(second.token) > Number(first.token));
  await third.release();
  await assert.rejects(third.wait(), (error) => error instanceof Refused && error.code === "lease_expired");
});

test("polled_wait_is_granted_in_turn_or_leaves_the_queue", async () => {
  const gate = new FakeCluster().gate(QUIET);
  const first = await gate.acquire("a");
  await assert.rejects(gate.acquire("a", { poll: true, wait: 20 }), NotAcquired);
  await assert.rejects(gate.acquire("a", { poll: true, wait: 0 }), NotAcquired);
  await assert.rejects(gate.acquire("a", { poll: true, signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
  while ((await gate.inspect("a"))["queue"].length) await pause(1);
  const waits = gate.acquire("a", { poll: true });
  await pause(5);
  await first.release();
  const second = await waits;
  assert.ok(second.check() > first.token);
  await second.release();
});

test("lease_is_renewed_and_released_by_its_text", async () => {
  const cluster = new FakeCluster();
  const lease = await cluster.gate().lease("a", { ttl: 5000, note: "nightly" });
  const other = cluster.gate();
  await assert.rejects(other.lease("a", { ttl: 5000 }), NotAcquired);
  const again = other.resumeLease(lease.text);
  assert.equal(await again.renew(7000), 7000);
  assert.equal(again.token, lease.token);
  assert.equal((await again.inspect())["note"], "nightly");
  await again.release();
  await again.release();
  await assert.rejects(lease.renew(), (error) => error instanceof Refused && error.code === "lease_expired");
});

test("guarded_write_is_refused_after_the_loss", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  await gate.create("/z/a", "1", { parents: true });
  const lock = await gate.acquire("a");
  await gate.transaction([{ set: { path: "/z/a", data: "2" } }], lock);
  cluster.breakLock("a");
  await assert.rejects(gate.transaction([{ set: { path: "/z/a", data: "3" } }], [lock]), LockLost);
  assert.equal((await gate.get("/z/a")).text, "2");
  assert.deepEqual(await gate.children("/z"), ["a"]);
  await assert.rejects(gate.set("/z/a", "4", 0), (error) => error instanceof Refused && error.code === "bad_version");
  const changed = gate.watch("/z", { kind: "children", timeout: 5000 });
  await pause(5);
  await gate.delete("/z", { recursive: true });
  assert.ok(await changed);
});

test("close_ends_waits_and_later_calls", async () => {
  const cluster = new FakeCluster();
  const gate = cluster.gate(QUIET);
  const lock = await gate.acquire("a");
  const waiting = assert.rejects(gate.acquire("a"), LockgateError);
  await pause(5);
  await gate.close();
  assert.equal(lock.loss?.reason, "closed");
  await waiting;
  await assert.rejects(gate.acquire("b"), GateClosed);
  assert.deepEqual((await cluster.gate().inspect("a"))["holders"], []);
});

test("unavailable_servers_are_tried_in_turn_under_one_id", async () => {
  let failures = 2;
  const { transport, sent } = scripted((request, fake, signal) => {
    if (request.path.endsWith("/acquire") && failures-- > 0) return problem(503, "unavailable");
    return fake.send("", request, signal);
  });
  await using gate = new Gate(["a:1", "b:1", "c:1"], { transport });
  await gate.acquire("a");
  const acquires = sent.filter((request) => request.path.endsWith("/acquire"));
  assert.equal(new Set(acquires.map((request) => request.server)).size, 3);
  assert.equal(new Set(acquires.map((request) => bodyOf(request)["request_id"])).size, 1);
  assert.deepEqual(acquires.map((request) => bodyOf(request)["retry"]), [0, 1, 2]);
});

test("many_leases_settle_by_themselves", async () => {
  const gate = new FakeCluster().gate();
  const taken = await gate.lease("job-7", { ttl: 60_000 });
  const names = Array.from({ length: 200 }, (_, number) => `job-${number}`);
  const acquired = await gate.leases(names, { ttl: 60_000 });
  assert.equal(gate.metrics()["requests"], 3);
  const leases = acquired.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  assert.equal(leases.length, 199);
  assert.ok(acquired[7]?.status === "rejected" && acquired[7].reason instanceof NotAcquired);
  await taken.release();
  assert.deepEqual(await gate.releaseLeases(leases.slice(0, 1)), [{ status: "fulfilled", value: undefined }]);
  const [ended, renewed] = await gate.renewLeases(leases.slice(0, 2), 90_000);
  assert.ok(ended?.status === "rejected" && ended.reason instanceof Refused && ended.reason.code === "lease_expired");
  assert.deepEqual([renewed, leases[1]?.expiresIn], [{ status: "fulfilled", value: 90_000 }, 90_000]);
  assert.ok((await gate.releaseLeases(leases)).every((each) => each.status === "fulfilled"));
  await gate.close();
});

test("only_requests_without_a_definite_answer_are_sent_again_in_a_batch", async () => {
  let attempts = 0;
  const { transport, sent } = scripted(async (request, fake, signal) => {
    const answer = await fake.send("", request, signal);
    if (!request.path.endsWith("/batch") || ++attempts > 2) return answer;
    if (attempts === 1) return problem(504, "outcome_unknown");
    const { results } = JSON.parse(answer.body);
    results[1] = { status: 503, problem: { code: "unavailable", detail: "no leader" } };
    return { status: 200, body: JSON.stringify({ results }) };
  });
  await using gate = new Gate("a:1", { transport });
  const [one, other] = await gate.leases(["a", "b"], { ttl: 60_000 });
  assert.ok(one?.status === "fulfilled" && other?.status === "fulfilled");
  const batches = sent.map((request) => bodyOf(request)["requests"] as { path: string; body: Record<string, unknown> }[]);
  const tries = batches.map((requests) => requests.map((each) => [each.path.slice(10, 11), each.body["retry"]]));
  assert.deepEqual(tries, [[["a", 0], ["b", 0]], [["a", 1], ["b", 1]], [["b", 2]]]);
  assert.equal(new Set(batches.flat().map((each) => each.body["request_id"])).size, 2);
});

test("leases_of_an_aborted_call_are_released", async () => {
  const { transport } = scripted(async (request, fake, signal) => {
    if (request.path.endsWith("/batch")) await pause(20);
    return fake.send("", request, signal);
  });
  await using gate = new Gate("a:1", { transport, logger: { debug: () => undefined, warn: () => undefined } });
  const giveUp = new AbortController();
  const acquired = gate.leases(["a", "b"], { ttl: 60_000, signal: giveUp.signal });
  giveUp.abort(new Error("enough"));
  await assert.rejects(acquired, /enough/);
  const next = await gate.acquire("b", { wait: 5000 });
  await next.release();
});

test("three_kinds_of_errors_are_told_apart_by_the_code", async () => {
  const kinds: [Answer, new (...args: never[]) => Error][] = [
    [problem(503, "unavailable"), Unavailable],
    [problem(507, "read_only"), Unavailable],
    [problem(429, "too_many_requests"), Unavailable],
    [problem(503, "outcome_unknown"), OutcomeUnknown],
    [problem(504, "outcome_unknown"), OutcomeUnknown],
    [{ status: 502, body: "<html>" }, OutcomeUnknown],
    [problem(409, "bad_version"), Refused],
  ];
  for (const [answer, kind] of kinds) {
    const { transport } = scripted(() => answer);
    await assert.rejects(new Gate("a:1", { transport, patience: 60 }).set("/z", "x"), (error) => error instanceof kind && error.constructor === kind);
  }
});

test("retry_after_is_obeyed", async () => {
  let refused = false;
  const { transport, sent } = scripted((request, fake, signal) => {
    if (refused) return fake.send("", request, signal);
    refused = true;
    return problem(429, "too_many_requests", "0.2");
  });
  const began = performance.now();
  await new Gate("a:1", { transport }).inspect("x");
  assert.ok(performance.now() - began >= 195);
  assert.equal(sent.length, 2);
});

test("token_of_the_moment_trace_and_observer_are_used", async () => {
  let token = "one";
  const outcomes: string[] = [];
  const { transport, sent } = scripted((request, fake, signal) => fake.send("", request, signal));
  await using gate = new Gate("a:1", {
    transport,
    token: () => token,
    traceparent: "00-1-2-01",
    onRequest: (operation, outcome) => outcomes.push(`${operation} ${outcome}`),
  });
  await gate.inspect("x");
  token = "two";
  await gate.acquire("x");
  assert.deepEqual(sent.map((request) => request.headers?.["authorization"]), ["Bearer one", "Bearer two", "Bearer two"]);
  assert.equal(sent[2]?.headers?.["traceparent"], "00-1-2-01");
  assert.deepEqual(outcomes, ["GET locks ok", "POST sessions ok", "POST locks/acquire ok"]);
  assert.equal(gate.metrics()["requests"], 3);
  const lease = await gate.lease("y", { ttl: 1_000 });
  await lease.release();
  assert.ok(outcomes.includes("DELETE leases ok"), outcomes.join());
});

test("request_is_a_span_whose_context_the_server_gets", async () => {
  const spans: Record<string, string>[] = [];
  const { transport, sent } = scripted((request, fake, signal) => fake.send("", request, signal));
  const startSpan = (name: string) => {
    const span: Record<string, string> = { name };
    spans.push(span);
    return {
      spanContext: () => ({ traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: `00f067aa0ba902b${spans.length}`, traceFlags: 1 }),
      setAttribute: (key: string, value: string) => (span[key] = value),
      end: () => (span["ended"] = "yes"),
    };
  };
  await using gate = new Gate("a:1", { transport, startSpan, traceparent: "00-1-2-01" });
  await gate.inspect("x");
  await assert.rejects(gate.get("/missing"));
  assert.deepEqual(spans, [
    { name: "GET locks", "server.address": "a:1", ended: "yes" },
    { name: "GET znodes", "server.address": "a:1", "error.type": "no_znode", ended: "yes" },
  ]);
  assert.equal(sent[1]?.headers?.["traceparent"], "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b2-01");
});

test("renamed_parts_of_the_api_are_found_on_older_servers", async () => {
  const { transport, sent } = scripted((request) => {
    if (request.path.endsWith("/release-request")) return problem(404, "no_route");
    if (request.path.includes("&zxid=")) return problem(400, "bad_request");
    if (request.path.includes("children")) {
      const first = !request.path.includes("after=");
      return { status: 200, body: JSON.stringify({ children: [{ name: first ? "b" : "a" }], next_after: first ? "b" : null }) };
    }
    return { status: 200, body: JSON.stringify({ event: "changed" }) };
  });
  const gate = new Gate("a:1", { transport });
  await gate.requestRelease("x", "please");
  assert.ok(sent.at(-1)?.path.endsWith("/revoke"));
  await gate.watch("/z", { since: 7 });
  assert.ok(sent.at(-1)?.path.includes("seen_zxid=7"));
  assert.deepEqual(await gate.children("/z"), ["a", "b"]);
});

test("late_grant_of_an_aborted_call_is_given_back", async () => {
  let release: (() => void) | undefined;
  const { transport, sent } = scripted(async (request, fake, signal) => {
    if (request.path.endsWith("/acquire") && !release) await new Promise<void>((resolve) => (release = resolve));
    return fake.send("", request, signal);
  });
  const gate = new Gate("a:1", { transport });
  const giveUp = new AbortController();
  const waiting = gate.acquire("a", { signal: giveUp.signal });
  while (!release) await pause(1);
  giveUp.abort();
  await assert.rejects(waiting, /abort/);
  release();
  await gate.close();
  assert.ok(sent.some((request) => request.path.endsWith("/release")));
});

test("http_transport_tells_what_was_not_sent_from_what_was_broken", async () => {
  const server = createServer((request) => request.socket.destroy()).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  await assert.rejects(new Gate(`127.0.0.1:${port}`, { patience: 1000 }).set("/z", "x"), OutcomeUnknown);
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(new Gate(`127.0.0.1:${port}`, { patience: 1000 }).set("/z", "x"), Unavailable);
});

test("servers_are_host_and_port", () => {
  assert.throws(() => new Gate("localhost"), TypeError);
  assert.throws(() => new Gate([]), TypeError);
  new Gate("https://[::1]:7401/, b:1");
});

test("program_ends_by_itself_and_closes_its_session", () => {
  const program = `
    import { FakeCluster } from "lockgate/fake";
    const cluster = new FakeCluster();
    await cluster.gate().acquire("a");
    process.on("exit", () => console.log(cluster.sessions.size));`;
  const ran = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    cwd: fileURLToPath(new URL("../..", import.meta.url)),
    encoding: "utf8",
    timeout: 20_000,
  });
  assert.deepEqual([ran.status, ran.stdout.trim()], [0, "0"], ran.stderr);
});

test("package_is_usable_by_require", () => {
  const ran = spawnSync(process.execPath, ["-e", `const { Gate } = require("lockgate"); new Gate("a:1").close().then(() => console.log("ok"));`], {
    cwd: fileURLToPath(new URL("../..", import.meta.url)),
    encoding: "utf8",
  });
  assert.equal(ran.stdout.trim(), "ok", ran.stderr);
});

test("abort_ends_a_call_that_waits_for_an_unavailable_cluster", async () => {
  const { transport } = scripted(() => problem(429, "too_many_requests", "60"));
  const gate = new Gate("a:1", { transport, patience: 120_000 });
  const began = performance.now();
  await assert.rejects(gate.acquire("a", { signal: AbortSignal.timeout(50) }), (error) => error instanceof Error && error.name === "TimeoutError");
  assert.ok(performance.now() - began < 2000);
});

test("many_waits_share_one_signal_without_a_warning", async (t) => {
  const warnings: string[] = [];
  const warned = (warning: Error): void => void warnings.push(warning.message);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const cluster = new FakeCluster();
  const gate = cluster.gate(QUIET);
  const held = await gate.acquire("a");
  const giveUp = new AbortController();
  const waits = Array.from({ length: 30 }, () => gate.acquire("a", { signal: giveUp.signal }));
  await pause(20);
  giveUp.abort();
  for (const wait of await Promise.allSettled(waits)) assert.equal(wait.status, "rejected");
  await held.release();
  await gate.close();
  assert.deepEqual(warnings, []);
});
