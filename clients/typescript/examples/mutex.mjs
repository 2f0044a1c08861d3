/** One process at a time: `node mutex.mjs 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403`. */

import { Gate, LockLost, NotAcquired } from "lockgate";

const gate = new Gate(process.argv[2] ?? "127.0.0.1:7401", { name: "mutex example" });
try {
  await gate.using("examples/orders/42", { wait: 10_000 }, async (_signal, lock) => {
    for (let step = 0; step < 3; step++) {
      // Before each step: surely still ours? This asks nobody.
      console.log(`step ${step} under fencing token ${lock.check()}`);
    }
  });
} catch (error) {
  if (error instanceof NotAcquired) console.log("another process has it");
  else if (error instanceof LockLost) console.log(`stopped: ${error.message}`);
  else throw error;
} finally {
  await gate.close();
}
