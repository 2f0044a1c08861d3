"""The behaviours of a client, by number, each as tests against a cluster of three nodes. `docs/clients/write-a-client.md` explains them."""

import itertools
import os
import signal
import socket
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

from harness import CommandError, Failure, check, until

#: Margin of the deadline: 1 % and 100 ms. See behaviour 2.
RATE, NOTICE = 0.01, 0.1

#: TTL of sessions that outlive a change of leaders. On a busy machine an election may take seconds.
FAILOVER_TTL_MS = 20_000

TITLES = {
    1: "One session, opened lazily and kept alive",
    2: "Deadline from the sending of the heartbeat",
    3: "Loss told before another grant",
    4: "Event stream followed and resumed",
    5: "Idempotent retries, three kinds of errors",
    6: "Waiting and giving up",
    7: "Several endpoints, `Retry-After`, `at_leader`",
    8: "Modes, several locks, re-entry",
    9: "Fencing tokens, guarded writes, `check`, `verify`",
    10: "Leases without a session",
    11: "Release requests, idempotent release",
    12: "Clean shutdown",
    13: "TLS, client certificates, tokens",
    14: "Election",
    15: "Znodes",
    16: "Fake in memory",
    17: "Logging, metrics, trace context",
    18: "Paused process finds the loss first",
}
TESTS = {number: [] for number in TITLES}


class Skip(Exception):
    """The server, or the language, has no such thing."""


def behaviour(number):
    def add(function):
        TESTS[number].append(function)
        return function

    return add


def heartbeats(proxies):
    return sorted((each for proxy in proxies for each in proxy.requests if each.is_("heartbeat")), key=lambda each: each.at)


def is_acquire(request):
    return request.is_("acquire")


# 1


@behaviour(1)
def session_is_opened_lazily_and_survives_its_ttl(t):
    proxies = t.proxies()
    d = t.client(proxies)
    time.sleep(0.3)
    check(not any(proxy.requests for proxy in proxies), "a request was sent before the first call")
    check(d.do("session", client="c")["session"] is None, "a session is open before the first call")
    a, b = t.name("a"), t.name("b")
    d.do("acquire", client="c", as_="a", lock=a, wait_ms=0)
    d.do("acquire", client="c", as_="b", lock=b, wait_ms=0)
    session = d.do("session", client="c")["session"]
    time.sleep(2.5 * t.ttl / 1000)
    holders = t.cluster.lock(a)["holders"] + t.cluster.lock(b)["holders"]
    check([each["session"] for each in holders] == [session, session], f"the locks are held by {holders}")
    opened = [each for proxy in proxies for each in proxy.requests if each.is_("sessions")]
    check(len({each.id for each in opened}) == 1, f"{len(opened)} sessions were opened")
    sent = [each.at for each in heartbeats(proxies)]
    gaps = [later - earlier for earlier, later in zip(sent, sent[1:])]
    check(gaps and max(gaps) < t.ttl / 1000 * 0.5, f"the gaps between heartbeats are {gaps}")


@behaviour(1)
def silent_server_is_left_within_a_sixth_of_the_ttl(t):
    proxies = t.proxies()
    d = t.client(proxies)
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    until(lambda: heartbeats(proxies), "a heartbeat is sent")
    home = heartbeats(proxies)[-1].proxy
    home.stalled.set()
    began = time.monotonic()
    other = until(lambda: [each for each in heartbeats(proxies) if each.at > began and each.proxy is not home], "another server gets one")
    check(other[0].at - began < t.ttl / 1000 * (1 / 3 + 1 / 6 + 0.15), "the heartbeat to another server came too late")
    time.sleep(1.5 * t.ttl / 1000)
    check(d.do("check", as_="h")["valid"], "the lock was lost with one silent server")


# 2


@behaviour(2)
def deadline_counts_from_when_the_heartbeat_was_sent(t):
    proxies = t.proxies()
    for proxy in proxies:
        proxy.delay = t.ttl / 1000 * 0.12
    d = t.client(proxies)
    d.do("acquire", client="c", as_="h", lock=t.name(), wait_ms=0)
    time.sleep(t.ttl / 1000)
    # Every later heartbeat is swallowed; the stream and the answers that are on their way arrive.
    cut_at = time.monotonic()
    for proxy in proxies:
        proxy.rule(lambda request: request.is_("heartbeat"), "hold", times=1000)
        proxy.rule(lambda request: request.method == "GET", "hold", times=1000)
    lost = d.event("lost", as_="h", timeout=2 * t.ttl / 1000 + 5)
    check(lost["reason"] == "no_heartbeat", f"the reason is {lost['reason']}")
    # The proxy sees a heartbeat a little after it was sent.
    last = [each for each in heartbeats(proxies) if each.at < cut_at and each.answered_at is not None][-1]
    ttl = t.ttl / 1000
    latest = last.at + ttl - ttl * RATE - NOTICE
    check(lost["at"] <= latest + t.slack, f"told {lost['at'] - latest:.3f} s after the deadline")
    check(lost["at"] >= latest - 0.5 * ttl, f"told {latest - lost['at']:.3f} s too early")
    check(not d.do("check", as_="h")["valid"], "`check` is positive after the loss")


# 3


