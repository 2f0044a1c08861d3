"""LockingQueue: each entry belongs to one client until it is consumed or released, also through a failover."""

import threading

from harness import PATIENCE_S, SHORT_S, Threads, check, connect_all, kill_server_of, reconnected, say, up_to_date, wait_for

PATH = "/kazoo/queue"
ENTRIES = 12

CLIENTS = connect_all(3)
QUEUES = [client.LockingQueue(PATH) for client in CLIENTS]

QUEUES[0].put(b"later", priority=200)
QUEUES[0].put_all([b"first", b"second"])
up_to_date(CLIENTS[1])
say(f"entries: {len(QUEUES[1])}")
say(f"one has {QUEUES[0].get(PATIENCE_S)}, another {QUEUES[1].get(PATIENCE_S)}")
say(f"the first again: {QUEUES[0].get(PATIENCE_S)}, its own: {QUEUES[0].holds_lock()}")
say(f"given back: {QUEUES[0].release()}, another gets {QUEUES[2].get(PATIENCE_S)}")
kill_server_of(CLIENTS[2])
reconnected(CLIENTS)
say(f"still its own after a failover: {QUEUES[2].holds_lock()}, {QUEUES[1].holds_lock()}")
say(f"done: {QUEUES[2].consume()}, {QUEUES[1].consume()}, again: {QUEUES[1].consume()}")
say(f"then: {QUEUES[0].get(PATIENCE_S)}, done: {QUEUES[0].consume()}")
say(f"nothing is left: {QUEUES[0].get(SHORT_S)}")

CONSUMED, LOCK = [], threading.Lock()


def consume(queue):
    """Consumes entries until none is left."""
    while len(CONSUMED) < ENTRIES:
        entry = queue.get(SHORT_S)
        if entry is not None:
            check(queue.consume(), "what it got is its own")
            with LOCK:
                CONSUMED.append(entry)


THREADS = Threads()
for own in QUEUES:
    THREADS.start(consume, own)
for number in range(ENTRIES):
    QUEUES[number % 3].put(b"entry %02d" % number)
wait_for("all are done", lambda: len(CONSUMED) >= ENTRIES)
THREADS.join()
say(f"each entry once: {b', '.join(sorted(CONSUMED)).decode()}")
for client in CLIENTS:
    client.stop()
