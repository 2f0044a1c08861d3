"""Combines the results of several calls: measurements of the same kind count as further rounds."""

import copy

# Properties of the machine that each call measures anew.
MEASURED = ("fdatasync_us", "round_trip_us")
# Results by system, or by system and fault.
KEPT = ("failover", "state", "sessions", "unconnected", "watch")


def together(calls):
    """Returns the combined results. Exits with an error if the calls are not comparable."""
    whole = copy.deepcopy(calls[0])
    whole["calls"] = whole.get("calls", 1)
    whole["machine_under_loads"] = measured_under_loads(calls)
    for call in calls[1:]:
        same_machine(whole["machine"], call["machine"])
        same_versions(whole["versions"], call["versions"])
        whole["calls"] += call.get("calls", 1)
        if call["loads"]:
            same_length(whole, call)
        for name in MEASURED:
            whole["machine"][name] = all_of(whole["machine"].get(name)) + all_of(call["machine"].get(name))
        notes = [note for note in (whole.get("note"), call.get("note")) if note]
        whole["note"] = " ".join(dict.fromkeys(notes))
        for entry in call["loads"]:
            add_load(whole["loads"], entry)
        for name in KEPT:
            kept = whole.setdefault(name, {})
            for key, found in call.get(name, {}).items():
                kept.setdefault(key, []).extend(copy.deepcopy(found))
    return whole


def measured_under_loads(calls):
    """Returns the machine's properties from the calls that measured loads. The speed of disks varies from hour to hour, so a load is compared with
    the measurement of its own call."""
    machines = [call.get("machine_under_loads") or call["machine"] for call in calls if call["loads"]]
    return {name: [value for machine in machines for value in all_of(machine.get(name))] for name in MEASURED}


def all_of(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def same_machine(one, other):
    for name in {*one, *other} - set(MEASURED):
        if one.get(name) != other.get(name):
            raise SystemExit(f"measured on different machines: {name} is {one.get(name)} and {other.get(name)}")


def same_versions(one, other):
    for system, version in other.items():
        if one.setdefault(system, version) != version:
            raise SystemExit(f"measured with different versions: {system} {one[system]} and {version}")


def same_length(whole, call):
    """Checks that all loads ran equally long: a load of two seconds and one of eight have no common median."""
    if whole["loads"] and whole["seconds"] != call["seconds"]:
        raise SystemExit(f"loads were measured for {whole['seconds']} s and for {call['seconds']} s")
    whole["seconds"] = call["seconds"]


def add_load(loads, entry):
    for known in loads:
        if all(known[name] == entry[name] for name in ("system", "over", "workload", "clients")):
            known["reports"].extend(copy.deepcopy(entry["reports"]))
            return
    loads.append(copy.deepcopy(entry))