@behaviour(3)
def loss_is_told_before_another_client_is_granted_the_lock(t):
    proxies = t.proxies()
    d = t.client(proxies)
    lock = t.name()
    block = d.start("block", client="c", as_="h", lock=lock, wait_ms=0)
    d.event("entered", as_="h")
    next_one = t.waiter(lock)
    for proxy in proxies:
        proxy.cut()
    lost = d.event("lost", as_="h", timeout=2 * t.ttl / 1000 + 5)
    check(lost["reason"] == "no_heartbeat", f"the reason is {lost['reason']}")
    d.event("interrupted", as_="h")
    granted_at = next_one()
    check(lost["at"] < granted_at, f"told {lost['at'] - granted_at:.3f} s after the grant to another client")
    for proxy in proxies:
        proxy.mend()
    check_lost(d, block, "no_heartbeat")


def check_lost(d, command, reason):
    try:
        d.reply(command)
    except CommandError as error:
        check(error.kind == "lost" and error.reason == reason, f"the block ended with {error}")
        return
    raise Failure("the block ended without an error after the loss")


@behaviour(3)
def broken_lock_is_told_with_author_and_reason(t):
    d = t.client()
    lock = t.name()
    block = d.start("block", client="c", as_="h", lock=lock, wait_ms=0)
    d.event("entered", as_="h")
    t.cluster.break_holder(lock, "it hangs")
    lost = d.event("lost", as_="h")
    check(lost["reason"] == "broken", f"the reason is {lost['reason']}")
    check("127.0.0.1" in str(lost["by"]) and lost["detail"] == "it hangs", f"the event is {lost}")
    d.event("interrupted", as_="h")
    check_lost(d, block, "broken")


@behaviour(3)
def closing_the_client_is_told_to_a_holder(t):
    d = t.client()
    d.do("acquire", client="c", as_="h", lock=t.name(), wait_ms=0)
    d.do("close", client="c")
    check(d.event("lost", as_="h")["reason"] == "closed", "the reason is not `closed`")


