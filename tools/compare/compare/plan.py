"""The plan: the measurements of each system, their number, and their duration."""

import dataclasses
import shlex
import sys

from compare import servers

# Clients are spread over the servers, or all at the leader, where a waiter's grant takes one message less.
REPLICATED_LOCKS = [
    *("lockgate/http", "lockgate/http@leader", "lockgate/zookeeper"),
    *("zookeeper", "zookeeper/zookeeper@leader"),
    *("openraft-http/http", "openraft-http/http@leader"),
]
# For each workload: its numbers of clients, out of the requested ones, and its systems with their protocols.
LOADS = {
    "lock": ("all", [*REPLICATED_LOCKS, "lockgate/redis", "etcd", "redlock", "redis"]),
    "contended": ((2, 16, 64), [*REPLICATED_LOCKS, "etcd", "redlock", "redis"]),
    "semaphore": ((16,), REPLICATED_LOCKS),
    "batch": ((64,), ["lockgate/http"]),
    "set": ("all", ["lockgate/http", "lockgate/zookeeper", "zookeeper", "etcd", "redis"]),
    "create": ((1, 64), ["lockgate/zookeeper", "zookeeper", "etcd"]),
    "get": ((1, 64), ["lockgate/http", "lockgate/zookeeper", "zookeeper", "etcd", "redis"]),
    "mixed": ((64,), ["lockgate/zookeeper", "zookeeper"]),
}
# Other measurements, with their systems.
OTHERS = {
    "failover": ["lockgate", "zookeeper", "etcd"],
    "state": ["lockgate", "zookeeper", "etcd", "redis"],
    "sessions": ["lockgate", "zookeeper"],
    "watch": ["lockgate", "zookeeper"],
}

# Time in which each session pings at least once: clients ping three times in a timeout, which is 30 s.
HELD_SECONDS = 12

# A round of many watchers takes tens of milliseconds, so Java takes long to compile the code of a round.
# ZooKeeper took 32 ms for one after six seconds, and 13 to 16 ms after fifty, while other programs ran.
WATCH_WARM_UP_SECONDS = 50


@dataclasses.dataclass
class Plan:
    """The plan of a comparison."""

    systems: list
    measurements: list
    clients: list
    rounds: int
    seconds: int
    warmup: int
    warm_up_seconds: int
    watch_warm_up_seconds: int
    losses: list
    losses_each: int
    znodes: int
    sessions: int
    held_seconds: int
    watchers: list
    before_each: list
    quick: bool

    @staticmethod
    def of(args):
        names = [name for name in args.only.split(",") if name]
        known = [*servers.SYSTEMS, *LOADS, *OTHERS]
        for name in names:
            if name not in known:
                sys.exit(f"--only: {name} is not one of {', '.join(known)}")
        some = lambda of: [name for name in of if name in names] or list(of)  # noqa: E731
        numbers = lambda given, otherwise: [int(one) for one in (given or otherwise).split(",")]  # noqa: E731
        quick = args.quick
        return Plan(
            systems=some(servers.SYSTEMS),
            measurements=some([*LOADS, *OTHERS]),
            clients=numbers(args.clients, "1,64" if quick else "1,16,64,256"),
            rounds=args.rounds or (1 if quick else 3),
            seconds=args.seconds or (2 if quick else 8),
            warmup=0 if quick else 2,
            warm_up_seconds=1 if quick else 4,
            watch_warm_up_seconds=1 if quick else WATCH_WARM_UP_SECONDS,
            losses=["killed"] if quick else ["killed", "frozen"],
            losses_each=args.losses or (1 if quick else 3),
            znodes=args.znodes or (20_000 if quick else 1_000_000),
            sessions=args.sessions or (500 if quick else 10_000),
            held_seconds=1 if quick else HELD_SECONDS,
            watchers=numbers(args.watchers, "50" if quick else "100,1000"),
            before_each=shlex.split(args.before_each),
            quick=quick,
        )

    def loads(self, system):
        """Yields each workload of a system with its protocol and numbers of clients."""
        for workload, (numbers, subjects) in LOADS.items():
            for subject in subjects:
                name, _, over = subject.partition("/")
                if name != system or workload not in self.measurements:
                    continue
                # The clients of Redis are those of bench-peers, and their figures mean something beside Redis only.
                if subject == "lockgate/redis" and not {"redis", "redlock"} & set(self.systems):
                    continue
                clients = self.clients if numbers == "all" else list(numbers)
                if self.quick and numbers != "all":
                    # The last number, or the middle one for contended locks.
                    clients = [clients[min(1, len(clients) - 1)]]
                yield workload, over or name, clients

    def others(self, system):
        """Returns the other measurements of a system."""
        return [other for other, systems in OTHERS.items() if other in self.measurements and system in systems]
