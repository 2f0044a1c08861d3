"""At most three downloads at a time, over all machines, with asyncio."""

import asyncio
import sys

from lockgate.aio import Gate


async def download(gate: Gate, number: int) -> None:
    async with gate.semaphore("examples/downloads", limit=3, wait=30):
        print(f"download {number}")
        await asyncio.sleep(0.2)


async def main() -> None:
    async with Gate(sys.argv[1], name="semaphore example") as gate:
        await asyncio.gather(*(download(gate, number) for number in range(6)))


if __name__ == "__main__":
    asyncio.run(main())
