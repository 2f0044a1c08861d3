"""Two accounts at once. Callers that lock the same ones in any order cannot deadlock."""

import sys

from lockgate import Gate, want


def main() -> None:
    with Gate(sys.argv[1], name="transfer example") as gate:
        locks = gate.locks("examples/accounts/a", "examples/accounts/b", want("examples/rates", mode="shared"), wait=10)
        with locks:
            print(f"transfer under the fencing tokens {locks.tokens}")


if __name__ == "__main__":
    main()
