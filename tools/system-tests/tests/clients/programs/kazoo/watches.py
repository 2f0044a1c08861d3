"""DataWatch and ChildrenWatch: they report the last change, from any client and even if their server is lost."""

from kazoo.exceptions import NoNodeError

from harness import connect_all, contend, kill_server_of, reconnected, say, up_to_date, wait_for

PATH = "/kazoo/watched"

CLIENTS = connect_all(3)
WATCHER, *WRITERS = CLIENTS
SEEN = {"data": None, "children": None, "missing": "not asked"}

WATCHER.ensure_path(PATH + "/children")


@WATCHER.DataWatch(PATH)
def data_changed(data, stat):
    SEEN["data"] = data


@WATCHER.ChildrenWatch(PATH + "/children")
def children_changed(children):
    SEEN["children"] = sorted(children)


@WATCHER.DataWatch(PATH + "/missing")
def missing_changed(data, stat):
    SEEN["missing"] = data


say(f"at first: {SEEN['data']}, {SEEN['children']}, {SEEN['missing']}")


def seen(what, **values):
    """Waits until the watches have reported this."""
    wait_for(what, lambda: all(SEEN[name] == value for name, value in values.items()))
    say(what)


WRITERS[0].set(PATH, b"one")
seen("data that was set", data=b"one")
WRITERS[0].create(PATH + "/missing", b"here")
seen("a znode that was created", missing=b"here")
WRITERS[1].create(PATH + "/children/a")
seen("a child that was created", children=["a"])
WRITERS[1].delete(PATH + "/missing")
seen("a znode that was deleted", missing=None)


def turn(writer):
    def take():
        writer.retry(writer.set, PATH, b"busy")
        name = writer.retry(writer.create, PATH + "/children/n-", sequence=True, ephemeral=True)
        try:
            writer.retry(writer.delete, name)
        except NoNodeError:
            # It was deleted, but the answer was lost.
            pass

    return take


contend(WATCHER, 10, [turn(writer) for writer in WRITERS])
reconnected(CLIENTS)
up_to_date(WRITERS[1])
WRITERS[0].set(PATH, b"last")
for child in WRITERS[1].get_children(PATH + "/children"):
    WRITERS[1].delete(f"{PATH}/children/{child}")
WRITERS[1].create(PATH + "/children/z")
seen("the last changes after a failover", data=b"last", children=["z"])

# A change while the session moves is not missed either.
kill_server_of(WATCHER)
WRITERS[0].retry(WRITERS[0].set, PATH, b"moved")
WRITERS[1].retry(WRITERS[1].ensure_path, PATH + "/missing")
seen("what changed while the session moved", data=b"moved", missing=b"")
for client in CLIENTS:
    client.stop()
