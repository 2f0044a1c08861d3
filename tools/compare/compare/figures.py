"""Medians of the rounds, and ratios of them. This module neither measures nor writes."""

import statistics

# Names of the systems, in the order of columns and of colours.
NAMES = {
    "lockgate/http": "Lockgate",
    "lockgate/http@leader": "Lockgate, at its leader",
    "lockgate/zookeeper": "Lockgate, ZooKeeper's protocol",
    "lockgate/redis": "Lockgate, Redis' protocol",
    "zookeeper/zookeeper": "ZooKeeper",
    "zookeeper/zookeeper@leader": "ZooKeeper, at its leader",
    "etcd/etcd": "etcd",
    "redlock/redlock": "RedLock",
    "redis/redis": "one Redis",
    "openraft-http/http": "openraft and HTTP",
    "openraft-http/http@leader": "openraft and HTTP, at its leader",
}
PEERS = ["zookeeper/zookeeper", "etcd/etcd", "redlock/redlock", "redis/redis"]
# The minimal server of bench-peers: the upper bound for a lock server built on openraft and HTTP.
BOUND = "openraft-http/http"
# The variant of Lockgate in each workload's ratios: its own API for locks, and the common protocol for
# znodes.
OURS = {
    "lock": "lockgate/http",
    "contended": "lockgate/http",
    "semaphore": "lockgate/http",
    "batch": "lockgate/http",
    "set": "lockgate/zookeeper",
    "create": "lockgate/zookeeper",
    "get": "lockgate/zookeeper",
    "mixed": "lockgate/zookeeper",
}


def median(values):
    some = [value for value in values if value is not None]
    return statistics.median(some) if some else None


def commit_us(machine):
    """Returns the minimum time of a commit: a sync of the disk and a round trip to one peer, if both were measured."""
    parts = [machine.get(name) for name in ("fdatasync_us", "round_trip_us")]
    known = [median(part if isinstance(part, list) else [part]) for part in parts]
    return None if None in known else sum(known)


def rounds(results):
    """Returns the minimum and maximum number of rounds of any measurement."""
    kept = [results.get(name, {}) for name in ("state", "sessions", "unconnected", "watch")]
    counts = [len(entry["reports"]) for entry in results["loads"]] + [len(found) for some in kept for found in some.values()]
    return (min(counts), max(counts)) if counts else (0, 0)


class Figures:
    """The loads, by workload and clients, then by system."""

    def __init__(self, results):
        self.cells = {}
        for entry in results["loads"]:
            subject = f"{entry['system']}/{entry['over']}"
            row = self.cells.setdefault((entry["workload"], entry["clients"]), {})
            row[subject] = entry["reports"]

    def rows(self, workload=None):
        """Returns workloads and clients in the order of their first measurement."""
        return [row for row in self.cells if workload in (None, row[0])]

    def subjects(self, row):
        """Returns the systems that were measured in a row, in the order of the columns."""
        return [subject for subject in NAMES if subject in self.cells[row]]

    def rate(self, row, subject):
        reports = self.cells.get(row, {}).get(subject)
        return median([report["operations_per_second"] for report in reports]) if reports else None

    def spread(self, row, subject):
        """Returns the minimum and maximum of the rounds."""
        rates = [report["operations_per_second"] for report in self.cells[row][subject]]
        return min(rates), max(rates)

    def latency(self, row, subject, name, of="operation"):
        """Returns a latency in milliseconds."""
        reports = self.cells.get(row, {}).get(subject) or []
        found = [report[of][name] / 1000 for report in reports if report.get(of)]
        return median(found)

    def cpu(self, row, subject, name):
        reports = self.cells.get(row, {}).get(subject) or []
        return median([report.get(name) for report in reports])

    def ours(self, row):
        """Returns the variant of Lockgate in the row's ratios, if it was measured."""
        subject = OURS[row[0]]
        return subject if subject in self.cells[row] else None

    def ratio(self, row, peer):
        """Returns Lockgate's throughput divided by the peer's."""
        ours, theirs = self.rate(row, self.ours(row)), self.rate(row, peer)
        return ours / theirs if ours and theirs else None
