/** HTTP/1.1 by `node:http` and `node:https`: connections to each server, and streams of server-sent events. Knows no locks, and repeats nothing. */

import * as http from "node:http";
import * as https from "node:https";
import type { TLSSocket } from "node:tls";

import { onAbort } from "./clock.js";

/** Idle connections kept per server. A waiting acquire occupies one, so there may be many more for a while. */
const MAX_IDLE = 8;

/** The request did not leave: nothing was executed. */
export class NotSent extends Error {}

/** The connection failed after the request had been sent, at least partly: it may have been executed. */
export class Broken extends Error {}

/** Request to a server. One in the background does not keep the program alive. */
export interface Request {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly headers?: Record<string, string>;
  readonly background?: boolean;
}

/** Response of a server. */
export interface Answer {
  readonly status: number;
  readonly retryAfter?: string | undefined;
  readonly body: string;
}

/** Block of an event stream. A comment has no event. */
export interface Block {
  id?: string;
  event?: string;
  data?: string;
}

/** Open response of server-sent events. */
export interface Stream {
  readonly status: number;
  /** Returns the next block, or `undefined` at the end. */
  next(): Promise<Block | undefined>;
  /** Returns the whole body, of an error. */
  body(): Promise<string>;
  /** Closes the stream: `next` fails with this error. */
  close(why: Error): void;
}

/** Way to the servers: the network, or a fake. */
export interface Transport {
  send(server: string, request: Request, signal: AbortSignal): Promise<Answer>;
  stream(server: string, request: Request, signal: AbortSignal): Promise<Stream>;
  close(): void;
}

/** Options of TLS: `ca`, `cert`, `key`, `passphrase`, `servername` as of `https.Agent`. */
export type TlsOptions = Pick<https.AgentOptions, "ca" | "cert" | "key" | "pfx" | "passphrase" | "servername" | "minVersion">;

/** Connections to the servers of one cluster, given as `host:port`. */
export class Http implements Transport {
  private readonly agent: http.Agent;

  constructor(
    private readonly connectWithin: number,
    private readonly tls: TlsOptions | undefined,
  ) {
    const options = { keepAlive: true, maxFreeSockets: MAX_IDLE };
    this.agent = tls ? new https.Agent({ ...options, ...tls }) : new http.Agent(options);
  }

  async send(server: string, request: Request, signal: AbortSignal): Promise<Answer> {
    const response = await this.open(server, request, signal);
    return { status: response.statusCode ?? 0, retryAfter: response.headers["retry-after"], body: await text(response) };
  }

  async stream(server: string, request: Request, signal: AbortSignal): Promise<Stream> {
    return new EventStream(await this.open(server, request, signal));
  }

  close(): void {
    this.agent.destroy();
  }

  /** Sends a request, and returns its response when the head has arrived. Aborted, it closes its connection. */
  private open(server: string, request: Request, signal: AbortSignal): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const colon = server.lastIndexOf(":");
      const body = request.body ?? "";
      const headers: Record<string, string | number> = { ...request.headers, "content-length": Buffer.byteLength(body) };
      if (body) headers["content-type"] = "application/json";
      const options = {
        agent: this.agent,
        host: server.slice(0, colon).replace(/^\[|\]$/g, ""),
        port: server.slice(colon + 1),
        method: request.method,
        path: request.path,
        headers,
      };
      const sent = (this.tls ? https : http).request(options);
      let connected = false;
      const connecting = setTimeout(() => sent.destroy(new Error(`no connection in ${this.connectWithin} ms`)), this.connectWithin);
      if (request.background) connecting.unref();
      const onConnected = (): void => {
        connected = true;
        clearTimeout(connecting);
      };
      sent.once("socket", (socket) => {
        if (request.background) socket.unref();
        const connecting = this.tls ? !(socket as TLSSocket).getProtocol() : socket.connecting;
        if (sent.reusedSocket || !connecting) onConnected();
        else socket.once(this.tls ? "secureConnect" : "connect", onConnected);
      });
      const stop = (): void => void sent.destroy(signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason)));
      const endOfSignal = onAbort(signal, stop);
      sent.once("close", () => {
        clearTimeout(connecting);
        endOfSignal();
      });
      sent.once("response", resolve);
      sent.on("error", (error: Error) => {
        const why = `${server}: ${error.message || (error as NodeJS.ErrnoException).code}`;
        reject(signal.aborted ? signal.reason : connected ? new Broken(why) : new NotSent(why));
      });
      sent.end(body);
    });
  }
}

function text(response: http.IncomingMessage): Promise<string> {
  return new Promise((resolve, reject) => {
    let all = "";
    response.setEncoding("utf8");
    response.on("data", (piece: string) => (all += piece));
    response.on("end", () => resolve(all));
    response.on("error", (error) => reject(new Broken(error.message)));
    response.on("close", () => reject(new Broken("the connection was closed")));
  });
}

class EventStream implements Stream {
  readonly status: number;
  private readonly blocks: Block[] = [];
  private ended: { error?: Error } | undefined;
  private wake: (() => void) | undefined;
  private rest = "";

  constructor(private readonly response: http.IncomingMessage) {
    this.status = response.statusCode ?? 0;
    if (this.status !== 200) return;
    response.setEncoding("utf8");
    response.on("data", (piece: string) => this.add(piece));
    response.on("end", () => this.end({}));
    response.on("error", (error) => this.end({ error: new Broken(error.message) }));
    response.on("close", () => this.end({ error: new Broken("the connection was closed") }));
  }

  close(why: Error): void {
    this.end({ error: why });
    this.response.destroy();
  }

  body(): Promise<string> {
    return text(this.response);
  }

  async next(): Promise<Block | undefined> {
    while (true) {
      const block = this.blocks.shift();
      if (block) return block;
      if (this.ended?.error) throw this.ended.error;
      if (this.ended) return undefined;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private end(how: { error?: Error }): void {
    this.ended ??= how;
    this.wake?.();
  }

  private add(piece: string): void {
    this.rest = (this.rest + piece).replace(/\r\n/g, "\n");
    const blocks = this.rest.split("\n\n");
    this.rest = blocks.pop() ?? "";
    this.blocks.push(...blocks.map(parse));
    this.wake?.();
  }
}

function parse(block: string): Block {
  const fields: Record<string, string> = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name) fields[name] = name === "data" && fields["data"] !== undefined ? `${fields["data"]}\n${value}` : value;
  }
  return fields;
}
