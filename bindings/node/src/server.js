// A warm server: many runs from one `gatekeeper serve`.

import { spawn } from 'node:child_process';
import { Answers, eachLine } from './answers.js';
import { GatekeeperError, NoReport, ProgramMissing, ServerGone } from './errors.js';
import { bytes, checked } from './report.js';
import { isUnicode, runFlags } from './words.js';

/** @typedef {import('./report.js').Report} Report */
/** @typedef {import('./report.js').Output} Output */
/** @typedef {import('./answers.js').OnAsk} OnAsk */
/** @typedef {Omit<import('./words.js').How, 'input'> & { input?: string, onAsk?: OnAsk }} ServerHow the input is text */

/** The longest line that the server reads. */
const LONGEST = 16 << 20;

/** Runs commands without starting gatekeeper for each. `close` ends every run. */
export class Server {
  #child;
  #settings;
  #last = 0;
  /** @type {Map<number, ServerRun>} */
  #runs = new Map();
  /** @type {Error | undefined} */
  #gone;
  /** @type {Promise<void>} */
  #ended;

  /**
   * @param {string} program
   * @param {readonly string[]} settings
   */
  constructor(program, settings) {
    this.#settings = settings;
    this.#child = spawn(program, ['serve'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child.stdin.on('error', () => {});
    eachLine(this.#child.stdout, (answer) => this.#take(answer));
    this.#ended = new Promise((resolve) => {
      this.#child.on('error', (cause) => {
        this.#end(new ProgramMissing(cause.message, { cause }));
        resolve();
      });
      this.#child.on('close', () => {
        this.#end(new ServerGone('the server ended before it answered'));
        resolve();
      });
    });
  }

  /**
   * Runs a command, given as words or as a line for sh. The report has its output. `onAsk` decides about each refused path, host and UNIX
   * socket while the call waits.
   * @param {import('./words.js').Command} command
   * @param {ServerHow} [how]
   * @returns {Promise<Report>}
   */
  async run(command, how = {}) {
    return this.#start(command, how, false).report;
  }

  /**
   * Starts a command whose output is iterated over. The server has one connection for all runs, so output that is not read yet waits in
   * memory, and does not hold up the command.
   * @param {import('./words.js').Command} command
   * @param {ServerHow} [how]
   * @returns {ServerRun}
   */
  stream(command, how = {}) {
    return this.#start(command, how, true);
  }

  /**
   * Ends every run, and the server.
   * @returns {Promise<void>}
   */
  async close() {
    // Killed, and not only its input closed: that would wait for the runs. The guardians end everything.
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  /**
   * @param {import('./words.js').Command} command
   * @param {ServerHow} how
   * @param {boolean} stream
   */
  #start(command, how, stream) {
    const { cwd, input: stdin, env, signal, onAsk, ...rest } = how;
    const id = (this.#last += 1);
    const answers = onAsk && new Answers(onAsk, (answer) => this.#send(lineOf({ id, answer })));
    const run = new ServerRun(() => this.#send(lineOf({ id, cancel: true })), answers);
    const what = typeof command === 'string' ? { line: command } : { argv: command };
    const order = lineOf({ id, ...what, flags: runFlags(rest, this.#settings), cwd, env, stdin, stream, ask: onAsk !== undefined });
    if (this.#gone) {
      run.end(this.#gone);
      return run;
    }
    this.#runs.set(id, run);
    this.#send(order);
    if (signal) follow(signal, run);
    return run;
  }

  /** @param {string} line */
  #send(line) {
    if (!this.#gone) this.#child.stdin.write(line);
  }

  /** @param {any} answer */
  #take(answer) {
    if (answer.id === null) {
      // Some run will never be answered.
      this.#end(new ServerGone(`the server could not read an order, and was ended: ${answer.error}`));
      this.#child.kill('SIGKILL');
      return;
    }
    const run = this.#runs.get(answer.id);
    if (run?.take(answer)) this.#runs.delete(answer.id);
  }

  /** @param {Error} error */
  #end(error) {
    this.#gone ??= error;
    for (const run of this.#runs.values()) run.end(error);
    this.#runs.clear();
  }
}

/**
 * A line for the server, which reads Unicode text only.
 * @param {object} order
 */
function lineOf(order) {
  const line = `${JSON.stringify(order, (key, value) => {
    if (!isUnicode(key) || (typeof value === 'string' && !isUnicode(value))) {
      throw new GatekeeperError('a server takes Unicode text only, and this has half of a surrogate pair');
    }
    return value;
  })}\n`;
  if (Buffer.byteLength(line) > LONGEST) {
    throw new GatekeeperError(`a server takes ${LONGEST} bytes for one run at most; use Gatekeeper.run for more input`);
  }
  return line;
}

/**
 * Ends the run at the signal. The report is then rejected, as that of a run without a server.
 * @param {AbortSignal} signal
 * @param {ServerRun} run
 */
function follow(signal, run) {
  const abort = () => run.abort(new GatekeeperError('the run was aborted', { cause: signal.reason }));
  if (signal.aborted) return abort();
  signal.addEventListener('abort', abort, { once: true });
  const forget = () => signal.removeEventListener('abort', abort);
  run.report.then(forget, forget);
}

/**
 * A command of the server. Iterate over its output, then await `report`. Leaving the loop early ends the command.
 * @implements {AsyncIterable<Output>}
 */
export class ServerRun {
  /** @type {Output[]} */
  #waiting = [];
  /** @type {() => void} */
  #wake = () => {};
  #ended = false;
  #cancel;
  #answers;
  /** @type {Error | undefined} */
  #aborted;
  /** @type {(report: Report) => void} */
  #resolve = () => {};
  /** @type {(error: Error) => void} */
  #reject = () => {};

  /**
   * @param {() => void} cancel
   * @param {Answers} [answers]
   */
  constructor(cancel, answers) {
    this.#cancel = cancel;
    this.#answers = answers;
    /** The report; rejected if there is none. @type {Promise<Report>} */
    this.report = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.report.catch(() => {});
  }

  /** Ends the command and everything it started, if it still runs. */
  close() {
    if (!this.#ended) this.#cancel();
  }

  /**
   * @param {Error} error
   * @internal
   */
  abort(error) {
    this.#aborted = error;
    this.close();
  }

  /** @returns {AsyncGenerator<Output, void, undefined>} */
  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        const output = this.#waiting.shift();
        if (output) yield output;
        else if (this.#ended) return;
        else await new Promise((resolve) => (this.#wake = () => resolve(undefined)));
      }
    } finally {
      this.close();
    }
  }

  /**
   * Takes an answer of the server; whether it was the last one.
   * @param {any} answer
   * @internal
   */
  take(answer) {
    for (const stream of /** @type {const} */ (['stdout', 'stderr'])) {
      if (stream in answer) this.#waiting.push({ stream, data: bytes(answer, stream) });
    }
    if ('ask' in answer) this.#answers?.take(answer.ask);
    if ('error' in answer) return this.end(new NoReport(answer.error));
    if ('report' in answer) {
      this.#ended = true;
      try {
        this.#answers?.check();
        if (this.#aborted) throw this.#aborted;
        this.#resolve(checked(answer.report));
      } catch (error) {
        this.#reject(/** @type {Error} */ (error));
      }
    }
    this.#wake();
    return this.#ended;
  }

  /**
   * @param {Error} error
   * @internal
   */
  end(error) {
    this.#ended = true;
    this.#reject(this.#aborted ?? error);
    this.#wake();
    return true;
  }
}
