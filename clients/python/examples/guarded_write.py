"""Write that happens only while the lock is held: the cluster checks the lock in the same transaction."""

import sys

from lockgate import Gate, LockLost, Refused


def main() -> None:
    with Gate(sys.argv[1], name="guarded write example") as gate:
        try:
            gate.create("/examples/orders/42", "open", parents=True)
        except Refused as refusal:
            if refusal.code != "node_exists":
                raise
        with gate.lock("examples/orders/42", wait=10) as lock:
            gate.transaction([{"set": {"path": "/examples/orders/42", "data": "paid"}}], while_held=[lock])
            print(gate.get("/examples/orders/42").text)

            # After a break the same write is refused, however late this process learns of it.
            gate.break_lock("examples/orders/42", reason="example")
            try:
                gate.transaction([{"set": {"path": "/examples/orders/42", "data": "twice"}}], while_held=[lock])
            except LockLost as lost:
                print(f"not written: {lost}")
                print(gate.get("/examples/orders/42").text)
                return


if __name__ == "__main__":
    try:
        main()
    except LockLost:
        # The block ends with the loss, too.
        pass
