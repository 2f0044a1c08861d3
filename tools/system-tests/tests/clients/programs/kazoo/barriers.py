"""Barrier and DoubleBarrier: no client passes too early, all pass, and both survive a failover.

kazoo's barriers do not handle the loss of a connection during a wait, as their documentation says: a wait is
short and repeated here, and no client waits at the double barrier when the server is killed.
"""

from harness import SHORT_S, Threads, child_count, connect_all, kill_server_of, reconnected, say, up_to_date, wait_for

CLIENTS = connect_all(3)


def single():
    control = CLIENTS[0].Barrier("/kazoo/barrier")
    say(f"through no barrier: {control.wait(SHORT_S)}")
    control.create()
    say(f"through a barrier: {control.wait(SHORT_S)}")
    for client in CLIENTS:
        up_to_date(client)
    passed = []

    def wait(client, number):
        barrier = client.Barrier("/kazoo/barrier")
        while not client.retry(barrier.wait, SHORT_S):
            pass
        passed.append(number)

    threads = Threads()
    for number in range(6):
        threads.start(wait, CLIENTS[number % 3], number)
    kill_server_of(CLIENTS[0])
    reconnected(CLIENTS)
    say(f"through a barrier while it is set: {len(passed)}")
    say(f"removed: {control.remove()}")
    threads.join()
    say(f"through a barrier when it is gone: {len(passed)}, removed again: {control.remove()}")


def twofold():
    path = "/kazoo/double-barrier"
    members = [client.DoubleBarrier(path, 3, f"member {number}") for number, client in enumerate(CLIENTS)]
    entered, left = [], []

    def enter(number):
        members[number].enter()
        entered.append(members[number].participating)

    def leave(number):
        members[number].leave()
        left.append(number)

    threads = Threads()
    for number in range(2):
        threads.start(enter, number)
    wait_for("two are before it", lambda: child_count(CLIENTS[2], path) == 2)
    say(f"inside before all are there: {len(entered)}")
    threads.start(enter, 2)
    threads.join()
    say(f"inside when all are there: {entered}")
    kill_server_of(CLIENTS[0])
    reconnected(CLIENTS)
    for number in range(2):
        threads.start(leave, number)
    # The first two wait: the lowest for the others, the others for the lowest.
    say(f"outside before all leave: {len(left)}")
    threads.start(leave, 2)
    threads.join()
    say(f"outside when all have left: {len(left)}, left behind: {child_count(CLIENTS[0], path)}")


single()
twofold()
for each in CLIENTS:
    each.stop()
