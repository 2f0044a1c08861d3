/** One leader among processes: `node election.mjs SERVERS [NAME [SUCCESSOR]]`. It leads for a moment, and hands over if the successor waits. */

import { setTimeout as pause } from "node:timers/promises";

import { Gate } from "lockgate";

const [, , servers = "127.0.0.1:7401", name = `candidate-${process.pid}`, successor] = process.argv;
const gate = new Gate(servers, { name });
const election = gate.election("examples/scheduler");
const leadership = await election.campaign(name);
console.log(`${await election.leader()} leads in term ${leadership.token}`);
for (let turn = 0; turn < 3; turn++) {
  leadership.check();
  await pause(100, undefined, { signal: leadership.signal });
}
try {
  if (successor) await leadership.handOver(successor);
} catch (error) {
  if (!(error instanceof RangeError)) throw error;
  console.log(error.message);
}
await leadership.resign();
await gate.close();
