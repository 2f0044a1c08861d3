"""Compares the SHA-1s of the scripts of installed lock libraries with the table of the Redis front end: see `check`."""

import hashlib
import re
import sys
from pathlib import Path

import redis.asyncio.lock
import redis.lock
import redis_lock


def sha1(text):
    return hashlib.sha1(text.encode() if isinstance(text, str) else text).hexdigest()


def of_python():
    """Yields names and SHA-1s of the scripts of redis-py and of python-redis-lock."""
    for lock in (redis.lock.Lock, redis.asyncio.lock.Lock):
        for name in ("LUA_RELEASE_SCRIPT", "LUA_EXTEND_SCRIPT", "LUA_REACQUIRE_SCRIPT"):
            yield f"{lock.__module__} {name}", sha1(getattr(lock, name))
    for name in ("UNLOCK_SCRIPT", "EXTEND_SCRIPT", "RESET_SCRIPT", "RESET_ALL_SCRIPT"):
        yield f"redis_lock {name}", sha1(getattr(redis_lock, name))


def of_node(modules):
    """Yields the same of packages of npm: their scripts are template literals without substitutions."""
    for file, pattern in (
        ("redlock/dist/cjs/index.js", r"const (\w+_SCRIPT) = `([^`]*)`"),
        ("redlock-4/redlock.js", r"const (\w+Script) = `([^`]*)`"),
        ("redis-semaphore/lib/mutex/release.js", r"exports\.(\w+) = .*createEval\)\(`([^`]*)`"),
        ("redis-semaphore/lib/mutex/refresh.js", r"exports\.(\w+) = .*createEval\)\(`([^`]*)`"),
    ):
        found = re.findall(pattern, (modules / file).read_text())
        if not found:
            sys.exit(f"{file} has no scripts where they are expected")
        for name, text in found:
            yield f"{file} {name}", sha1(text)


def main():
    directory, table = map(Path, sys.argv[1:])
    known = set(re.findall(r'\bscript\(\s*"([0-9a-f]{40})"', table.read_text()))
    sent = dict([*of_python(), *of_node(directory / "node_modules")])
    missing = {name: value for name, value in sent.items() if value not in known}
    unused = known - set(sent.values())
    for name, value in missing.items():
        print(f"{value} of {name} is not in {table}")
    for value in unused:
        print(f"{value} in {table} is of no installed library")
    if missing or unused:
        sys.exit(1)
    print(f"{len(sent)} scripts of the libraries, {len(known)} rows of the table: they agree")


main()
