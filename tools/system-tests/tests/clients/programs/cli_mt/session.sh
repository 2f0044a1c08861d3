#!/usr/bin/env bash
# ZooKeeper's client in C: single commands, and a session that outlives the server that it is connected to.
# Arguments: cli_mt, and the servers. The output omits what differs between runs: zxids, times, session ids.
set -euo pipefail

cli=$1
servers=$2

# Time limit in seconds of every condition, on a busy machine.
patience=60

filter() {
    sed -E \
        -e '/^(Batch mode:|Watcher SESSION_EVENT|Got a new session id:|time = )/d' \
        -e '/^\t([cm]time ?=|[cm]zxid=)/d'
}

# Runs one command in a session of its own. An optional filter changes its output.
run() {
    echo "$1"
    timeout "$patience" "$cli" -h "$servers" -c "$1" 2>&1 | filter | "${2:-cat}"
}

# Children are in no particular order.
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

# One session whose log is read. Its input stays open until it quits.
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
    echo "the session never printed: $1" >&2
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
# A single command does not try another server after the dead one.
servers=${BASH_REMATCH[1]}
if [ "$id" = "${BASH_REMATCH[2]}" ]; then
    echo "after a failover: the same session"
fi
run "create /cli_mt/later"
told '^Watcher .*path /cli_mt/later'
echo "after a failover: $line"
run "ls /cli_mt" sort
echo "quit" >&"${SESSION[1]}"
# Reads the rest of its output, so that it does not block.
cat <&"${SESSION[0]}" >/dev/null
wait "$session"
run "ls /cli_mt" sort
