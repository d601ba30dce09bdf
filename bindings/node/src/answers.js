// Decides the questions of a run by the caller's function, for `gatekeeper run` and for the server.

import { GatekeeperError } from './errors.js';

/** @typedef {import('./report.js').Question} Question */
/** @typedef {import('./report.js').Decision} Decision */
/** @typedef {(question: Question) => Decision | Promise<Decision>} OnAsk */

/** Decides questions side by side. If the function throws, that question and all later ones are denied, and `error` has what it threw. */
export class Answers {
  #onAsk;
  #send;
  #failed = false;
  /** @type {unknown} */
  #error;

  /**
   * @param {OnAsk} onAsk
   * @param {(answer: { id: number, decision: Decision }) => void} send
   */
  constructor(onAsk, send) {
    this.#onAsk = onAsk;
    this.#send = send;
  }

  /** Throws what the function threw. */
  check() {
    if (this.#failed) throw this.#error;
  }

  /** @param {Question & { withdrawn?: boolean }} question */
  async take(question) {
    if (question.withdrawn) return;
    this.#send({ id: question.id, decision: await this.#decide(question) });
  }

  /**
   * @param {Question} question
   * @returns {Promise<Decision>}
   */
  async #decide(question) {
    try {
      if (this.#failed) return 'deny';
      const decision = await this.#onAsk(question);
      if (['once', 'run', 'deny'].includes(decision)) return decision;
      throw new GatekeeperError(`${JSON.stringify(decision)} is no decision; use once, run or deny`);
    } catch (error) {
      if (!this.#failed) this.#error = error;
      this.#failed = true;
      return 'deny';
    }
  }
}

/**
 * Calls `take` for each line of JSON that a stream brings.
 * @param {import('node:stream').Readable} stream
 * @param {(value: any) => void} take
 */
export function eachLine(stream, take) {
  let rest = '';
  stream.setEncoding('utf8').on('data', (/** @type {string} */ chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(JSON.parse(line));
  });
}
