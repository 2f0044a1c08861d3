"""Cron job that runs on one of many machines: a lease, which survives the process, and is not free again within 10 seconds.

Another process can renew or release it by the printed text."""

import sys

from lockgate import Gate, NotAcquired


def main() -> None:
    gate = Gate(sys.argv[1])
    try:
        lease = gate.lease("examples/nightly-report", ttl=600, min_hold=10, note="nightly report")
    except NotAcquired:
        print("another machine runs it")
        return
    with lease:
        print(f"running under {lease.text} with fencing token {lease.token}")


if __name__ == "__main__":
    main()
