/** Cases of node-redlock's tests, restated. docs/clients/conformance.md has the differences. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Gate, LockLost, NotAcquired, Unavailable } from "lockgate";
import { FakeCluster } from "lockgate/fake";

const QUIET = { logger: { debug: () => undefined, warn: () => undefined } };

for (const names of [["a"], ["a1", "a2"]]) {
  test(`acquires_extends_and_releases_${names.length}`, async () => {
    await using gate = new FakeCluster().gate(QUIET);
    const lock = await gate.acquireAll(names, { ttl: 10_000 });
    assert.ok(lock.held && (await lock.verify()));
    await lock.extend();
    assert.equal(lock.tokens.length, names.length);
    await lock.release();
    for (const name of names) assert.deepEqual((await gate.inspect(name))["holders"], []);
  });
}

test("locks_fail_when_no_server_can_be_reached", async () => {
  const gate = new Gate("127.0.0.1:1,127.0.0.1:2", { ...QUIET, patience: 200 });
  await assert.rejects(gate.acquire("a"), Unavailable);
  await gate.close();
});

test("lock_is_exclusive_until_it_ends", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const first = await gate.acquire("a");
  await assert.rejects(gate.acquire("a", { wait: 0 }), NotAcquired);
  await assert.rejects(gate.acquire("a", { wait: 20 }), NotAcquired);
  cluster.expireSessions();
  await first.untilLost();
  await assert.rejects(first.release(), LockLost);
  const second = await gate.acquire("a", { wait: 0 });
  assert.ok(second.token > first.token);
});

test("overlapping_sets_of_locks_are_exclusive", async () => {
  await using gate = new FakeCluster().gate(QUIET);
  const first = await gate.acquireAll(["x", "y"]);
  await assert.rejects(gate.acquireAll(["y", "z"], { wait: 0 }), NotAcquired);
  assert.deepEqual((await gate.inspect("z"))["holders"], []);
  await first.release();
  await gate.acquireAll(["y", "z"], { wait: 0 });
});

test("using_keeps_the_lock_and_releases_it", async () => {
  await using gate = new FakeCluster().gate(QUIET);
  const done = await gate.using(["x", "y"], 500, {}, async (signal, lock) => {
    await pause(1200);
    assert.equal(signal.aborted, false);
    assert.ok(await lock.verify());
    return "done";
  });
  assert.equal(done, "done");
  assert.deepEqual((await gate.inspect("x"))["holders"], []);
});

test("using_aborts_its_signal_at_loss", async () => {
  const cluster = new FakeCluster();
  await using gate = cluster.gate(QUIET);
  const running = gate.using("x", async (signal) => {
    cluster.breakLock("x", "test");
    await pause(10_000, undefined, { signal });
  });
  await assert.rejects(running, LockLost);
});

test("using_is_exclusive", async () => {
  await using gate = new FakeCluster().gate(QUIET);
  let inside = 0;
  const routine = async (): Promise<void> => {
    inside += 1;
    assert.equal(inside, 1);
    await pause(10);
    inside -= 1;
  };
  await Promise.all([1, 2, 3].map(() => gate.using(["x", "y"], routine)));
});
