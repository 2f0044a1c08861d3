// Works with locks, transactions and reads by the types that openapi-typescript made. Its arguments are the nodes' URLs.

import assert from "node:assert/strict";
import process from "node:process";

import createClient from "openapi-fetch";

import type { components, paths } from "./lockgate.js";

type Grant = components["schemas"]["GrantAnswer"];
type Client = ReturnType<typeof createClient<paths>>;

const lock = "generated/typescript";

async function session(client: Client): Promise<string> {
  const { data, error } = await client.POST("/v1/sessions", { body: { ttl_ms: 60_000, name: "use.ts" } });
  assert(data, JSON.stringify(error));
  return data.session;
}

async function acquire(client: Client, body: components["schemas"]["AcquireBody"]): Promise<Grant> {
  const { data, error } = await client.POST("/v1/locks/{name}/acquire", { params: { path: { name: lock } }, body });
  assert(data, JSON.stringify(error));
  return data;
}

async function release(client: Client, of: string, grant: Grant): Promise<void> {
  const { data, error } = await client.POST("/v1/locks/{name}/release", {
    params: { path: { name: lock } },
    body: { session: of, holder: grant.holder },
  });
  assert(data, JSON.stringify(error));
  assert.equal(data.holds, 0);
}

const clients = process.argv.slice(2).map((baseUrl) => createClient<paths>({ baseUrl }));
const [first, last] = [clients[0], clients.at(-1)];
assert(first && last);
const [holder, waiter] = [await session(first), await session(last)];

const grant = await acquire(first, { session: holder });
const busy = await last.POST("/v1/locks/{name}/acquire", {
  params: { path: { name: lock } },
  body: { session: waiter },
});
assert.equal(busy.error?.code, "lock_busy");
assert.deepEqual(busy.error.holders, [grant.holder]);

const waiting = acquire(last, { session: waiter, wait_ms: 30_000, request_id: "wait", note: "from use.ts" });
for (;;) {
  const { data } = await last.GET("/v1/locks/{name}", { params: { path: { name: lock } } });
  if (data?.queue.length === 1) {
    break;
  }
}

const path = "/generated-typescript";
const done = await first.POST("/v1/txn", {
  body: {
    session: holder,
    ops: [
      { held: { lock, fencing_token: grant.fencing_token } },
      { create: { path, data: "one" } },
      { set: { path, data: "two", version: 0 } },
      { check: { path, version: 1 } },
    ],
  },
});
assert(done.data, JSON.stringify(done.error));
const created = done.data.results[1];
assert(created && "created" in created);
assert.equal(created.created.path, path);

const read = await last.POST("/v1/read", {
  params: { query: { linearizable: true } },
  body: { reads: [{ get: { path } }] },
});
const got = read.data?.results[0];
assert(got && "get" in got);
assert.equal(got.get.data, "two");

await release(first, holder, grant);
const next = await waiting;
assert(next.fencing_token > grant.fencing_token);
const late = await first.POST("/v1/txn", {
  body: { session: holder, ops: [{ held: { lock, fencing_token: grant.fencing_token } }, { delete: { path } }] },
});
assert.equal(late.error?.code, "not_holder");
await release(last, waiter, next);
const gone = await last.POST("/v1/txn", { body: { ops: [{ delete: { path } }] } });
assert(gone.data, JSON.stringify(gone.error));

for (const [client, open] of [[first, holder], [last, waiter]] as const) {
  const { response } = await client.DELETE("/v1/sessions/{session}", { params: { path: { session: open } } });
  assert.equal(response.status, 204);
}
