/** At most three downloads at a time, over all machines. */

import { setTimeout as pause } from "node:timers/promises";

import { Gate } from "lockgate";

const gate = new Gate(process.argv[2] ?? "127.0.0.1:7401", { name: "semaphore example" });

/** @param {number} number */
async function download(number) {
  await gate.using("examples/downloads", { mode: "semaphore", limit: 3, wait: 30_000 }, async (signal) => {
    console.log(`download ${number}`);
    await pause(200, undefined, { signal });
  });
}

await Promise.all([0, 1, 2, 3, 4, 5].map(download));
await gate.close();