@behaviour(3)
def hold_ends_at_its_maximum(t):
    if not t.cluster.has("/v1/leases/{lease}/renew"):
        raise Skip("the server has no `max_hold_ms`")
    d = t.client()
    d.do("acquire", client="c", as_="h", lock=t.name(), wait_ms=0, max_hold_ms=t.ttl // 2)
    check(d.event("lost", as_="h")["reason"] == "max_hold", "the reason is not `max_hold`")
    error = d.fails("lost", "release", as_="h")
    check("max_hold" in error.message, f"the text of the error is {error.message}")


# 4


@behaviour(4)
def break_is_told_at_once_by_the_event_stream(t):
    d = t.client(ttl_ms=60_000)
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    time.sleep(1)
    began = time.monotonic()
    t.cluster.break_holder(lock)
    lost = d.event("lost", as_="h", timeout=10)
    # With this TTL a heartbeat is due after 20 s only.
    check(lost["at"] - began < 5, f"told after {lost['at'] - began:.2f} s")


@behaviour(4)
def stream_resumes_after_the_last_event(t):
    proxies = t.proxies()
    d = t.client(proxies, ttl_ms=60_000)
    lock, other = t.name("a"), t.name("b")
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    d.do("acquire", client="c", as_="k", lock=other, wait_ms=0)

    def streams():
        return [each for proxy in proxies for each in proxy.requests if each.is_("events", "GET")]

    until(streams, "the stream is opened")
    t.cluster.break_holder(other, "first")
    d.event("lost", as_="k")
    for proxy in proxies:
        proxy.cut()
    t.cluster.break_holder(lock, "meanwhile")
    for proxy in proxies:
        proxy.mend()
    lost = d.event("lost", as_="h")
    check((lost["reason"], lost["detail"]) == ("broken", "meanwhile"), f"the event is {lost}")
    # The position is in the header of event streams, or in the query.
    ids = [each.headers.get("last-event-id") or parse_qs(urlsplit(each.path).query).get("zxid") for each in streams()]
    check(ids[-1], f"the ids of the streams are {ids}")
    check(len({line["as"] for line in d.events("lost")}) == len(d.events("lost")), "a loss was told twice")


# 5


@behaviour(5)
def lost_answer_is_asked_for_again_under_the_same_id(t):
    proxies = t.proxies()
    d = t.client(proxies)
    d.do("acquire", client="c", as_="w", lock=t.name("warm"), wait_ms=0)
    lock = t.name()
    for proxy in proxies:
        proxy.rule(is_acquire, "drop")
    d.do("acquire", client="c", as_="h", lock=lock, mode="semaphore", limit=10, wait_ms=0)
    tries = [each for proxy in proxies for each in proxy.requests if is_acquire(each) and f"/{lock}/" in unquote(each.path)]
    check(len(tries) >= 2, "the request was not sent again")
    check(len({each.id for each in tries}) == 1 and tries[0].id, f"the ids are {[each.id for each in tries]}")
    check(len({each.proxy for each in tries}) >= 2, "it was not sent to another server")
    check(len(t.cluster.lock(lock)["holders"]) == 1, "the acquire was done twice")
    for proxy in proxies:
        proxy.rules.clear()
        proxy.rule(lambda request: request.is_("release"), "drop")
    d.do("release", as_="h")
    check(not t.cluster.lock(lock)["holders"], "the lock is still held")
    sent = [each for proxy in proxies for each in proxy.requests if each.is_("release")]
    check(len(sent) >= 2 and len({each.id for each in sent}) == 1, f"the ids are {[each.id for each in sent]}")


@behaviour(5)
def kinds_of_errors_are_not_mixed(t):
    proxies = t.proxies()
    d = t.client(proxies, patience_ms=2000)
    lock = t.name()
    t.cluster.acquire(t.cluster.session(), lock)
    check(d.fails("refused", "acquire", client="c", as_="x", lock=lock, wait_ms=0).code == "lock_busy", "the code is not `lock_busy`")
    check(d.fails("refused", "get", client="c", path="/no/such").code in ("no_znode", "no_node"), "the code is not `no_znode`")
    d.do("create", client="c", path=f"/{t.name('z').replace('/', '-')}")
    for proxy in proxies:
        proxy.rule(lambda request: request.method == "PUT", "drop", times=1000)
    d.fails("unknown", "set", client="c", path=f"/{t.last.replace('/', '-')}", data="x")
    dead = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    d.do("open", client="dead", servers=dead, ttl_ms=t.ttl, patience_ms=1000)
    d.fails("unavailable", "acquire", client="dead", as_="y", lock=lock, wait_ms=0)


@behaviour(5)
def full_queue_is_a_refusal(t):
    cluster = t.cluster_of_short_queues(8)
    d = t.client(servers=cluster.servers)
    lock = t.name()
    cluster.acquire(cluster.session(), lock)

    def start(numbers, wait_ms):
        return [d.start("acquire", client="c", as_=f"h{number}", lock=lock, wait_ms=wait_ms) for number in numbers]

    def codes_of(waits):
        codes = []
        for each in waits:
            try:
                d.reply(each)
            except CommandError as error:
                check(error.kind == "refused", f"a full queue ended with {error}")
                codes.append(error.code)
        return codes

    # Those in the queue wait for longer, so that no place becomes free for the others. The holder counts as well, and each
    # server counts by its own state.
    queued = start(range(8), 8000)
    until(lambda: len(cluster.lock(lock)["queue"]) >= 7, "the queue is full")
    others = codes_of(start(range(8, 12), 3000))
    check(len(others) == 4 and others.count("lock_timeout") <= 1, f"the codes of the others are {others}")
    in_queue = codes_of(queued)
    check(in_queue.count("lock_timeout") >= 7, f"the codes of those in the queue are {in_queue}")
    check(not cluster.lock(lock)["queue"], "the queue is not empty")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


# 6


@behaviour(6)
def wait_ends_at_its_time_and_leaves_the_queue(t):
    d = t.client()
    lock = t.name()
    session = t.cluster.session()
    holder = t.cluster.acquire(session, lock)[1]["holder"]
    check(d.fails("refused", "acquire", client="c", as_="a", lock=lock, wait_ms=0).code == "lock_busy", "not `lock_busy`")
    began = time.monotonic()
    check(d.fails("refused", "acquire", client="c", as_="b", lock=lock, wait_ms=1000).code == "lock_timeout", "not `lock_timeout`")
    check(0.95 < time.monotonic() - began < 1 + 5 * t.slack, f"waited {time.monotonic() - began:.2f} s of 1 s")
    check(not t.cluster.lock(lock)["queue"], "it is still in the queue")
    for_ever = d.start("acquire", client="c", as_="h", lock=lock, wait_ms=None)
    until(lambda: t.cluster.lock(lock)["queue"], "it waits")
    check(not d.replied(for_ever), "it does not wait")
    t.cluster.api("POST", f"/v1/locks/{lock.replace('/', '%2F')}/release", {"session": session, "holder": holder})
    d.reply(for_ever)


@behaviour(6)
def cancelled_wait_leaves_the_queue(t):
    d = t.client()
    t.needs(d, "cancel")
    lock = t.name()
    t.cluster.acquire(t.cluster.session(), lock)
    waits = d.start("acquire", client="c", as_="h", lock=lock, wait_ms=None)
    until(lambda: t.cluster.lock(lock)["queue"], "it waits")
    d.do("cancel", command=waits)
    try:
        d.reply(waits)
    except Exception as error:
        check(getattr(error, "kind", None) == "cancelled", f"it ended with {error}")
    until(lambda: not t.cluster.lock(lock)["queue"], "it leaves the queue", 5)


@behaviour(6)
def grant_in_the_moment_of_giving_up_is_given_back(t):
    d = t.client()
    t.needs(d, "cancel")
    session = t.cluster.session()
    kept = 0
    for round_ in range(20):
        lock = t.name(str(round_))
        holder = t.cluster.acquire(session, lock)[1]["holder"]
        waits = d.start("acquire", client="c", as_=lock, lock=lock, wait_ms=None)
        until(lambda: t.cluster.lock(lock)["queue"], "it waits")
        release = lambda: t.cluster.api("POST", f"/v1/locks/{lock.replace('/', '%2F')}/release", {"session": session, "holder": holder})
        at_once = threading.Thread(target=release)
        at_once.start()
        time.sleep(round_ * 0.001)
        d.do("cancel", command=waits)
        at_once.join()
        try:
            d.reply(waits)
            kept += 1
        except Exception:
            until(lambda: not t.cluster.lock(lock)["holders"], "the late grant is given back", 10)
    check(kept < 20, "no call was cancelled in time")


@behaviour(6)
def polled_wait_keeps_its_place_without_a_connection(t):
    proxies = t.proxies()
    d = t.client(proxies, ttl_ms=FAILOVER_TTL_MS)
    t.needs(d, "poll")
    lock = t.name()
    session = t.cluster.session()
    holder = t.cluster.acquire(session, lock)[1]["holder"]
    waits = d.start("acquire", client="c", as_="h", lock=lock, wait_ms=None, poll=True)
    place = until(lambda: t.cluster.lock(lock)["queue"], "it waits")[0]["holder"]
    for proxy in proxies:
        proxy.cut()
    # A call that waits on a connection loses its place 5 s after a cut.
    time.sleep(7)
    check([each["holder"] for each in t.cluster.lock(lock)["queue"]] == [place], "the place in the queue is lost")
    for proxy in proxies:
        proxy.mend()
    check(d.fails("refused", "acquire", client="c", as_="x", lock=lock, wait_ms=1000, poll=True).code == "lock_timeout", "not `lock_timeout`")
    check([each["holder"] for each in t.cluster.lock(lock)["queue"]] == [place], "the place of a wait that is over is kept")
    t.cluster.api("POST", f"/v1/locks/{lock.replace('/', '%2F')}/release", {"session": session, "holder": holder})
    check(d.reply(waits)["holder"] == place, "it has another place")
    d.do("release", as_="h")
    check(not t.cluster.lock(lock)["holders"], "it is still held")


# 7


@behaviour(7)
def dead_servers_are_passed_over(t):
    dead = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    for number in range(3):
        d = t.client(servers=[*dead, t.cluster.servers[2]])
        began = time.monotonic()
        d.do("acquire", client="c", as_="h", lock=t.name(str(number)), wait_ms=0)
        check(time.monotonic() - began < 5, "it took too long")


@behaviour(7)
def hold_and_wait_survive_the_death_of_the_leader(t):
    d = t.client(ttl_ms=FAILOVER_TTL_MS)
    held, wanted = t.name("held"), t.name("wanted")
    d.do("acquire", client="c", as_="h", lock=held, wait_ms=0)
    session = t.cluster.session()
    holder = t.cluster.acquire(session, wanted)[1]["holder"]
    waits = d.start("acquire", client="c", as_="w", lock=wanted, wait_ms=None)
    until(lambda: t.cluster.lock(wanted)["queue"], "it waits")
    t.cluster.signal(t.cluster.leader(), signal.SIGKILL)
    time.sleep(1)
    t.cluster.api("POST", f"/v1/locks/{wanted.replace('/', '%2F')}/release", {"session": session, "holder": holder})
    d.reply(waits)
    t.cluster.up()
    check(d.do("check", as_="h")["valid"] and d.do("verify", as_="h")["held"], "the lock was lost")
    check(not d.events("lost"), f"losses were told: {d.events('lost')}")


@behaviour(7)
def stopped_leader_is_left(t):
    d = t.client(ttl_ms=FAILOVER_TTL_MS)
    d.do("acquire", client="c", as_="h", lock=t.name("held"), wait_ms=0)
    leader = t.cluster.leader()
    t.cluster.signal(leader, signal.SIGSTOP)
    try:
        d.do("acquire", client="c", as_="k", lock=t.name("more"), wait_ms=5000)
        check(d.do("check", as_="h")["valid"], "the lock was lost")
    finally:
        t.cluster.signal(leader, signal.SIGCONT)


@behaviour(7)
def retry_after_is_obeyed(t):
    proxies = t.proxies()
    d = t.client(proxies)
    t.needs(d, "retry_after")
    d.do("acquire", client="c", as_="w", lock=t.name("warm"), wait_ms=0)
    body = b'{"type": "x", "title": "x", "status": 429, "detail": "full", "code": "too_many_requests"}'
    answer = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\nretry-after: 2\r\ncontent-length: %d\r\n\r\n%b"
    began = time.monotonic()
    for proxy in proxies:
        proxy.rule(is_acquire, lambda _: answer % (len(body), body))
    d.do("acquire", client="c", as_="h", lock=t.name(), wait_ms=0)
    for proxy in proxies:
        sent = [each.at for each in proxy.requests if is_acquire(each) and each.at > began]
        gaps = [later - earlier for earlier, later in zip(sent, sent[1:])]
        check(all(gap > 1.9 for gap in gaps), f"a server that named 2 s was asked again after {gaps}")


@behaviour(7)
def at_leader_uses_the_leader(t):
    proxies = t.proxies()
    # A leader that leaves a heartbeat without an answer for a sixth of the TTL is left, as it must be. On a busy machine it may need longer
    # than a sixth of a short one.
    d = t.client(proxies, at_leader=True, ttl_ms=FAILOVER_TTL_MS)
    leader, numbers = t.cluster.leader(), itertools.count()

    def used():
        began, number = time.monotonic(), next(numbers)
        d.do("acquire", client="c", as_=f"h{number}", lock=t.name(str(number)), wait_ms=0)
        return [proxies.index(proxy) + 1 for proxy in proxies for each in proxy.requests if is_acquire(each) and each.at > began]

    until(lambda: used() == [leader], "the leader is used")
    later = [used() for _ in range(5)]
    check(later == 5 * [[leader]] or t.cluster.leader() != leader, f"node {leader} leads, and {later} were used")


# 8


@behaviour(8)
def shared_upgradeable_and_exclusive(t):
    d = t.client()
    lock = t.name()
    d.do("acquire", client="c", as_="r1", lock=lock, mode="shared", wait_ms=0)
    d.do("acquire", client="c", as_="r2", lock=lock, mode="shared", wait_ms=0)
    d.fails("refused", "acquire", client="c", as_="x", lock=lock, mode="exclusive", wait_ms=0)
    first = d.do("acquire", client="c", as_="u", lock=lock, mode="upgradeable", wait_ms=0)
    d.fails("refused", "upgrade", as_="u", wait_ms=0)
    d.do("release", as_="r1")
    waits = d.start("upgrade", as_="u", wait_ms=10_000)
    d.do("release", as_="r2")
    upgraded = d.reply(waits)
    check(upgraded["mode"] == "exclusive" and upgraded["fencing_token"] > first["fencing_token"], f"{first} became {upgraded}")
    check(d.do("downgrade", as_="u", mode="shared")["mode"] == "shared", "the mode is not shared")
    d.do("acquire", client="c", as_="r3", lock=lock, mode="shared", wait_ms=0)


@behaviour(8)
def semaphore_counts_permits(t):
    d = t.client()
    lock = t.name()
    d.do("acquire", client="c", as_="a", lock=lock, mode="semaphore", limit=5, permits=3, wait_ms=0)
    d.do("acquire", client="c", as_="b", lock=lock, mode="semaphore", limit=5, permits=2, wait_ms=0)
    d.fails("refused", "acquire", client="c", as_="x", lock=lock, mode="semaphore", limit=5, permits=1, wait_ms=0)
    d.do("release", as_="a")
    d.do("acquire", client="c", as_="e", lock=lock, mode="semaphore", limit=5, permits=1, wait_ms=0)


@behaviour(8)
def several_locks_are_all_or_none(t):
    d = t.client()
    a, b = t.name("a"), t.name("b")
    session = t.cluster.session()
    holder = t.cluster.acquire(session, b)[1]["holder"]
    locks = [{"lock": a}, {"lock": b, "mode": "shared"}]
    d.fails("refused", "acquire_many", client="c", as_="m", locks=locks, wait_ms=0)
    check(not t.cluster.lock(a)["holders"], "one of two was kept")
    waits = d.start("acquire_many", client="c", as_="m", locks=locks, wait_ms=None)
    until(lambda: t.cluster.lock(b)["queue"], "it waits")
    t.cluster.api("POST", f"/v1/locks/{b.replace('/', '%2F')}/release", {"session": session, "holder": holder})
    check(len(d.reply(waits)["fencing_tokens"]) == 2, "there are not two tokens")
    d.do("release", as_="m")
    check(not t.cluster.lock(a)["holders"] and not t.cluster.lock(b)["holders"], "one of two is still held")


@behaviour(8)
def owner_may_enter_again_and_others_may_not(t):
    d = t.client()
    lock = t.name()
    first = d.do("acquire", client="c", as_="a", lock=lock, owner="mine", wait_ms=0)
    second = d.do("acquire", client="c", as_="b", lock=lock, owner="mine", wait_ms=0)
    check(first["fencing_token"] == second["fencing_token"], "re-entry has another token")
    d.fails("refused", "acquire", client="c", as_="x", lock=lock, owner="other", wait_ms=0)
    d.fails("refused", "acquire", client="c", as_="y", lock=lock, wait_ms=0)
    d.do("release", as_="a")
    check(d.do("check", as_="b")["valid"] and t.cluster.lock(lock)["holders"], "one release of two has released it")
    d.do("release", as_="b")
    check(not t.cluster.lock(lock)["holders"], "it is still held")
    other = t.name("plain")
    d.do("acquire", client="c", as_="p", lock=other, wait_ms=0)
    d.fails("refused", "acquire", client="c", as_="q", lock=other, wait_ms=0)


# 9


@behaviour(9)
def tokens_rise_and_guard_writes(t):
    d = t.client()
    lock, path = t.name(), "/" + t.name("z").replace("/", "-")
    d.do("create", client="c", path=path, data="0")
    first = d.do("acquire", client="c", as_="a", lock=lock, wait_ms=0)["fencing_token"]
    check(d.do("check", as_="a")["valid"] and d.do("verify", as_="a")["held"], "a held lock is not known as held")
    d.do("guarded_set", as_="a", path=path, data="1")
    t.cluster.break_holder(lock)
    check(not d.do("verify", as_="a")["held"], "`verify` is positive after a break")
    error = d.fails("lost", "guarded_set", as_="a", path=path, data="2")
    check(error.reason == "broken", f"the reason is {error.reason}")
    check(d.do("get", client="c", path=path)["data"] == "1", "a write went through after the break")
    d.event("lost", as_="a")
    check(not d.do("check", as_="a")["valid"], "`check` is positive after the loss")
    second = d.do("acquire", client="c", as_="b", lock=lock, wait_ms=0)["fencing_token"]
    check(second > first, f"the token fell from {first} to {second}")


# 10


@behaviour(10)
def lease_is_renewed_and_released_by_another_process(t):
    if not t.cluster.has("/v1/leases/{lease}/renew"):
        raise Skip("the server has no leases")
    a, b = t.client(), t.client()
    lock = t.name()
    lease = a.do("lease_acquire", client="c", lock=lock, ttl_ms=t.ttl, wait_ms=0, note="nightly")
    check(0 < lease["expires_in_ms"] <= t.ttl, f"the answer is {lease}")
    a.kill()
    time.sleep(t.ttl / 2000)
    renewed = b.do("lease_renew", client="c", lease=lease["lease"], ttl_ms=2 * t.ttl)
    check(renewed["fencing_token"] == lease["fencing_token"], f"{lease} became {renewed}")
    time.sleep(t.ttl / 1000)
    found = b.do("lease_get", client="c", lease=lease["lease"])
    check((found["lock"], found["note"]) == (lock, "nightly"), f"the lease is {found}")
    b.do("lease_release", client="c", lease=lease["lease"])
    b.do("lease_release", client="c", lease=lease["lease"])
    check(not t.cluster.lock(lock)["holders"], "it is still held")


@behaviour(10)
def expired_lease_is_refused(t):
    if not t.cluster.has("/v1/leases/{lease}/renew"):
        raise Skip("the server has no leases")
    d = t.client()
    lock = t.name()
    lease = d.do("lease_acquire", client="c", lock=lock, ttl_ms=2000, wait_ms=0)["lease"]
    d.fails("refused", "lease_acquire", client="c", lock=lock, ttl_ms=2000, wait_ms=0)
    d.do("lease_acquire", client="c", lock=lock, ttl_ms=2000, wait_ms=20_000)
    check(d.fails("refused", "lease_renew", client="c", lease=lease).code == "lease_expired", "the code is not `lease_expired`")


@behaviour(10)
def lease_in_the_queue_outlives_its_process_and_every_connection(t):
    proxies = t.proxies()
    a, b = t.client(), t.client(proxies)
    t.needs(a, "queue")
    lock, ttl = t.name(), 2 * t.ttl
    session = t.cluster.session()
    holder = t.cluster.acquire(session, lock)[1]["holder"]
    queued = a.do("lease_acquire", client="c", lock=lock, ttl_ms=ttl, wait_ms=0, queue=True)
    check(queued["fencing_token"] is None, f"the answer is {queued}")
    a.kill()
    check(b.do("lease_wait", client="c", lease=queued["lease"], wait_ms=500)["fencing_token"] is None, "it is granted a lock that is held")
    waits = b.start("lease_wait", client="c", lease=queued["lease"], wait_ms=None)
    time.sleep(1)
    for proxy in proxies:
        proxy.cut()
    time.sleep(2)
    for proxy in proxies:
        proxy.mend()
    # It is renewed while it waits.
    time.sleep(1.2 * ttl / 1000)
    t.cluster.api("POST", f"/v1/locks/{lock.replace('/', '%2F')}/release", {"session": session, "holder": holder})
    check(b.reply(waits)["fencing_token"], "it has no token")
    b.do("lease_release", client="c", lease=queued["lease"])
    check(
        b.fails("refused", "lease_wait", client="c", lease=queued["lease"], wait_ms=None).code == "lease_expired", "the code is not `lease_expired`"
    )


@behaviour(10)
def many_leases_have_results_of_their_own(t):
    if not t.cluster.has("/v1/batch"):
        raise Skip("the server has no batches")
    proxies = t.proxies()
    d = t.client(proxies)
    t.needs(d, "batch")
    locks = [t.name() + f"/{number}" for number in range(3)]
    t.cluster.acquire(t.cluster.session(), locks[1])
    for proxy in proxies:
        proxy.rule(lambda request: request.is_("batch"), "drop")
    acquired = d.do("leases_acquire", client="c", locks=[{"lock": lock} for lock in locks], ttl_ms=10 * t.ttl)["leases"]
    sent = [request.body["requests"] for proxy in proxies for request in proxy.requests if request.is_("batch")]
    check(len(sent) > 1, "the batch is not sent again")
    ids = {tuple(each["body"]["request_id"] for each in requests) for requests in sent}
    check(len(ids) == 1 and len(set(*ids)) == 3, f"the request ids are {ids}")
    check(acquired[1]["error"]["code"] == "lock_busy", f"a lock that is held: {acquired[1]}")
    for lock, lease in zip(locks[::2], acquired[::2]):
        tokens = [each["fencing_token"] for each in t.cluster.lock(lock)["holders"]]
        check(tokens == [lease["fencing_token"]], f"{lock} is held with {tokens}, not with {lease['fencing_token']}")
    leases = [each["lease"] for each in acquired[::2]]
    d.do("lease_release", client="c", lease=leases[0])
    renewed = d.do("leases_renew", client="c", leases=leases, ttl_ms=20 * t.ttl)["leases"]
    check(renewed[0]["error"]["code"] == "lease_expired", f"a lease that was released: {renewed[0]}")
    check(renewed[1]["fencing_token"] == acquired[2]["fencing_token"], f"{acquired[2]} became {renewed[1]}")
    released = d.do("leases_release", client="c", leases=leases)["leases"]
    check(not any("error" in each for each in released), f"the releases are {released}")
    check(not t.cluster.lock(locks[2])["holders"], "it is still held")


# 11


@behaviour(11)
def release_request_reaches_the_holder(t):
    d = t.client()
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    name = lock.replace("/", "%2F")
    status, _ = t.cluster.api("POST", f"/v1/locks/{name}/release-request", {"reason": "please"})
    if status >= 400:
        t.cluster.api("POST", f"/v1/locks/{name}/revoke", {"reason": "please"})
    asked = d.event("release_requested", as_="h")
    check(asked["reason"] == "please" and "127.0.0.1" in asked["by"], f"the event is {asked}")
    d.do("reply_release", as_="h", answer="in a moment")
    check("in a moment" in str(t.cluster.lock(lock)["holders"]), "the answer did not arrive")


@behaviour(11)
def release_may_be_repeated(t):
    proxies = t.proxies()
    d = t.client(proxies)
    lock = t.name()
    d.do("acquire", client="c", as_="a", lock=lock, wait_ms=0)
    d.do("release", as_="a")
    d.do("acquire", client="c", as_="b", lock=lock, wait_ms=0)
    sent = sum(each.is_("release") for proxy in proxies for each in proxy.requests)
    d.do("release", as_="a")
    check(sum(each.is_("release") for proxy in proxies for each in proxy.requests) == sent, "a second release was sent")
    check(d.do("check", as_="b")["valid"] and d.do("verify", as_="b")["held"], "a second release has released a later grant")


@behaviour(11)
def loss_does_not_hide_the_error_of_the_block(t):
    proxies = t.proxies()
    d = t.client(proxies)
    lock = t.name()
    block = d.start("block", client="c", as_="h", lock=lock, wait_ms=0, hold=True)
    d.event("entered", as_="h")
    t.cluster.break_holder(lock)
    d.event("lost", as_="h")
    d.do("end_block", as_="h", raise_="own error")
    try:
        d.reply(block)
        raise Failure("the error of the block is hidden")
    except Exception as error:
        check(getattr(error, "message", "") == "own error", f"the block ended with {error}")
    check(not any(each.is_("release") for proxy in proxies for each in proxy.requests), "a lost lock was released")


# 12


@behaviour(12)
def close_frees_the_lock_at_once(t):
    d = t.client(ttl_ms=60_000)
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    granted = t.waiter(lock)
    began = time.monotonic()
    d.do("close", client="c")
    check(granted() - began < 10, "others waited for the TTL")


@behaviour(12)
def end_of_the_program_frees_the_lock_at_once(t):
    d = t.client(ttl_ms=60_000)
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    granted = t.waiter(lock)
    began = time.monotonic()
    check(d.finish() == 0, f"the driver ended with {d.process.returncode}")
    check(granted() - began < 15, "others waited for the TTL")


# 13


def secured(t):
    return t.secured_cluster()


@behaviour(13)
def tls_token_and_client_certificate(t):
    cluster = secured(t)
    lock = t.name()
    d = t.driver()
    d.do("open", client="plain", servers=cluster.servers, ttl_ms=t.ttl, patience_ms=3000)
    try:
        d.do("acquire", client="plain", as_="x", lock=lock, wait_ms=0)
        raise Failure("a connection without TLS was served")
    except Exception as error:
        check(getattr(error, "kind", None) in ("unavailable", "unknown"), f"without TLS: {error}")
    tls = {"servers": cluster.servers, "ttl_ms": t.ttl, "ca_file": str(cluster.ca_file), "patience_ms": 15_000}
    d.do("open", client="nobody", **tls)
    error = d.fails("refused", "acquire", client="nobody", as_="x", lock=lock, wait_ms=0)
    check(error.code in ("unauthenticated", "forbidden"), f"without a token: {error}")
    d.do("open", client="token", token=cluster.admin_token, **tls)
    d.do("acquire", client="token", as_="h", lock=lock, wait_ms=0)
    time.sleep(1.5 * t.ttl / 1000)
    check(d.do("check", as_="h")["valid"] and d.do("verify", as_="h")["held"], "the lock was lost")
    cert, key = t.client_certificate(cluster)
    d.do("open", client="cert", cert_file=cert, key_file=key, **tls)
    d.do("acquire", client="cert", as_="k", lock=t.name("cert"), wait_ms=0)


@behaviour(13)
def provider_of_tokens_is_asked_and_an_expired_token_refused(t):
    cluster = secured(t)
    token = cluster.api("POST", "/v1/tokens", {"role": "admin", "description": "suite", "expires_in_ms": 8000})[1]["token"]
    file = t.directory / "token"
    # A client may refuse a secret that others can read.
    file.touch(mode=0o600)
    file.write_text(token)
    d = t.driver()
    d.do("open", client="c", servers=cluster.servers, ttl_ms=t.ttl, ca_file=str(cluster.ca_file), token_file=str(file))
    d.do("create", client="c", path="/" + t.name("z").replace("/", "-"))
    until(lambda: cluster.api("GET", "/v1/access", token=token)[0] == 401, "the token expires")
    error = d.fails("refused", "acquire", client="c", as_="x", lock=t.name(), wait_ms=0)
    check(error.code == "unauthenticated", f"with an expired token: {error}")
    file.write_text(cluster.admin_token)
    d.do("acquire", client="c", as_="h", lock=t.name(), wait_ms=0)


# 14


@behaviour(14)
def campaign_observe_resign_and_hand_over(t):
    d, e = t.client(), t.client()
    election = t.name()
    first = d.do("campaign", client="c", as_="one", election=election, candidate="one", wait_ms=None)
    e.do("observe", client="c", as_="o", election=election)
    e.event("leader", as_="o", candidate="one")
    check(d.do("leader", client="c", election=election)["candidate"] == "one", "`one` does not lead")
    two = e.start("campaign", client="c", as_="two", election=election, candidate="two", wait_ms=None)
    until(lambda: len(t.cluster.lock(election)["queue"]) == 1, "`two` waits")
    d.fails("usage", "hand_over", as_="one", to="nobody")
    check(d.do("check", as_="one")["valid"], "`one` does not lead any more")
    three = d.start("campaign", client="c", as_="three", election=election, candidate="three", wait_ms=None)
    until(lambda: len(t.cluster.lock(election)["queue"]) == 2, "`three` waits")
    d.do("hand_over", as_="one", to="three")
    third = d.reply(three)
    check(third["fencing_token"] > first["fencing_token"], "the term fell")
    e.event("leader", as_="o", candidate="three")
    until(lambda: [each["note"] for each in t.cluster.lock(election)["queue"]] == ["two"], "`two` waits again")
    check(not e.replied(two), "`two` was told that it leads")
    d.do("resign", as_="three")
    e.reply(two)
    e.event("leader", as_="o", candidate="two")
    e.do("resign", as_="two")
    e.event("leader", as_="o", candidate=None)


# 15


@behaviour(15)
def znodes_of_all_modes(t):
    d = t.client()
    base = "/" + t.name().replace("/", "-")
    d.do("create", client="c", path=f"{base}/a/b", data="x", parents=True)
    check(d.do("get", client="c", path=f"{base}/a/b") == {"data": "x", "version": 0}, "the data differ")
    check(d.do("set", client="c", path=f"{base}/a/b", data="y", version=0)["version"] == 1, "the version is not 1")
    check(d.fails("refused", "set", client="c", path=f"{base}/a/b", data="z", version=0).code == "bad_version", "not `bad_version`")
    for mode in ("persistent", "ephemeral", "container"):
        d.do("create", client="c", path=f"{base}/{mode}", mode=mode)
    d.do("create", client="c", path=f"{base}/ttl", mode="ttl", ttl_ms=60_000)
    one = d.do("create", client="c", path=f"{base}/s-", mode="persistent_sequential")["path"]
    two = d.do("create", client="c", path=f"{base}/s-", mode="ephemeral_sequential")["path"]
    d.do("create", client="c", path=f"{base}/s-", mode="ttl_sequential", ttl_ms=60_000)
    check(two > one, f"{two} after {one}")
    names = d.do("children", client="c", path=base)["children"]
    check(len(names) == 8 and names == sorted(names), f"the children are {names}")
    check(d.fails("refused", "delete", client="c", path=f"{base}/a").code == "not_empty", "not `not_empty`")
    d.do("delete", client="c", path=f"{base}/a/b", version=1)
    d.do("close", client="c")
    status, found = t.cluster.api("GET", f"/v1/znodes{base}?children=true&linearizable=true")
    left = {each["name"] for each in found["children"]}
    check(status == 200 and "ephemeral" not in left and "persistent" in left, f"after the end of the session: {left}")


@behaviour(15)
def watches_fire_once(t):
    d = t.client()
    path = "/" + t.name().replace("/", "-")
    d.do("watch", client="c", as_="e", path=path, kind="exists", timeout_ms=30_000)
    d.do("create", client="c", path=path, data="1")
    d.event("watch", as_="e", path=path)
    d.do("watch", client="c", as_="d", path=path, kind="data", timeout_ms=30_000)
    d.do("watch", client="c", as_="k", path=path, kind="children", timeout_ms=30_000)
    d.do("set", client="c", path=path, data="2")
    d.do("create", client="c", path=f"{path}/child")
    d.event("watch", as_="d", path=path)
    d.event("watch", as_="k", path=path)
    check(len(d.events("watch")) == 3, f"the events are {d.events('watch')}")


@behaviour(15)
def watch_outlives_the_patience(t):
    d = t.client(patience_ms=1500)
    path = "/" + t.name().replace("/", "-")
    d.do("create", client="c", path=path, data="1")
    d.do("watch", client="c", as_="d", path=path, kind="data", timeout_ms=60_000)
    time.sleep(4)
    t.cluster.api("PUT", f"/v1/znodes{path}", {"data": "2"})
    d.event("watch", as_="d", path=path)


# 16


@behaviour(16)
def fake_has_the_same_interface(t):
    d = t.driver()
    d.do("open", client="f", servers=[], ttl_ms=t.ttl, fake=True)
    first = d.do("acquire", client="f", as_="a", lock="x", wait_ms=0)
    check(d.fails("refused", "acquire", client="f", as_="b", lock="x", wait_ms=0).code == "lock_busy", "not `lock_busy`")
    check(d.fails("refused", "acquire", client="f", as_="b", lock="x", wait_ms=100).code == "lock_timeout", "not `lock_timeout`")
    waits = d.start("acquire", client="f", as_="b", lock="x", wait_ms=None)
    d.do("fake_break", client="f", lock="x", reason="test")
    lost = d.event("lost", as_="a")
    check((lost["reason"], lost["detail"]) == ("broken", "test"), f"the event is {lost}")
    check(d.reply(waits)["fencing_token"] > first["fencing_token"], "the token fell")
    d.do("release", as_="b")
    d.do("acquire", client="f", as_="s1", lock="s", mode="shared", wait_ms=0)
    d.do("acquire", client="f", as_="s2", lock="s", mode="shared", wait_ms=0)
    d.do("fake_expire", client="f")
    check(d.event("lost", as_="s1")["reason"] == "expired", "the reason is not `expired`")
    d.do("acquire", client="f", as_="z", lock="s", wait_ms=0)


# 17


@behaviour(17)
def logs_metrics_and_trace_context(t):
    proxies = t.proxies()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    d = t.client(proxies, traceparent=trace)
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    sent = [each for proxy in proxies for each in proxy.requests if is_acquire(each)]
    check(sent[-1].headers.get("traceparent") == trace, f"the headers are {sent[-1].headers}")
    t.cluster.break_holder(lock)
    d.event("lost", as_="h")
    lines = d.do("logs")["lines"]
    check(any(lock in line for line in lines), f"the loss is not logged: {lines}")
    numbers = d.do("metrics", client="c")
    check(any("request" in name and value > 0 for name, value in numbers.items()), f"the metrics are {numbers}")


# 18


@behaviour(18)
def paused_process_finds_the_loss_before_it_works(t):
    d = t.client()
    lock = t.name()
    d.do("acquire", client="c", as_="h", lock=lock, wait_ms=0)
    d.do("work", as_="h", every_ms=5)
    d.event("worked", as_="h")
    granted = t.waiter(lock)
    os.kill(d.process.pid, signal.SIGSTOP)
    time.sleep(0.2)
    granted(timeout=5 * t.ttl / 1000 + 20)
    resumed = time.monotonic()
    count = len(d.events("worked"))
    os.kill(d.process.pid, signal.SIGCONT)
    d.event("stopped", as_="h")
    lost = d.event("lost", as_="h")
    # Its clock and the event of the server, which the kernel has kept for it, tell it at the same moment.
    check(lost["reason"] in ("no_heartbeat", "expired"), f"the reason is {lost['reason']}")
    # A process that is stopped between a check and its message sends the message when it goes on. The check was right.
    late = [line for line in d.events("worked")[count:] if line["checked_at"] > resumed]
    check(not late, f"it worked {len(late)} times after the pause")
