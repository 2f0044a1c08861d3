"""Tests without a cluster: decisions about answers and time, both faces over the fake, and a transport that loses answers."""

import asyncio
import gc
import json
import logging
import os
import signal
import threading
import time
import unittest
from typing import Any, Dict, List, Set

import lockgate
from lockgate import GateClosed, LockLost, Loss, NotAcquired, OutcomeUnknown, Refused, Unavailable, want
from lockgate._http import Answer, Broken, NotSent, Request
from lockgate._life import Life, Margin, now
from lockgate._servers import NotExecuted, Uncertain, judge, operation_of, pauses
from lockgate.fake import FakeCluster

GRANT = {"lock": "job", "holder": "a", "mode": "exclusive", "fencing_token": 7}


def life(ttl: float = 60.0) -> Life:
    return Life("s", now(), ttl, Margin(0, 0))


class Operations(unittest.TestCase):
    def test_operations_have_no_names_and_no_ids(self) -> None:
        for path, operation in (
            ("/v1/locks/a%2Fb/acquire", "POST locks/acquire"),
            ("/v1/locks/a", "POST locks"),
            ("/v1/multilock/release", "POST multilock/release"),
            ("/v1/sessions/secret/heartbeat", "POST sessions/heartbeat"),
            ("/v1/leases/secret?request_id=1", "POST leases"),
            ("/v1/znodes/a/b/c", "POST znodes"),
            ("/v1/txn", "POST txn"),
        ):
            self.assertEqual(operation_of(Request("POST", path)), operation)


class RecordedSpan:
    """Span as OpenTelemetry's interface has it."""

    trace_id, span_id, trace_flags = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1

    def __init__(self, name: str) -> None:
        self.record: Dict[str, Any] = {"name": name}

    def get_span_context(self) -> "RecordedSpan":
        return self

    def set_attribute(self, key: str, value: Any) -> None:
        self.record[key] = value

    def end(self) -> None:
        self.record["ended"] = True


