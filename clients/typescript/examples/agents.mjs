/**
 * AI agents that share a repository: each takes the files that it is about to edit, all or none, and tells the others what it does.
 *
 *     node agents.mjs SERVERS AGENT FILE…
 *
 * An agent that needs a file of another one asks for it, and gets it when that one has finished its edit.
 */

import { setTimeout as pause } from "node:timers/promises";

import { Gate, LockLost } from "lockgate";

const [, , servers = "127.0.0.1:7401", agent = `agent-${process.pid}`, ...given] = process.argv;
const files = given.length ? given : ["README.md"];
const names = files.map((file) => `examples/repository/${file}`);
const gate = new Gate(servers, { name: `agent ${agent}` });

for (const name of names) {
  if ((await gate.inspect(name))["holders"].length) await gate.requestRelease(name, `${agent} needs it`);
}
try {
  await gate.using(names, { note: `${agent} edits ${files.join(", ")}` }, async (signal, lock) => {
    let last = false;
    lock.onReleaseRequest((request) => {
      console.log(`${agent}: somebody waits (${request.reason}), so this edit is the last one`);
      last = true;
    });
    for (let edit = 0; edit < 3 && !last; edit++) {
      // The signal is aborted if a lock is lost, so that two agents never edit one file.
      signal.throwIfAborted();
      console.log(`${agent}: edit ${edit} of ${files.join(", ")} under ${lock.tokens.join(", ")}`);
      await pause(200, undefined, { signal });
    }
  });
} catch (error) {
  if (!(error instanceof LockLost)) throw error;
  console.log(`${agent}: stopped, the edits since the last commit are dropped: ${error.message}`);
}
await gate.close();
