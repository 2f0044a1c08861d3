"""One process at a time: `python mutex.py 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403`."""

import sys

from lockgate import Gate, LockLost, NotAcquired


def main() -> None:
    with Gate(sys.argv[1], name="mutex example") as gate:
        try:
            with gate.lock("examples/orders/42", wait=10) as lock:
                for step in range(3):
                    # Before each step: surely still ours? This asks nobody.
                    token = lock.check()
                    print(f"step {step} under fencing token {token}")
        except NotAcquired:
            print("another process has it")
        except LockLost as lost:
            print(f"stopped: {lost}")


if __name__ == "__main__":
    main()
