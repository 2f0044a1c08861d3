"""The main results: for each kind of work one figure, and its ratio to that of each other system."""

from compare.figures import NAMES, commit_us, median

ZOOKEEPER = "zookeeper/zookeeper"
ZOOKEEPER_AT_LEADER = "zookeeper/zookeeper@leader"
OURS_AT_LEADER = "lockgate/http@leader"
# Loads judged by their throughput: the number of clients, and the systems to compare with.
RATES = [
    ("lock", 1, [ZOOKEEPER]),
    ("lock", 64, [ZOOKEEPER, "redlock/redlock", "redis/redis"]),
    ("lock", 256, [ZOOKEEPER]),
    ("contended", 2, [ZOOKEEPER]),
    ("contended", 16, [ZOOKEEPER]),
    ("contended", 64, [ZOOKEEPER]),
    ("semaphore", 16, [ZOOKEEPER]),
    ("set", 64, [ZOOKEEPER]),
    ("create", 64, [ZOOKEEPER]),
    ("get", 64, [ZOOKEEPER]),
]
# Loads that are also compared with all clients at the leader of Lockgate and of the other system, if that has
# one.
AT_LEADER = [
    ("lock", 64, [ZOOKEEPER_AT_LEADER, "redlock/redlock", "redis/redis"]),
    ("contended", 2, [ZOOKEEPER_AT_LEADER]),
    ("contended", 16, [ZOOKEEPER_AT_LEADER]),
    ("contended", 64, [ZOOKEEPER_AT_LEADER]),
    ("semaphore", 16, [ZOOKEEPER_AT_LEADER]),
]
# Loads that are also judged by their 99th percentile.
SLOWEST = [("set", 64), ("create", 64)]
# Number of locks of a batch, the default of `lockgate bench batch`.
LOCKS_OF_A_BATCH = 16
DONE = {
    "lock": "locks acquired and released per second",
    "contended": "handovers of one contended lock per second",
    "semaphore": "permits of a semaphore of 4 acquired and released per second",
    "set": "znodes set per second",
    "create": "znodes created per second",
    "get": "znodes read per second",
}


def rows(results, figures):
    """Returns rows: the quantity, Lockgate's figure, the other system, its figure, and the ratio (as a factor for rates, else as a fraction)."""
    found = [*rates(figures), *batches(figures), *commits(results, figures), *latencies(figures)]
    found += [*fan_outs(results), *losses(results), *sizes(results)]
    return [row for row in found if row is not None]


def faster(what, ours, peer, theirs):
    """Builds the row of a figure of which more is better."""
    return None if not (ours and theirs) else (what, f"{ours:,.0f}", peer, f"{theirs:,.0f}", f"**{short(ours / theirs)}x**")


def less(what, ours, peer, theirs, digits=0):
    """Builds the row of a figure of which less is better."""
    if ours is None or theirs is None or theirs <= 0:
        return None
    return (what, f"{ours:,.{digits}f}", peer, f"{theirs:,.{digits}f}", f"**{ours / theirs:.2f}**")


def short(ratio):
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def rates(figures):
    for workload, clients, peers in RATES:
        row = (workload, clients)
        if row in figures.cells:
            for peer in peers:
                ours = figures.rate(row, figures.ours(row))
                yield faster(f"{DONE[workload]}, {by(clients)}", ours, NAMES[peer], figures.rate(row, peer))
    for workload, clients, peers in AT_LEADER:
        row = (workload, clients)
        for peer in peers:
            ours, theirs = figures.rate(row, OURS_AT_LEADER), figures.rate(row, peer)
            yield faster(f"{DONE[workload]}, {by(clients)}, all at the leader", ours, NAMES[peer], theirs)


def batches(figures):
    """Compares locks by batches with other systems that get a request for each."""
    for row in figures.rows("batch"):
        rate, lock = figures.rate(row, figures.ours(row)), ("lock", row[1])
        ours = rate and rate * LOCKS_OF_A_BATCH
        what = f"{DONE['lock']}, {by(row[1])}, by batches of {LOCKS_OF_A_BATCH}"
        for peer in ("redis/redis", ZOOKEEPER):
            yield faster(what, ours, f"{NAMES[peer]}, one by one", figures.rate(lock, peer))


def by(clients):
    return f"{clients} client" + ("" if clients == 1 else "s")


