#!/usr/bin/env python3
"""Tests of the evaluation of results: medians and ratios, the combination of several calls, and the rejection of calls that are not comparable."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from compare import document, foreground, memory, servers  # noqa: E402
from compare.figures import Figures  # noqa: E402
from compare.together import together  # noqa: E402

MACHINE = {"cpu": "X", "cores": 2, "memory_gib": 4, "kernel": "6", "file_system": "ext4"}


def results(**more):
    empty = {"loads": [], "failover": {}, "state": {}, "sessions": {}, "unconnected": {}, "watch": {}, "note": ""}
    machine = {**MACHINE, "fdatasync_us": 100, "round_trip_us": 20}
    return {"machine": machine, "versions": {"lockgate": "1", "zookeeper": "2"}, "seconds": 8, **empty, **more}


def load(system, over, workload, clients, *rates):
    latency = {"count": 1, "p50_us": 600, "p99_us": 900, "p99_9_us": 1000, "max_us": 1000}
    reports = [{"operations_per_second": rate, "operation": latency, "hand_over": None, "client_cpu_us": 5.0} for rate in rates]
    return {"system": system, "over": over, "workload": workload, "clients": clients, "reports": reports}


def kept(resident, heap, rate):
    return {"znodes": 1000, "per_second": rate, "resident_bytes": resident, "heap_bytes": heap, "restart_ms": 500.0}


def session(resident, heap, rate):
    memory = {"resident_bytes": resident, "heap_bytes": heap}
    return {"sessions": 100, "opened_per_second": rate, "opening": None, "connected": memory, "elsewhere": memory}


LOADS = results(
    loads=[load("lockgate", "http", "lock", 1, 900, 1000, 1300), load("zookeeper", "zookeeper", "lock", 1, 500, 400, 600)],
    note="No other program ran.",
)
STATE = results(
    state={"lockgate": [kept(200, None, 30_000)], "zookeeper": [kept(1000, 400, 10_000)]},
    sessions={"lockgate": [session(300, None, 6000)], "zookeeper": [session(5000, 1500, 3000)]},
    watch={
        "lockgate/together/1000": [{"sessions": 1000, "client_cpu_us": 9.0, "median": {"p50_us": 5000}, "last": {"p50_us": 10_000, "p99_us": 11_000}, "write": {"p50_us": 900}}],
        "zookeeper/together/1000": [{"sessions": 1000, "client_cpu_us": 9.0, "median": {"p50_us": 20_000}, "last": {"p50_us": 40_000, "p99_us": 50_000}, "write": {"p50_us": 900}}],
    },
)  # fmt: skip


def shown(of):
    """Returns the ratios by quantity and other system."""
    return {(row[0], row[2]): row[4] for row in foreground.rows(of, Figures(of))}


class Targets(unittest.TestCase):
    def test_leader_first_lists_the_leader_first(self):
        told = servers.leader_first([1001, 1002, 1003], 1)
        self.assertEqual(told, ["--server", "127.0.0.1:1002,127.0.0.1:1001,127.0.0.1:1003"])


class Ratios(unittest.TestCase):
    def test_ratio_of_rates_is_a_factor_of_medians(self):
        self.assertEqual(shown(LOADS)["locks acquired and released per second, 1 client", "ZooKeeper"], "**2.0x**")

    def test_commit_is_compared_with_its_minimum(self):
        # Half of 600 µs, divided by the sum of 100 and 20.
        what = "µs for a commit: half of a lock's cycle, 1 client, p50", "`fdatasync` and a round trip"
        self.assertEqual(shown(LOADS)[what], "**2.5x**")

    def test_ratio_of_times_and_memory_is_a_fraction(self):
        ratios = shown(STATE)
        self.assertEqual(ratios["bytes resident for a znode with 100 bytes of data", "ZooKeeper, live on the heap"], "**0.50**")
        self.assertEqual(ratios["bytes resident for a znode with 100 bytes of data", "ZooKeeper, resident"], "**0.20**")
        name = "bytes resident for an idle session, with its connection"
        self.assertEqual(ratios[name, "ZooKeeper, live on the heap"], "**0.20**")
        self.assertEqual(ratios["sessions opened per second", "ZooKeeper"], "**2.0x**")
        self.assertEqual(ratios["ms until 1,000 sessions are notified of a change, p50", "ZooKeeper"], "**0.25**")

    def test_memory_without_growth_has_no_ratio(self):
        self.assertIsNone(foreground.less("bytes", 10, "ZooKeeper", -3.0))
        self.assertIsNone(foreground.less("bytes", None, "ZooKeeper", 3.0))

    def test_memory_is_the_growth_of_each_server(self):
        before = [{"resident_bytes": 100, "heap_bytes": None}, {"resident_bytes": 100, "heap_bytes": None}]
        after = [{"resident_bytes": 300, "heap_bytes": None}, {"resident_bytes": 500, "heap_bytes": None}]
        grown = memory.grown(before, after, 100)
        self.assertEqual(grown[0], {"resident_bytes": 2.0, "heap_bytes": None})
        self.assertEqual(memory.most(grown), {"resident_bytes": 4.0, "heap_bytes": None})


class Bound(unittest.TestCase):
    def test_bound_is_compared_with_zookeeper_and_lockgate(self):
        of = results(loads=[*LOADS["loads"], load("openraft-http", "http", "lock", 1, 1250, 2500, 2000)])
        shown = document.bound(Figures(of)).splitlines()
        self.assertIn("| lock | 1 | 2,000 | **4.0x** | **2.0x** | 0.50 | 0.60 | 0.60 | 0.90 | 0.90 |", shown)
        self.assertNotIn(", at the leader", "".join(shown))
        self.assertEqual(document.bound(Figures(LOADS)), "")


class AtLeader(unittest.TestCase):
    OF = results(
        loads=[
            load(system, over + where, "contended", 16, rate * times)
            for system, over, rate in (("lockgate", "http", 2000), ("zookeeper", "zookeeper", 1000), ("openraft-http", "http", 4000))
            for where, times in (("", 1), ("@leader", 1.5 if system == "lockgate" else 1))
        ]
    )

    def test_clients_at_the_leaders_are_compared(self):
        what = "handovers of one contended lock per second, 16 clients"
        ratios = shown(self.OF)
        self.assertEqual(ratios[what, "ZooKeeper"], "**2.0x**")
        self.assertEqual(ratios[f"{what}, all at the leader", "ZooKeeper, at its leader"], "**3.0x**")
        rows = document.bound(Figures(self.OF)).splitlines()
        self.assertIn("| contended | 16 | 4,000 | **4.0x** | **2.0x** | 0.50 |  |  |  |  |", rows)
        self.assertIn("| contended, at the leader | 16 | 4,000 | **4.0x** | **3.0x** | 0.75 |  |  |  |  |", rows)

    def test_clients_at_the_leader_get_only_its_address(self):
        self.assertEqual(servers.leader_alone([1001, 1002], 1), ["--server", "127.0.0.1:1002"])

    def test_http_clients_get_a_target(self):
        self.assertEqual(servers.by_http(servers.leader_alone([1001, 1002], 1)), ["--server", "127.0.0.1:1002"])


class Together(unittest.TestCase):
    def test_calls_with_different_measurements_are_merged(self):
        whole = together([LOADS, STATE])
        self.assertEqual(shown(whole).keys(), shown(LOADS).keys() | shown(STATE).keys())
        self.assertIn("The measurement ran in 2 parts. No other program ran.", document.text(whole))

    def test_common_measurements_are_further_rounds(self):
        whole = together([LOADS, LOADS])
        self.assertEqual(len(whole["loads"]), 2)
        self.assertEqual([len(entry["reports"]) for entry in whole["loads"]], [6, 6])
        self.assertIn("Medians of 6 rounds", document.text(whole))
        # The calls' own results are unchanged.
        self.assertEqual(len(LOADS["loads"][0]["reports"]), 3)

    def test_commit_is_compared_with_the_disk_of_its_own_call(self):
        faster = {**STATE, "machine": {**STATE["machine"], "fdatasync_us": 40}}
        what = "µs for a commit: half of a lock's cycle, 1 client, p50", "`fdatasync` and a round trip"
        for calls in [LOADS, faster], [faster, LOADS], [together([faster, LOADS]), faster]:
            self.assertEqual(shown(together(calls))[what], "**2.5x**")

    def test_a_single_call_is_unchanged(self):
        self.assertEqual(document.text(together([STATE])), document.text(STATE))

    def test_calls_that_are_not_comparable_are_rejected(self):
        other_cpu = results(machine={**MACHINE, "cpu": "Y", "fdatasync_us": 1})
        other_version = results(versions={"zookeeper": "3"})
        shorter = {**LOADS, "seconds": 2}
        for other in (other_cpu, other_version, shorter):
            with self.assertRaises(SystemExit):
                together([LOADS, other])
        # A call without loads has no length of loads to compare.
        together([LOADS, {**STATE, "seconds": 2}])


class Document(unittest.TestCase):
    def test_document_is_written_between_its_markers_with_plots(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "performance.md"
            file.write_text(f"before\n{document.BEGIN}\nthe earlier results\n{document.END}\nafter\n")
            document.write(together([LOADS, STATE]), file)
            written = file.read_text()
            self.assertTrue(written.startswith("before\n") and written.endswith("after\n"), written)
            self.assertNotIn("the earlier results", written)
            for name in ("memory", "load", "restart", "session-memory", "session-openings", "watch"):
                self.assertIn(f"](images/performance/{name}.svg)", written)
                self.assertTrue((file.parent / f"images/performance/{name}.svg").read_text().endswith("</svg>\n"))


if __name__ == "__main__":
    unittest.main()
