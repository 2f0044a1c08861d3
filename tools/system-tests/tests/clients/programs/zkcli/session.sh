#!/usr/bin/env bash
# zkCli.sh in typical use: one session of commands, and single commands with their exit codes. Arguments:
# zkCli.sh, and the servers. The output omits what differs between runs: zxids, times, the session id,
# addresses.
set -euo pipefail

zkcli=$1
servers=$2

# The logs of the servers explain a failed run; the client's own would only disturb its output.
export CLIENT_JVMFLAGS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=off"
# Debian's script takes these from the login shell.
export USER=${USER:-nobody} HOSTNAME=${HOSTNAME:-localhost}

# `config` shows the addresses of ZooKeeper's servers, and nothing with Lockgate
# (docs/reference/zookeeper-differences.md).
filter() {
    sed -E \
        -e '/^(SLF4J:|Connecting to|Welcome to|JLine support|WATCHER::|WatchedEvent|$)/d' \
        -e '/^([cm]time|[cmp]Zxid) = /d' \
        -e 's/^ephemeralOwner = 0x0*[1-9a-f][0-9a-f]*$/ephemeralOwner = a session/' \
        -e '/^(server\.[0-9]+|version)=/d'
}

run() {
    "$zkcli" -server "$servers" "$@" 2>&1 | filter
}

# A session ends with the exit status of its last command.
status=0
run <<'COMMANDS' || status=$?
create /zkcli one
get /zkcli
set /zkcli two
get -s /zkcli
set -v 0 /zkcli three
set -s -v 1 /zkcli three
create /zkcli
create -s /zkcli/n- x
create -s -e /zkcli/n- x
create -e /zkcli/e mine
create -c /zkcli/container
create -t 3600000 /zkcli/ttl
create /zkcli/missing/child
create /zkcli/e/child
ls /zkcli
ls -s /zkcli
ls -R /zkcli
ls /missing
stat /zkcli
stat /missing
sync /zkcli
getAllChildrenNumber /zkcli
getEphemerals /zkcli/e
getAcl /zkcli
addauth digest user:secret
whoami
create /zkcli/mine data auth::cdrwa
getAcl -s /zkcli/mine
setAcl /zkcli/mine ip:127.0.0.1:rw,world:anyone:ra
setAcl -v 7 /zkcli/mine world:anyone:r
getAcl /zkcli/mine
get /zkcli/mine
setAcl -R /zkcli/container world:anyone:cdra
getAcl /zkcli/container
setquota -n 20 /zkcli
setquota -b 1000 /zkcli
listquota /zkcli
delquota -b /zkcli
listquota /zkcli
delquota /zkcli
listquota /zkcli
config
delete -v 7 /zkcli/ttl
delete /zkcli/ttl
delete /zkcli/ttl
delete /zkcli
deleteall /zkcli
ls /zkcli
quit
COMMANDS
echo "the session: exit status $status"

# One command at a time.
for command in "create /zkcli again" "create /zkcli again" "set /zkcli/missing x" "deleteall /zkcli"; do
    status=0
    # The words of a command are arguments.
    # shellcheck disable=SC2086
    run $command || status=$?
    echo "$command: exit status $status"
done
