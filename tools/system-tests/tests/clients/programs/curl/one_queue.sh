#!/usr/bin/env bash
# One of three programs that use one lock: curl. The holder is alone at a znode that all of them know.
set -euo pipefail

turns=25
node=${LOCKGATE_HTTP%%,*}

call() {
    curl -sS --fail-with-body -X "$1" "http://$node$2" -d "${3-}"
}

session=$(call POST /v1/sessions '{"ttl_ms": 120000}' | jq -r .session)
for ((turn = 0; turn < turns; turn++)); do
    holder=$(call POST /v1/locks/one-queue/acquire "{\"session\": \"$session\", \"wait_ms\": null}" | jq -r .holder)
    # Fails if another holder is there.
    call POST /v1/znodes/in-use '{"data": ""}' >/dev/null
    call DELETE /v1/znodes/in-use >/dev/null
    call POST /v1/locks/one-queue/release "{\"session\": \"$session\", \"holder\": \"$holder\"}" >/dev/null
done
echo "turns: $turns"
