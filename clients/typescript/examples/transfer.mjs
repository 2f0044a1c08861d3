/** Two accounts at once. Callers that lock the same ones in any order cannot deadlock. */

import { Gate } from "lockgate";

const gate = new Gate(process.argv[2] ?? "127.0.0.1:7401", { name: "transfer example" });
const locks = ["examples/accounts/a", "examples/accounts/b", { name: "examples/rates", mode: /** @type {const} */ ("shared") }];
await gate.using(locks, { wait: 10_000 }, async (_signal, lock) => {
  console.log(`transfer under the fencing tokens ${lock.tokens.join(", ")}`);
});
await gate.close();
