#!/usr/bin/env bash
# ZooKeeper's client in C: single commands, and a session that outlives the server that it is connected to. Arguments:
# cli_mt, and the servers. What differs from run to run is left out of what it shows: zxids, times, ids of sessions.
set -euo pipefail

cli=$1
servers=$2

# No condition takes longer to come true, on however busy a machine; in seconds.
patience=60

filter() {
    sed -E \
        -e '/^(Batch mode:|Watcher SESSION_EVENT|Got a new session id:|time = )/d' \
        -e '/^\t([cm]time ?=|[cm]zxid=)/d'
}

# One command in a session of its own. How it shows the answer may be changed by a filter.
run() {
    echo "$1"
    timeout "$patience" "$cli" -h "$servers" -c "$1" 2>&1 | filter | "${2:-cat}"
}

# Children come in any order.
export LC_ALL=C

run "create /cli_mt"
run "create /cli_mt"
run "create +s /cli_mt/n-"
run "create2 /cli_mt/b"
run "create +c /cli_mt/c"
run "set /cli_mt hello"
run "get /cli_mt"
run "set /cli_mt/missing hello"
run "get /cli_mt/missing"
run "ls /cli_mt" sort
run "ls2 /cli_mt" sort
run "sync /cli_mt"
run "delete /cli_mt"
run "delete /cli_mt/b"

# One session with its log, which tells what it does. Its input stays open until it is to quit.
coproc SESSION { exec "$cli" -d -h "$servers" 2>&1; }
session=$SESSION_PID

# Waits for a line of the session; leaves it in $line.
told() {
    local end=$((SECONDS + patience))
    while ((SECONDS < end)); do
        if IFS= read -r -t "$patience" line <&"${SESSION[0]}" && [[ $line =~ $1 ]]; then
            return
        fi
    done
    echo "the session never told: $1" >&2
    exit 1
}

ask() {
    echo "$1" >&"${SESSION[1]}"
    told "$2"
    echo "$1: $line"
}

established='session establishment complete on server ([0-9.:]+), sessionId=(0x[0-9a-f]+)'
told "$established"
server=${BASH_REMATCH[1]}
id=${BASH_REMATCH[2]}
ask "create +e /cli_mt/mine" '^\[/cli_mt/mine\]: rc = '
ask "wexists /cli_mt/later" '^Error .* for /cli_mt/later'
echo "!kill $server"
read -r answer
[ "$answer" = done ]
told "$established"
# A single command does not look for another server when it comes to the dead one.
servers=${BASH_REMATCH[1]}
if [ "$id" = "${BASH_REMATCH[2]}" ]; then
    echo "after a failover: the same session"
fi
run "create /cli_mt/later"
told '^Watcher .*path /cli_mt/later'
echo "after a failover: $line"
run "ls /cli_mt" sort
echo "quit" >&"${SESSION[1]}"
# What it still says is nobody's, and must not stop it.
cat <&"${SESSION[0]}" >/dev/null
wait "$session"
run "ls /cli_mt" sort
