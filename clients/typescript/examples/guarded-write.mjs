/** Write that happens only while the lock is held: the cluster checks the lock in the same transaction. */

import { Gate, LockLost, Refused } from "lockgate";

const gate = new Gate(process.argv[2] ?? "127.0.0.1:7401", { name: "guarded write example" });
const path = "/examples/orders/42";
try {
  await gate.create(path, "open", { parents: true });
} catch (error) {
  if (!(error instanceof Refused && error.code === "node_exists")) throw error;
}
const lock = await gate.acquire("examples/orders/42", { wait: 10_000 });
await gate.transaction([{ set: { path, data: "paid" } }], lock);
console.log((await gate.get(path)).text);

// After a break the same write is refused, however late this process learns of it.
await gate.breakLock("examples/orders/42", "example");
try {
  await gate.transaction([{ set: { path, data: "twice" } }], lock);
} catch (error) {
  if (!(error instanceof LockLost)) throw error;
  console.log(`not written: ${error.message}`);
  console.log((await gate.get(path)).text);
}
await gate.close();
