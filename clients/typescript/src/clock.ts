/** Clock and timers. Times are in milliseconds. */

import { setMaxListeners } from "node:events";

/** Longest difference between the two clocks that is no suspend. */
const SUSPENDED_FROM = 100;

/** Longest time between two readings of one clock in which the other one is read. */
const READ_WITHIN = 5;

let suspended = 0;
let offset = NaN;

/**
 * Milliseconds on a clock that goes on while the machine is suspended.
 *
 * `performance.now`, as `process.hrtime`, is the system's monotonic clock: it goes on while the process is stopped, but on Linux it stands still while the machine is
 * suspended. So it is compared with the time of day: if that has gone ahead by more than 100 ms since the last call, the machine was suspended,
 * or somebody has set its time. The client counts both, so that a lock may be reported as lost too early, but not too late. The time of day
 * that is set back changes nothing.
 */
export function now(): number {
  let wall: number, before: number, after: number;
  do {
    // Another process may run between the readings. Then they cannot be compared.
    before = performance.now();
    wall = Date.now();
    after = performance.now();
  } while (after - before > READ_WITHIN);
  const ahead = wall - after - offset;
  if (ahead > SUSPENDED_FROM) suspended += ahead;
  offset = wall - after;
  return after + suspended;
}

/** Waits. Unless `keepAlive`, the program may end meanwhile. */
export function sleep(ms: number, keepAlive: boolean): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    if (!keepAlive) timer.unref();
  });
}

/** Calls back when a signal is aborted, at once if it is already. Returns a function that ends this. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (!signal) return () => undefined;
  // Many calls may share a signal. Node warns of more than ten listeners.
  setMaxListeners(0, signal);
  if (signal.aborted) callback();
  signal.addEventListener("abort", callback, { once: true });
  return () => signal.removeEventListener("abort", callback);
}

/** Waits for a promise, or rejects when the signal is aborted. */
export async function abortable<T>(waiting: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  let end: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => (end = onAbort(signal, () => reject(signal?.reason))));
  try {
    return await Promise.race([waiting, aborted]);
  } finally {
    end();
  }
}

/** Reason of an abort after a time. */
export class TimedOut extends Error {}

/** Calls a function with a signal that is aborted after a time, or by `outer`. */
export async function within<T>(ms: number, keepAlive: boolean, outer: AbortSignal | undefined, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new TimedOut(`no answer in ${Math.round(ms)} ms`)), ms);
  if (!keepAlive) timer.unref();
  const end = onAbort(outer, () => controller.abort(outer?.reason));
  try {
    return await run(controller.signal);
  } catch (error) {
    if (controller.signal.aborted) throw controller.signal.reason;
    throw error;
  } finally {
    clearTimeout(timer);
    end();
  }
}

/** Waits until one of several things wakes it, or a time has passed. */
export class Wakeable {
  private wakeUp: (() => void) | undefined;
  private pending = false;

  wake(): void {
    this.pending = true;
    this.wakeUp?.();
  }

  /** Waits without keeping the program alive. A `wake` before it ends it at once. */
  async wait(ms: number): Promise<void> {
    if (!this.pending) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms).unref();
        this.wakeUp = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.wakeUp = undefined;
    this.pending = false;
  }
}
