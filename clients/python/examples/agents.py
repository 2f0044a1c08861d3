"""AI agents that share a repository: each takes the files that it is about to edit, all or none, and tells the others what it does.

    python agents.py SERVERS AGENT FILE…

An agent that needs a file of another one asks for it, and gets it when that one has finished its edit."""

import asyncio
import sys
from typing import List

from lockgate import LockLost, ReleaseRequest
from lockgate.aio import Gate


async def edit(gate: Gate, agent: str, files: List[str]) -> None:
    finish = asyncio.Event()

    def asked(request: ReleaseRequest) -> None:
        print(f"{agent}: somebody waits ({request.reason}), so this edit is the last one")
        finish.set()

    names = [f"examples/repository/{name}" for name in files]
    locks = gate.locks(*names, wait=None, note=f"{agent} edits {', '.join(files)}")
    locks.on_release_request(asked)
    for name in names:
        if (await gate.inspect(name))["holders"]:
            await gate.request_release(name, reason=f"{agent} needs it")
    try:
        # The task in the block is cancelled if the locks are lost, so that two agents never edit one file.
        async with locks:
            for step in range(5):
                print(f"{agent}: edit {step} of {files} under {locks.tokens}")
                await asyncio.sleep(0.3)
                if finish.is_set():
                    return
    except LockLost as lost:
        print(f"{agent}: stopped, the edits since the last commit are dropped: {lost}")


async def main() -> None:
    servers, agent, *files = sys.argv[1:]
    async with Gate(servers, name=f"agent {agent}") as gate:
        await edit(gate, agent, files or ["README.md"])


if __name__ == "__main__":
    asyncio.run(main())
