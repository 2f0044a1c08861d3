"""Transactions, and access control lists: all or nothing, and no access without permission."""

from kazoo.exceptions import KazooException
from kazoo.security import make_acl, make_digest_acl

from harness import connect, connect_all, contend, kill_server_of, reconnected, say, up_to_date

PATH = "/kazoo/accounts"
MONEY = 100

CLIENTS = connect_all(3)


def show(results):
    """Formats the outcome of each item, without zxids and times."""
    shown = []
    for result in results:
        if isinstance(result, Exception):
            shown.append(type(result).__name__)
        else:
            shown.append(f"version {result.version}" if hasattr(result, "version") else str(result))
    return ", ".join(shown)


def transactions():
    client = CLIENTS[0]
    client.ensure_path(PATH)
    transaction = client.transaction()
    transaction.create(PATH + "/a", b"%d" % MONEY)
    transaction.create(PATH + "/b", b"0")
    transaction.create(PATH + "/entry-", sequence=True)
    transaction.set_data(PATH + "/a", b"%d" % MONEY, version=0)
    transaction.check(PATH + "/a", version=1)
    transaction.delete(PATH + "/entry-0000000002")
    say(f"done: {show(transaction.commit())}")
    transaction = client.transaction()
    transaction.create(PATH + "/c")
    transaction.delete(PATH + "/missing")
    transaction.set_data(PATH + "/a", b"1")
    say(f"not done: {show(transaction.commit())}, {client.exists(PATH + '/c')}")

    def turn(own):
        def move(a, a_stat, b, b_stat):
            moving = own.transaction()
            moving.set_data(PATH + "/a", b"%d" % (int(a) - 1), version=a_stat.version)
            moving.set_data(PATH + "/b", b"%d" % (int(b) + 1), version=b_stat.version)
            # Rejected if another client was faster; a repetition is rejected, since its versions are outdated
            # then.
            moving.commit()

        def take():
            own.retry(move, *own.retry(own.get, PATH + "/a"), *own.retry(own.get, PATH + "/b"))

        return take

    contend(CLIENTS[0], 8, [turn(own) for own in CLIENTS])
    reconnected(CLIENTS)
    up_to_date(client)
    left, moved = (int(client.get(PATH + name)[0]) for name in ("/a", "/b"))
    say(f"no money is lost: {left + moved == MONEY}, some was moved: {moved > 0}")


def outcome(call, *arguments):
    """Returns the result of a call, or the name of its error."""
    try:
        return call(*arguments)
    except KazooException as refused:
        return type(refused).__name__


def rights():
    path = "/kazoo/rights"
    owner = connect(auth_data=[("digest", "user:secret")])
    owner.create(path, b"mine", acl=[make_digest_acl("user", "secret", all=True)])
    acls, _ = owner.get_acls(path)
    say(f"the ACL: {', '.join(f'{acl.id.scheme}:{acl.id.id}:{acl.perms}' for acl in acls)}")
    stranger = CLIENTS[1]
    up_to_date(stranger)
    say(f"a stranger: {outcome(stranger.get, path)}, {outcome(stranger.create, path + '/child')}")
    kill_server_of(owner)
    reconnected([owner, stranger])
    say(f"the owner after a failover: {outcome(owner.get, path)[0]}")
    say(f"a stranger after a failover: {outcome(stranger.get, path)}")
    stranger.add_auth("digest", "user:secret")
    say(f"with the password: {outcome(stranger.get, path)[0]}")
    owner.set_acls(path, [make_acl("world", "anyone", read=True)])
    up_to_date(CLIENTS[2])
    say(f"for all to read: {outcome(CLIENTS[2].get, path)[0]}, to write: {outcome(CLIENTS[2].set, path, b'')}")
    say(f"no right to change it: {outcome(owner.set_acls, path, [])}")
    owner.stop()


transactions()
rights()
for each in CLIENTS:
    each.stop()
