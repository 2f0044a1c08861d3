"""All planned measurements, one system after the other. The results are collected round by round, as the load generators print them."""

import signal

from compare import servers, sizes
from compare.generators import longest_gap, report_progress, run, settle, writers

# Number of clients of each load in the warm-up of a system.
WARM_UP_CLIENTS = 16


def all_rounds(plan, means, machine):
    """Runs all rounds. Yields the results so far after each system."""
    results = {
        "machine": machine,
        "versions": {},
        "seconds": plan.seconds,
        "loads": [],
        "failover": {},
        "state": {},
        "sessions": {},
        "unconnected": {},
        "watch": {},
    }
    for number in range(1, plan.rounds + 1):
        for name in plan.systems:
            one_system(plan, means, name, number, results)
            yield results


def one_system(plan, means, name, number, results):
    # Loads share the data of the loads before them; every other measurement starts without data.
    doing = {
        "loads": run_loads,
        "failover": failover,
        "state": sizes.state,
        "sessions": sizes.sessions,
        "sessions without connections": sizes.sessions_without_connections,
        "watch": watch,
    }
    planned = plan.others(name)
    if list(plan.loads(name)):
        planned.insert(0, "loads")
    if "sessions" in planned and name == "lockgate":
        planned.insert(planned.index("sessions") + 1, "sessions without connections")
    for what in planned:
        system = servers.SYSTEMS[name](means)
        report_progress(f"round {number}: {name}, {what}")
        try:
            system.start_all()
            results["versions"][name] = system.version()
            doing[what](plan, system, results)
        except SystemExit:
            report_progress(system.log_tail())
            raise
        finally:
            system.stop()


def run_loads(plan, system, results):
    loads = list(plan.loads(system.name))
    # In a short version, only Java needs the warm-up.
    warm = loads if not plan.quick or system.name == "zookeeper" else []
    for workload, over, _ in warm:
        load(plan, system, workload, over, [WARM_UP_CLIENTS], plan.warm_up_seconds, 0)
    for workload, over, clients in loads:
        for report in load(plan, system, workload, over, clients, plan.seconds, plan.warmup):
            keep(results, system.name, over, workload, report)
            report_progress(f"  {workload} over {over}, {report['clients']} clients: {report['operations_per_second']:.0f}/s")


def load(plan, system, workload, over, clients, seconds, warmup):
    """Runs one load and returns a report for each number of clients."""
    reports = []
    # One run for each number: the command that runs a load may pause between them.
    for count in clients:
        how = ["--clients", str(count), "--seconds", str(seconds), "--warmup", str(warmup), "--json"]
        reports += run(plan, generator(system, workload, over) + how)
    return reports


def generator(system, workload, over):
    """Returns the command that makes the load."""
    means = system.means
    over, _, where = over.partition("@")
    target = system.target_at_leader() if where == "leader" else system.target()
    if over in ("http", "zookeeper"):
        return [str(means.lockgate), "bench", workload, "--over", over, *target]
    if system.name == "lockgate":
        target = system.target_of_redis()
    return [str(means.peers), over, "--workload", workload, *target]


def keep(results, system, over, workload, report):
    key = {"system": system, "over": over, "workload": workload, "clients": report["clients"]}
    for entry in results["loads"]:
        if all(entry[name] == value for name, value in key.items()):
            entry["reports"].append(report)
            return
    results["loads"].append({**key, "reports": [report]})


def watch(plan, system, results):
    """Measures many sessions that watch one znode: the time until all are notified of a change."""
    watching = system.watching()
    # Code that Java has not compiled yet distorts the measurement; the largest number of sessions takes
    # longest to warm up.
    largest = ["--sessions", str(plan.watchers[-1]), "--seconds", str(plan.watch_warm_up_seconds), "--warmup", "0"]
    run(plan, [*watching, *largest])
    for how, arguments in (("together", []), ("at once", ["--at-once"])):
        command = [*watching, *arguments]
        numbers = [["--sessions", str(count)] for count in plan.watchers]
        # Code that only this variant uses is compiled in a moment.
        run(plan, [*command, *numbers[-1], "--seconds", str(plan.warm_up_seconds), "--warmup", "0"])
        for number in numbers:
            [report] = run(plan, [*command, *number, "--seconds", str(plan.seconds), "--warmup", str(plan.warmup)])
            report_progress(f"  {report['sessions']} watchers that read {how}: all notified in {report['last']['p50_us'] / 1000:.1f} ms")
            results["watch"].setdefault(f"{system.name}/{how}/{report['sessions']}", []).append(report)


def failover(plan, system, results):
    """Kills or freezes the leader under writers, and measures the time without a successful write."""
    for loss in plan.losses * plan.losses_each:
        with writers(plan, system) as process:
            settle()
            leader = system.leader()
            if loss == "killed":
                system.kill(leader)
            else:
                system.signal(leader, signal.SIGSTOP)
            system.leader(without=leader)
            settle()
            longest = longest_gap(system, process)
        report_progress(f"  leader {loss}: no write for {longest:.0f} ms")
        results["failover"].setdefault(f"{system.name}/{loss}", []).append(longest)
        if loss == "killed":
            system.start(leader)
        else:
            system.signal(leader, signal.SIGCONT)
        system.wait_serving()
        settle()