def commits(results, figures):
    """Compares a commit with its minimum cost: one sync, and one round trip to a peer."""
    row = ("lock", 1)
    cycle = figures.latency(row, "lockgate/http", "p50_us") if row in figures.cells else None
    cost = commit_us(results.get("machine_under_loads") or results["machine"])
    if cycle and cost:
        what = "µs for a commit: half of a lock's cycle, 1 client, p50"
        ours = cycle * 1000 / 2
        yield (what, f"{ours:,.0f}", "`fdatasync` and a round trip", f"{cost:,.0f}", f"**{short(ours / cost)}x**")


def latencies(figures):
    for row in figures.rows("contended"):
        name = f"ms for a handover, {by(row[1])}, p50"
        ours, theirs = (figures.latency(row, subject, "p50_us", "hand_over") for subject in (figures.ours(row), ZOOKEEPER))
        yield less(name, ours, "ZooKeeper", theirs, 2)
        ours, theirs = (figures.latency(row, subject, "p50_us", "hand_over") for subject in (OURS_AT_LEADER, ZOOKEEPER_AT_LEADER))
        yield less(f"{name}, all at the leader", ours, NAMES[ZOOKEEPER_AT_LEADER], theirs, 2)
    for row in SLOWEST:
        if row in figures.cells:
            ours, theirs = (figures.latency(row, subject, "p99_us") for subject in (figures.ours(row), ZOOKEEPER))
            what = {"set": "to set a znode", "create": "to create a znode"}[row[0]]
            yield less(f"ms {what}, {by(row[1])}, p99", ours, "ZooKeeper", theirs, 2)


def fan_outs(results):
    watched = results.get("watch", {})
    for key in watched:
        system, how, count = key.split("/")
        if system == "lockgate":
            ours, theirs = (
                median([report["last"]["p50_us"] / 1000 for report in watched.get(f"{name}/{how}/{count}", [])])
                for name in ("lockgate", "zookeeper")
            )
            again = {"together": "", "at once": ", each of which reads at once"}[how]
            yield less(f"ms until {int(count):,} sessions are notified of a change{again}, p50", ours, "ZooKeeper", theirs, 1)


def losses(results):
    for how, lost in (("killed", "leader killed"), ("frozen", "leader frozen")):
        ours = results["failover"].get(f"lockgate/{how}", [])
        for peer, name in (("zookeeper", "ZooKeeper"), ("etcd", "etcd")):
            theirs = results["failover"].get(f"{peer}/{how}", [])
            yield less(f"ms without a write, {lost}, median", median(ours), name, median(theirs))


def sizes(results):
    state = results["state"]
    of = lambda system, name: median([one[name] for one in state.get(system, [])])  # noqa: E731
    if "lockgate" in state:
        count = state["lockgate"][0]["znodes"]
        ours, name = of("lockgate", "resident_bytes"), "bytes resident for a znode with 100 bytes of data"
        yield less(name, ours, "ZooKeeper, live on the heap", of("zookeeper", "heap_bytes"))
        yield less(name, ours, "ZooKeeper, resident", of("zookeeper", "resident_bytes"))
        yield faster(f"{count:,} znodes created, per second", of("lockgate", "per_second"), "ZooKeeper", of("zookeeper", "per_second"))
        yield less(
            "ms without a write, all servers killed and restarted with as many",
            of("lockgate", "restart_ms"), "ZooKeeper", of("zookeeper", "restart_ms"),
        )  # fmt: skip
    yield from sessions(results.get("sessions", {}))


def sessions(found):
    if "lockgate" not in found:
        return
    for where, what in (("connected", "with its connection"), ("elsewhere", "at a server without its connection")):
        of = lambda system, name: median([one[where][name] for one in found.get(system, [])])  # noqa: E731, B023
        ours = of("lockgate", "resident_bytes")
        name = f"bytes resident for an idle session, {what}"
        yield less(name, ours, "ZooKeeper, live on the heap", of("zookeeper", "heap_bytes"))
        yield less(name, ours, "ZooKeeper, resident", of("zookeeper", "resident_bytes"))
    ours, theirs = (
        median([one["opened_per_second"] for one in found.get(system, [])]) for system in ("lockgate", "zookeeper")
    )
    yield faster("sessions opened per second", ours, "ZooKeeper", theirs)
