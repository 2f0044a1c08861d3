"""Counter and Party: no increment and no member is lost, under contention and through a failover."""

import threading

from harness import check, connect_all, contend, kill_server_of, reconnected, say, up_to_date, wait_for

CLIENTS = connect_all(3)


def counter(path, **options):
    counters = [client.Counter(path, **options) for client in CLIENTS]
    counters[0] += 5
    counters[1] -= 3
    up_to_date(CLIENTS[2])
    say(f"counted: {counters[2].value}, from {counters[1].pre_value} to {counters[1].post_value}")
    counters[0] -= 2
    counted, lock = [], threading.Lock()

    def turn(own):
        def take():
            own.__add__(1)
            with lock:
                counted.append(1)

        return take

    contend(CLIENTS[0], 8, [turn(own) for own in counters])
    up_to_date(CLIENTS[0])
    value = CLIENTS[0].retry(lambda: counters[0].value)
    # A write whose answer was lost is repeated: at the failover each client's write in flight may count
    # twice.
    check(len(counted) <= value <= len(counted) + len(CLIENTS), f"{len(counted)} were counted as {value}")
    say("no increment is lost: True")


def party():
    parties = [client.Party("/kazoo/party", f"guest {number}") for number, client in enumerate(CLIENTS)]
    for own in parties:
        own.join()
    up_to_date(CLIENTS[0])
    say(f"guests: {sorted(parties[0])}")
    kill_server_of(CLIENTS[1])
    reconnected(CLIENTS)
    say(f"guests after a failover: {sorted(parties[1])}, {len(parties[2])}")
    parties[1].leave()
    wait_for("one has left", lambda: sorted(parties[0]) == ["guest 0", "guest 2"])
    CLIENTS[2].stop()
    wait_for("a session was closed", lambda: sorted(parties[0]) == ["guest 0"])
    say(f"guests at last: {sorted(parties[0])}")


counter("/kazoo/counter")
counter("/kazoo/curator-counter", support_curator=True)
party()
for each in CLIENTS[:2]:
    each.stop()
