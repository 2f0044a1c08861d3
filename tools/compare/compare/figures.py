"""What the rounds come to: medians, and ratios of them. Nothing here measures, and nothing here writes."""

import statistics

# How systems are called, in the order of columns and of colours.
NAMES = {
    "lockgate/http": "Lockgate",
    "lockgate/http@leader": "Lockgate, at its leader",
    "lockgate/zookeeper": "Lockgate, ZooKeeper's protocol",
    "zookeeper/zookeeper": "ZooKeeper",
    "zookeeper/zookeeper@leader": "ZooKeeper, at its leader",
    "etcd/etcd": "etcd",
    "redlock/redlock": "RedLock",
    "redis/redis": "one Redis",
    "openraft-http/http": "openraft and HTTP",
    "openraft-http/http@leader": "openraft and HTTP, at its leader",
}
PEERS = ["zookeeper/zookeeper", "etcd/etcd", "redlock/redlock", "redis/redis"]
# The minimal server of bench-peers: the upper bound for a lock server that is built of openraft and HTTP.
BOUND = "openraft-http/http"
# What of Lockgate a workload's ratios are of: locks by its own API, znodes by the protocol that both speak.
OURS = {
    "lock": "lockgate/http",
    "contended": "lockgate/http",
    "semaphore": "lockgate/http",
    "set": "lockgate/zookeeper",
    "create": "lockgate/zookeeper",
    "get": "lockgate/zookeeper",
    "mixed": "lockgate/zookeeper",
}


def median(values):
    some = [value for value in values if value is not None]
    return statistics.median(some) if some else None


def commit_us(machine):
    """What a commit costs at least: a sync of the disk and a round trip to one peer, if both were measured."""
    parts = [machine.get(name) for name in ("fdatasync_us", "round_trip_us")]
    known = [median(part if isinstance(part, list) else [part]) for part in parts]
    return None if None in known else sum(known)


def rounds(results):
    """The least and the most rounds that anything was measured in."""
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
        """Workload and clients, in the order in which they were measured first."""
        return [row for row in self.cells if workload in (None, row[0])]

    def subjects(self, row):
        """Who was measured in it, in the order of the columns."""
        return [subject for subject in NAMES if subject in self.cells[row]]

    def rate(self, row, subject):
        reports = self.cells.get(row, {}).get(subject)
        return median([report["operations_per_second"] for report in reports]) if reports else None

    def spread(self, row, subject):
        """The least and the most of the rounds."""
        rates = [report["operations_per_second"] for report in self.cells[row][subject]]
        return min(rates), max(rates)

    def latency(self, row, subject, name, of="operation"):
        """Milliseconds."""
        reports = self.cells.get(row, {}).get(subject) or []
        found = [report[of][name] / 1000 for report in reports if report.get(of)]
        return median(found)

    def cpu(self, row, subject, name):
        reports = self.cells.get(row, {}).get(subject) or []
        return median([report.get(name) for report in reports])

    def ours(self, row):
        """What of Lockgate the row's ratios are of, if it was measured."""
        subject = OURS[row[0]]
        return subject if subject in self.cells[row] else None

    def ratio(self, row, peer):
        """How many times as fast Lockgate is."""
        ours, theirs = self.rate(row, self.ours(row)), self.rate(row, peer)
        return ours / theirs if ours and theirs else None
