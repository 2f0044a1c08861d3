"""One leader among processes. It leads for a moment, and hands over to a named candidate if that one waits."""

import os
import sys
import time

from lockgate import Gate


def main() -> None:
    name = sys.argv[2] if len(sys.argv) > 2 else f"candidate-{os.getpid()}"
    successor = sys.argv[3] if len(sys.argv) > 3 else None
    with Gate(sys.argv[1], name=name) as gate:
        election = gate.election("examples/scheduler")
        with election.candidate(name) as leadership:
            print(f"{election.leader()} leads in term {leadership.token}")
            for _ in range(3):
                leadership.check()
                time.sleep(0.1)
            if successor:
                try:
                    leadership.hand_over(successor)
                except ValueError as error:
                    print(error)


if __name__ == "__main__":
    main()
