// Pages of a long list: loaded one after the other as they are needed, and asked for again where the node does not answer.

import { setText } from "./dom.js";

/** Maximum number of consecutive failures. After it the page sends no request before the user starts again. */
const MOST_FAILURES = 3;

/** How much longer each pause is than the one before. */
const PAUSE_MS = 1000;

/**
 * `ask()` asks for the page that is next, and `take(page)` gets it, unless the list was begun anew meanwhile. `failed` is the
 * element with the reason why there is none.
 */
export class Pages {
  constructor({ ask, take, failed }) {
    Object.assign(this, { ask, take, failed });
    [this.isOpen, this.generation] = [true, 0];
    this.begin();
  }

  /** Forgets what is loaded: another list is meant from now on. */
  begin() {
    this.generation += 1;
    [this.isComplete, this.isLoading, this.failures] = [false, false, 0];
  }

  /** A function that says whether the list is still the same one, and somebody looks at it. */
  current() {
    const mine = this.generation;
    return () => this.isOpen && mine === this.generation;
  }

  /** Loads the next page, if there is one and it is not on its way. */
  async more() {
    if (this.isLoading || this.isComplete || !this.isOpen || this.failures > MOST_FAILURES) return;
    this.isLoading = true;
    const isCurrent = this.current();
    try {
      const page = await this.ask();
      if (!isCurrent()) return;
      [this.failures, this.failed.hidden, this.isComplete] = [0, true, page.next_cursor === null];
      this.take(page);
    } catch (error) {
      if (!isCurrent()) return;
      this.failures += 1;
      setText(this.failed, error.message);
      this.failed.hidden = error.status === 401;
      setTimeout(() => this.more(), PAUSE_MS * this.failures);
    } finally {
      if (isCurrent()) this.isLoading = false;
    }
  }

  /** Nobody looks any more. */
  end() {
    this.isOpen = false;
    this.generation += 1;
  }
}
