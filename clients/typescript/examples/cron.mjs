/**
 * Cron job that runs on one of many machines: a lease, which survives the process, and is not free again within 10 seconds.
 *
 * Another process can renew or release it by the printed text.
 */

import { Gate, NotAcquired } from "lockgate";

const gate = new Gate(process.argv[2] ?? "127.0.0.1:7401");
try {
  const lease = await gate.lease("examples/nightly-report", { ttl: 600_000, minHold: 10_000, note: "nightly report" });
  try {
    console.log(`running under ${lease.text} with fencing token ${lease.token}`);
  } finally {
    await lease.release();
  }
} catch (error) {
  if (!(error instanceof NotAcquired)) throw error;
  console.log("another machine runs it");
}
