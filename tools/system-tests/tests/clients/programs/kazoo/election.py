"""Election: there is one leader at a time; all lead in turn, before and after a failover."""

import threading

from harness import LimitedResource, Threads, child_count, connect_all, kill_server_of, reconnected, say, wait_for

PATH = "/kazoo/election"

# How often each candidate leads before, and then after the failover.
TURNS = 3


def stand(client, name, leadership, led, over):
    """Runs for election repeatedly."""
    election = client.Election(PATH, name)

    def lead():
        leadership.use()
        led[name] += 1

    while not over.is_set():
        election.run(lead)


CLIENTS = connect_all(3)
LEADERSHIP = LimitedResource(1)
LED = {f"candidate {number}": 0 for number in range(len(CLIENTS))}
OVER = threading.Event()
THREADS = Threads()
for client, name in zip(CLIENTS, LED):
    THREADS.start(stand, client, name, LEADERSHIP, LED, OVER)
wait_for("each has led", lambda: all(turns >= TURNS for turns in LED.values()))
say("all have led")
kill_server_of(CLIENTS[0])
reconnected(CLIENTS)
for name in LED:
    LED[name] = 0
wait_for("each has led", lambda: all(turns >= TURNS for turns in LED.values()))
say("all have led after a failover")
OVER.set()
THREADS.join()
say(f"the most leaders at once: {LEADERSHIP.most}, candidates left: {child_count(CLIENTS[0], PATH)}")

# A waiting candidate can cancel.
HOLDER = CLIENTS[0].Lock(PATH, "holder")
HOLDER.acquire()
ELECTION = CLIENTS[1].Election(PATH, "waiter")
WAITER = Threads()
WAITER.start(ELECTION.run, lambda: say("elected by mistake"))
wait_for("it waits", lambda: HOLDER.contenders() == ["holder", "waiter"])
ELECTION.cancel()
WAITER.join()
wait_for("it has withdrawn", lambda: HOLDER.contenders() == ["holder"])
say("withdrawn")
for client in CLIENTS:
    client.stop()