class Spans(unittest.TestCase):
    def test_request_is_a_span_whose_context_the_server_gets(self) -> None:
        spans: List[RecordedSpan] = []
        headers: List[Dict[str, str]] = []

        class Cluster(FakeCluster):
            async def send(self, server: str, request: Request) -> Answer:
                headers.append(dict(request.headers))
                return await super().send(server, request)

        def start(operation: str) -> RecordedSpan:
            spans.append(RecordedSpan(operation))
            return spans[-1]

        with lockgate.Gate("a:1", transport=Cluster(), start_span=start, traceparent="of the caller") as gate:
            gate.inspect("x")
            with self.assertRaises(Refused):
                gate.get("/missing")
        self.assertEqual(
            [span.record for span in spans],
            [
                {"name": "GET locks", "server.address": "a:1", "ended": True},
                {"name": "GET znodes", "server.address": "a:1", "error.type": "no_znode", "ended": True},
            ],
        )
        self.assertEqual(headers[0]["traceparent"], "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


class Deadlines(unittest.TestCase):
    def test_margin_is_taken_off(self) -> None:
        self.assertAlmostEqual(Margin().valid_until(0, 10), 9.8)
        self.assertAlmostEqual(Margin().valid_until(0, 2), 1.88)
        self.assertEqual(Margin(2, 1).valid_until(5, 0.5), 5)

    def test_clock_alone_ends_the_session_and_nothing_brings_it_back(self) -> None:
        ending = life(0.01)
        hold = ending.enter(GRANT, None)
        time.sleep(0.02)
        self.assertEqual(hold.loss(), Loss("no_heartbeat"))
        ending.confirm(now(), 60)
        ending.lose(Loss("expired"))
        self.assertEqual(ending.loss(), Loss("no_heartbeat"))
        self.assertEqual(ending.enter({**GRANT, "holder": "late"}, None).loss(), Loss("no_heartbeat"))

    def test_older_confirmation_shortens_nothing(self) -> None:
        lasting = life()
        lasting.confirm(now() + 1, 60)
        before = lasting.valid_until
        lasting.confirm(now() - 30, 60)
        self.assertEqual(lasting.valid_until, before)

    def test_loss_reaches_holders_once_and_late_grants(self) -> None:
        told: List[Loss] = []
        living = life()
        hold = living.enter(GRANT, None)
        hold.on_lost(told.append)
        broken = Loss("broken", "ip:1.2.3.4", "stuck")
        living.lose_holder("a", broken)
        living.lose_holder("late", broken)
        self.assertEqual(living.enter({**GRANT, "holder": "late"}, None).loss(), broken)
        living.lose(Loss("expired"))
        self.assertEqual((told, hold.loss()), ([broken], broken))

    def test_state_event_does_not_concern_later_grants(self) -> None:
        living = life()
        old, new = living.enter(GRANT, None), living.enter({**GRANT, "holder": "b", "fencing_token": 9}, None)
        living.holds_at(8, [])
        self.assertEqual((old.loss(), new.loss()), (Loss("taken_away"), None))

    def test_failing_callback_does_not_stop_the_others(self) -> None:
        told: List[Loss] = []
        living = life()
        for number in range(2):
            hold = living.enter({**GRANT, "holder": str(number)}, None)
            hold.on_lost(lambda _: 1 / 0)
            hold.on_lost(told.append)
        with self.assertLogs("lockgate", logging.ERROR):
            living.lose(Loss("expired"))
        self.assertEqual(len(told), 2)

    def test_release_request_is_handed_over_once(self) -> None:
        asked: List[Any] = []
        living = life()
        living.enter(GRANT, None).on_request(asked.append)
        news = {"holder": "a", "by": "x", "reason": "y", "requested_at": "z"}
        sent = now()
        living.note_request("a", news)
        living.note_requests(sent, [])
        self.assertIsNotNone(living.holds["a"].request)
        living.note_requests(now(), [news])
        living.note_requests(now() + 1, [])
        self.assertEqual(len(asked), 1)
        self.assertIsNone(living.holds["a"].request)


class Answers(unittest.TestCase):
    def outcome(self, status: int, body: str, **headers: str) -> str:
        try:
            judge("s:1", Answer(status, headers, body.encode()))
        except Refused as refusal:
            return "not free" if isinstance(refusal, NotAcquired) else "refused"
        except NotExecuted as error:
            return f"again after {error.retry_after:g}"
        except Uncertain:
            return "in doubt"
        return "done"

    def test_answer_is_definite_only_if_a_server_of_the_cluster_says_so(self) -> None:
        self.assertEqual(self.outcome(204, ""), "done")
        self.assertEqual(self.outcome(409, '{"code": "lock_busy"}'), "not free")
        self.assertEqual(self.outcome(410, '{"code": "session_expired"}'), "refused")
        self.assertEqual(self.outcome(503, '{"code": "unavailable"}', **{"retry-after": "2"}), "again after 2")
        self.assertEqual(self.outcome(507, '{"code": "read_only"}'), "again after 0")
        for status in (503, 504):
            self.assertEqual(self.outcome(status, '{"code": "outcome_unknown"}'), "in doubt")
        self.assertEqual(self.outcome(500, '{"code": "internal"}'), "in doubt")
        self.assertEqual(self.outcome(404, "<html>nginx</html>"), "in doubt")
        self.assertEqual(self.outcome(200, "<html>"), "in doubt")

    def test_pauses_grow_to_their_bound(self) -> None:
        all_pauses = pauses()
        taken = [next(all_pauses) for _ in range(20)]
        self.assertTrue(0.125 <= taken[-1] <= 0.25)
        self.assertLessEqual(taken[0], 0.01)


class Lossy(FakeCluster):
    """Cluster whose servers fail in a given way, request by request."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: List[str] = []
        self.sent: List[Dict[str, Any]] = []
        #: locks that are "unavailable" once, as in an answer of a batch to its second attempt
        self.refuses_once: Set[str] = set()

    async def send(self, server: str, request: Request) -> Answer:
        fault = self.faults.pop(0) if self.faults and not request.path.endswith("heartbeat") else ""
        self.sent.append({"path": request.path, **(json.loads(request.body) if request.body else {})})
        if fault == "refused connection":
            raise NotSent("no connection")
        answer = await super().send(server, request)
        if fault == "lost answer":
            raise Broken("no answer")
        return answer

    async def _answer(self, request: Request) -> Answer:
        is_second = self.sent[-1].get("requests", [{}])[-1].get("body", {}).get("retry") == 1
        if is_second and any(f"/locks/{name}/" in request.path for name in self.refuses_once):
            return Answer(503, {}, b'{"code": "unavailable", "detail": "no leader", "status": 503}')
        return await super()._answer(request)


class Cut(FakeCluster):
    """Cluster that cannot be reached once it is cut. A question for the locks of a session is never answered."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self.heartbeats = self.questions = self.most_questions = 0

    async def send(self, server: str, request: Request) -> Answer:
        if not self.is_cut:
            return await super().send(server, request)
        if request.method == "GET" and request.path.startswith("/v1/sessions/"):
            self.questions += 1
            self.most_questions = max(self.most_questions, self.questions)
            try:
                await asyncio.Event().wait()
            finally:
                self.questions -= 1
        self.heartbeats += request.path.endswith("heartbeat")
        raise NotSent("no connection")

    async def stream(self, server: str, request: Request) -> Any:
        raise NotSent("no connection")


class Holdings(unittest.TestCase):
    def test_locks_are_asked_for_once_at_a_time(self) -> None:
        cluster = Cut()
        gate = cluster.gate(ttl=3.0)
        self.addCleanup(gate.close)
        lock = gate.lock("a")
        lock.acquire()
        cluster.is_cut = True
        end = time.monotonic() + 20
        while lock.loss is None:
            self.assertLess(time.monotonic(), end, "the session is never lost")
            time.sleep(0.02)
        self.assertGreater(cluster.heartbeats, 3)
        self.assertEqual(cluster.most_questions, 1)
        cluster.is_cut = False


class Retries(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = Lossy()
        self.gate = self.cluster.gate(patience=1.0)
        self.addCleanup(self.gate.close)
        self.gate.lock("warm").acquire()

    def test_lost_answers_are_asked_for_again_under_one_id(self) -> None:
        self.cluster.faults = ["lost answer"] * 3
        with self.gate.semaphore("s", limit=5) as lock:
            self.assertEqual(len(self.gate.inspect("s")["holders"]), 1)
            self.assertTrue(lock.owned())
        tries = [each for each in self.cluster.sent if each["path"] == "/v1/locks/s/acquire"]
        self.assertEqual(len({each["request_id"] for each in tries}), 1)
        self.assertEqual([each["retry"] for each in tries], [0, 1, 2, 3])

    def test_only_requests_without_a_definite_answer_are_sent_again_in_a_batch(self) -> None:
        self.gate.lease("b", ttl=60)
        self.cluster.refuses_once.add("c")
        self.cluster.faults = ["lost answer"]
        one, other, third = self.gate.leases(["a", "b", "c"], ttl=60)
        self.assertIsInstance(other, NotAcquired)
        assert isinstance(one, lockgate.Lease) and isinstance(third, lockgate.Lease)
        self.assertNotEqual(third.token, one.token)
        batches = [each["requests"] for each in self.cluster.sent if each["path"] == "/v1/batch"]
        sent = [[(each["path"][10:11], each["body"]["retry"]) for each in requests] for requests in batches]
        self.assertEqual(sent, [[("a", 0), ("b", 0), ("c", 0)], [("a", 1), ("b", 1), ("c", 1)], [("c", 2)]])
        self.assertEqual(len({each["body"]["request_id"] for requests in batches for each in requests}), 3)
        self.cluster.faults = ["refused connection"] * 1000
        self.assertEqual([type(each) for each in self.gate.release_leases([one, third])], [Unavailable] * 2)
        self.cluster.faults = ["lost answer"] * 1000
        self.assertEqual([type(each) for each in self.gate.release_leases([one, third])], [OutcomeUnknown] * 2)
        self.cluster.faults = []

    def test_three_kinds_of_errors(self) -> None:
        self.cluster.faults = ["refused connection"] * 1000
        with self.assertRaises(Unavailable):
            self.gate.create("/a")
        self.cluster.faults = ["lost answer"] * 1000
        with self.assertRaises(OutcomeUnknown):
            self.gate.set("/", "x")
        self.cluster.faults = ["lost answer", *["refused connection"] * 1000]
        with self.assertRaises(OutcomeUnknown):
            self.gate.set("/", "x")
        self.cluster.faults = []
        with self.assertRaises(Refused) as refused:
            self.gate.get("/missing")
        self.assertEqual(refused.exception.code, "no_znode")

    def test_acquire_without_an_answer_is_withdrawn(self) -> None:
        self.cluster.faults = ["lost answer"] * 30
        with self.assertRaises(OutcomeUnknown):
            self.gate.lock("x").acquire(blocking=False)
        self.cluster.faults = []
        end = time.monotonic() + 5
        while self.gate.inspect("x")["holders"] and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.gate.inspect("x")["holders"], [])


class Threads(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = FakeCluster()
        self.gate = self.cluster.gate()
        self.addCleanup(self.gate.close)

    def test_block_gives_a_token_and_releases(self) -> None:
        with self.gate.lock("a") as first:
            self.assertFalse(self.gate.lock("a").acquire(blocking=False))
            self.assertFalse(self.gate.lock("a").acquire(timeout=0.05))
            with self.assertRaises(NotAcquired):
                self.gate.lock("a", wait=0).__enter__()
        self.assertFalse(first.locked())
        first.release()
        with self.gate.lock("a") as second:
            self.assertGreater(second.token, first.token)

    def test_loss_ends_the_block_with_an_error(self) -> None:
        told: List[Loss] = []
        with self.assertRaises(LockLost) as lost, self.gate.lock("a") as lock:
            lock.on_lost(told.append)
            self.cluster.break_lock("a", "why")
            self.assertTrue(lock.lost.wait(5))
            with self.assertRaises(LockLost):
                lock.check()
        self.assertEqual(lost.exception.loss, Loss("broken", "test", "why"))

    def test_loss_does_not_hide_the_error_of_the_block(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.gate.lock("a") as lock:
            self.cluster.break_lock("a")
            lock.lost.wait(5)
            raise ZeroDivisionError

    def test_waiting_thread_is_granted_in_turn(self) -> None:
        order: List[int] = []

        def work(number: int) -> None:
            with self.gate.lock("a"):
                order.append(number)

        with self.gate.lock("a"):
            threads = []
            for number in range(3):
                threads.append(threading.Thread(target=work, args=(number,)))
                threads[-1].start()
                while len(self.gate.inspect("a")["queue"]) <= number:
                    time.sleep(0.005)
        for thread in threads:
            thread.join(5)
        self.assertEqual(order, [0, 1, 2])

    def test_owner_enters_again_and_releases_as_often(self) -> None:
        outer, inner = self.gate.lock("a", owner="me"), self.gate.lock("a", owner="me")
        with outer:
            with inner:
                self.assertEqual(outer.token, inner.token)
            self.assertTrue(outer.locked())
        self.assertFalse(outer.locked())

    def test_several_locks_and_modes(self) -> None:
        with self.gate.locks("a", want("b", mode="shared")) as both, self.gate.shared("b", wait=0):
            self.assertEqual(len(both.tokens), 2)
            self.assertFalse(self.gate.lock("a").acquire(blocking=False))
        upgradeable = self.gate.upgradeable("u")
        upgradeable.acquire()
        before = upgradeable.token
        self.assertGreater(upgradeable.upgrade(0), before)
        upgradeable.downgrade()
        self.assertTrue(self.gate.shared("u").acquire(blocking=False))

    def test_guarded_write_needs_the_lock(self) -> None:
        self.gate.create("/data", "0")
        lock = self.gate.lock("a")
        lock.acquire()
        self.gate.transaction([{"set": {"path": "/data", "data": "1"}}], while_held=[lock])
        self.cluster.break_lock("a")
        with self.assertRaises(LockLost):
            self.gate.transaction([{"set": {"path": "/data", "data": "2"}}], while_held=[lock])
        self.assertEqual(self.gate.get("/data").text, "1")

    def test_hand_over_passes_over_the_queue(self) -> None:
        election = self.gate.election("e")
        one, two, three = (election.candidate(name) for name in ("one", "two", "three"))
        one.campaign()
        with self.assertRaises(ValueError):
            one.hand_over("nobody")
        threads = [threading.Thread(target=each.campaign) for each in (two, three)]
        for number, thread in enumerate(threads):
            thread.start()
            while len(self.gate.inspect("e")["queue"]) <= number:
                time.sleep(0.005)
        one.hand_over("three")
        threads[1].join(5)
        self.assertEqual(election.leader(), "three")
        three.resign()
        threads[0].join(5)
        self.assertEqual(next(election.observe()), "two")

    def test_new_session_after_the_old_one_is_lost(self) -> None:
        lock = self.gate.lock("a")
        lock.acquire()
        first = self.gate.session_id
        self.cluster.expire_sessions()
        self.assertTrue(lock.lost.wait(5))
        self.assertIsNone(self.gate.session_id)
        with self.gate.lock("a"):
            self.assertNotEqual(self.gate.session_id, first)
        self.assertEqual(self.gate.metrics()["lost"], 1)

    def test_closed_gate_refuses_and_frees(self) -> None:
        other = self.cluster.gate()
        self.addCleanup(other.close)
        lock = self.gate.lock("a")
        lock.acquire()
        self.gate.close()
        self.assertEqual(lock.loss, Loss("closed"))
        self.assertTrue(other.lock("a").acquire(blocking=False))
        with self.assertRaises(GateClosed):
            self.gate.lock("b").acquire()

    def test_lease_is_resumed_by_its_text(self) -> None:
        lease = self.gate.lease("a", ttl=5, note="nightly")
        self.assertFalse(self.gate.lock("a").acquire(blocking=False))
        with self.gate.resume_lease(lease.text) as resumed:
            self.assertEqual(resumed.renew(), 5)
            self.assertEqual(resumed.renew(9), 9)
            self.assertEqual(resumed.inspect()["note"], "nightly")
        self.assertTrue(self.gate.lock("a").acquire(blocking=False))

    def test_many_leases_have_results_of_their_own(self) -> None:
        taken = self.gate.lease("job-7", ttl=60)
        names = [f"job-{number}" for number in range(200)]
        acquired = self.gate.leases(names, ttl=60)
        refused = [each for each in acquired if isinstance(each, NotAcquired)]
        leases = [each for each in acquired if isinstance(each, lockgate.Lease)]
        self.assertEqual((len(leases), len(refused), acquired.index(refused[0])), (199, 1, 7))
        self.assertEqual(self.gate.metrics()["requests"], 3)
        taken.release()
        self.assertEqual(self.gate.release_leases(leases[:1]), [None])
        ended, left = self.gate.renew_leases(leases[:2], ttl=90)
        self.assertEqual((getattr(ended, "code", None), left), ("lease_expired", 90))
        self.assertEqual(leases[1].expires_in, 90)
        self.assertEqual(set(self.gate.release_leases(leases)), {None})
        self.assertTrue(self.gate.lock("job-1").acquire(blocking=False))

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_lease_waits_in_the_queue_without_a_connection(self) -> None:
        gate = self.cluster.gate()
        first = gate.lease("job", ttl=60)
        second, third = (gate.lease("job", ttl=60, queue=True) for _ in range(2))
        self.assertIsNone(second.token)
        self.assertFalse(second.wait(timeout=0.05))
        other = self.cluster.gate().resume_lease(second.text)
        first.release()
        self.assertTrue(other.wait())
        self.assertGreater(other.token or 0, first.token or 0)
        third.release()
        with self.assertRaises(Refused) as gone:
            third.wait()
        self.assertEqual(gone.exception.code, "lease_expired")

    def test_polled_wait_is_granted_in_turn_or_leaves_the_queue(self) -> None:
        gate = self.cluster.gate()
        first = gate.lock("a")
        first.acquire()
        self.assertFalse(gate.lock("a", poll=True).acquire(timeout=0.05))
        self.assertFalse(gate.lock("a", poll=True).acquire(blocking=False))
        self.assertEqual(gate.inspect("a")["queue"], [])
        second = gate.lock("a", poll=True)
        waits = threading.Thread(target=second.acquire)
        waits.start()
        while not gate.inspect("a")["queue"]:
            time.sleep(0.01)
        first.release()
        waits.join()
        self.assertTrue(second.owned())
        second.release()
        self.assertFalse(gate.lock("a").locked())

    def test_child_of_a_fork_holds_nothing(self) -> None:
        lock = self.gate.lock("a")
        lock.acquire()
        child = os.fork()
        if child == 0:
            os._exit(0 if lock.loss is not None and self.gate.session_id is None else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        lock.check()

    def test_interrupted_wait_leaves_the_queue(self) -> None:
        holder = self.cluster.gate()
        self.addCleanup(holder.close)
        # Processes in the background of a shell inherit that the signal is ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

        def interrupt() -> None:
            while not holder.inspect("a")["queue"]:
                time.sleep(0.005)
            # To the main thread, as Ctrl-C does.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        with holder.lock("a"):
            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                self.gate.lock("a").acquire()
            thread.join()
            end = time.monotonic() + 5
            while holder.inspect("a")["queue"]:
                self.assertLess(time.monotonic(), end, "it is still in the queue")
                time.sleep(0.005)

    def test_addresses_are_checked(self) -> None:
        with self.assertRaises(ValueError):
            lockgate.Gate("localhost")


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.cluster = FakeCluster()
        self.gate = self.cluster.async_gate()

    async def asyncTearDown(self) -> None:
        await self.gate.close()

    async def break_soon(self, name: str) -> None:
        await asyncio.sleep(0.02)
        await asyncio.get_running_loop().run_in_executor(None, self.cluster.break_lock, name, "why")

    async def test_leases_of_a_cancelled_call_are_released(self) -> None:
        for pause in (0.0, 0.0001, 0.001):
            call = asyncio.ensure_future(self.gate.leases(["a", "b"], ttl=60))
            await asyncio.sleep(pause)
            if call.cancel():
                with self.assertRaises(asyncio.CancelledError):
                    await call
            else:
                await self.gate.release_leases([each for each in await call if isinstance(each, lockgate.aio.Lease)])
            for name in ("a", "b"):
                lock = self.gate.lock(name)
                self.assertTrue(await lock.acquire(timeout=5))
                await lock.release()

    async def test_loss_cancels_the_task_in_the_block(self) -> None:
        breaking = asyncio.ensure_future(self.break_soon("a"))
        with self.assertRaises(LockLost) as lost:
            async with self.gate.lock("a"):
                await asyncio.sleep(60)
        self.assertEqual(lost.exception.loss, Loss("broken", "test", "why"))
        await breaking
        # The task goes on: nothing of the cancellation is left.
        await asyncio.sleep(0)

    async def test_cancellation_by_others_stays_one(self) -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with self.gate.lock("a"):
                entered.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(work())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertFalse(await self.gate.lock("a").locked())

    async def test_error_of_the_block_wins(self) -> None:
        breaking = asyncio.ensure_future(self.break_soon("a"))
        with self.assertRaises(ZeroDivisionError):
            async with self.gate.lock("a"):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise ZeroDivisionError from None
        await breaking

    async def test_cancelled_wait_leaves_the_queue(self) -> None:
        async with self.gate.lock("a"):
            task = asyncio.ensure_future(self.gate.lock("a").acquire())
            while not (await self.gate.inspect("a"))["queue"]:
                await asyncio.sleep(0.005)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            # It is withdrawn in the background.
            end = time.monotonic() + 5
            while (await self.gate.inspect("a"))["queue"]:
                self.assertLess(time.monotonic(), end, "it is still in the queue")
                await asyncio.sleep(0.005)

    async def test_grant_in_the_moment_of_cancellation_is_given_back(self) -> None:
        for pause in range(30):
            lock = self.gate.lock("a")
            await lock.acquire()
            task = asyncio.ensure_future(self.gate.lock("a").acquire())
            while not (await self.gate.inspect("a"))["queue"]:
                await asyncio.sleep(0)
            releasing = asyncio.ensure_future(lock.release())
            await asyncio.sleep(pause / 20_000)
            task.cancel()
            await releasing
            try:
                await task
            except asyncio.CancelledError:
                pass
            else:
                await self.gate.break_lock("a", "next round")
            end = time.monotonic() + 5
            while (await self.gate.inspect("a"))["holders"]:
                self.assertLess(time.monotonic(), end, "a grant has leaked")
                await asyncio.sleep(0.005)

    async def test_callbacks_run_in_the_loop(self) -> None:
        thread = threading.get_ident()
        threads: List[int] = []
        called = asyncio.Event()

        def on_lost(_: Loss) -> None:
            threads.append(threading.get_ident())
            called.set()

        lock = self.gate.lock("a")
        lock.on_lost(on_lost)
        await lock.acquire()
        await self.break_soon("a")
        await asyncio.wait_for(called.wait(), 5)
        self.assertEqual(threads, [thread])

    async def test_observe_yields_each_leader(self) -> None:
        election = self.gate.election("e")
        seen: List[Any] = []
        async for leader in election.observe():
            seen.append(leader)
            if leader is None and len(seen) > 1:
                break
            if len(seen) == 1:
                candidate = election.candidate("me")
                await candidate.campaign()
            else:
                await candidate.resign()
        self.assertEqual(seen, [None, "me", None])


def tearDownModule() -> None:
    gc.collect()


if __name__ == "__main__":
    unittest.main()
