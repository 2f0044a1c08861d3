"""One of three programs that use one lock: kazoo, by the names of Curator's mutex. The holder is alone at a znode that all
of them know."""

from kazoo.recipe.lock import Lock

from harness import connect, say

TURNS = 25
USED = "/in-use"


class CuratorsLock(Lock):
    """kazoo's lock by the names of Curator's mutex."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


client = connect()
lock = CuratorsLock(client, "/locks/one-queue")
for _ in range(TURNS):
    with lock:
        # Fails if another holder is there.
        client.create(USED)
        client.delete(USED)
say(f"turns: {TURNS}")
client.stop()
