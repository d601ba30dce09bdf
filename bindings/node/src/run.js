// One `gatekeeper run`: its output while it runs, then its report.

import { spawn } from 'node:child_process';
import { closeSync, fstatSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Answers, eachLine } from './answers.js';
import { GatekeeperError, NoReport, ProgramMissing } from './errors.js';
import { parse } from './report.js';
import { commandWords, runFlags, variables } from './words.js';

/** @typedef {import('./report.js').Report} Report */
/** @typedef {import('./report.js').Output} Output */
/** @typedef {import('./answers.js').OnAsk} OnAsk */

/**
 * A command that runs. Iterate over its output, then await `report`. Leaving the loop early ends the command and everything it started.
 * @implements {AsyncIterable<Output>}
 */
export class Run {
  /** @type {Output[]} */
  #waiting = [];
  /** @type {(() => void) | undefined} */
  #wake;
  #ended = false;
  #streams;
  /** @type {import('node:child_process').ChildProcess} */
  #child;
  /** @type {Answers | undefined} */
  #answers;

  /**
   * @param {string} program
   * @param {readonly string[]} settings
   * @param {import('./words.js').Command} command
   * @param {import('./words.js').How & { onAsk?: OnAsk }} how
   * @param {boolean} streams whether the output is iterated over; otherwise the report has it
   */
  constructor(program, settings, command, how, streams) {
    const set = variables(how.env ?? {});
    // Before the caller's flags, so that there is a report whatever they contain.
    const words = ['run', '--quiet', ...(streams ? ['--report-fd', '3'] : ['--json'])];
    if (how.onAsk) words.push('--ask-fd', '4');
    if (set !== '') words.push('--env-fd', '5');
    words.push(...runFlags(how, settings), ...commandWords(command));
    this.#streams = streams;
    // A deleted file, because Node's pipes are sockets, which gatekeeper cannot open again.
    const file = unnamedFile();
    const stdin = how.input === undefined ? 'ignore' : 'pipe';
    const asks = how.onAsk ? 'pipe' : 'ignore';
    const sets = set === '' ? 'ignore' : 'pipe';
    /** @type {import('node:child_process').StdioOptions} */
    const stdio = [stdin, streams ? 'pipe' : file, 'pipe', streams ? file : 'ignore', asks, sets];
    let ended;
    try {
      // After SIGKILL the guardian ends everything else.
      this.#child = spawn(program, words, { signal: how.signal, killSignal: 'SIGKILL', stdio });
      ended = this.#follow(how, set);
    } catch (error) {
      closeSync(file);
      throw error;
    }
    /** The report; rejected if there is none. @type {Promise<Report>} */
    this.report = ended.then(
      (status) => {
        const text = contents(file);
        closeSync(file);
        this.#answers?.check();
        if (text === '') throw new NoReport(`no report, ${status}`);
        return parse(text);
      },
      (error) => {
        closeSync(file);
        throw error;
      },
    );
    // Whoever iterates sees the error when awaiting the report; without this, Node would end the process before.
    this.report.catch(() => {});
  }

  /** Ends the command and everything it started, if it still runs. */
  close() {
    this.#child.kill('SIGKILL');
  }

  /** @returns {AsyncGenerator<Output, void, undefined>} */
  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        const output = this.#waiting.shift();
        if (output) {
          if (this.#waiting.length === 0) this.#resume();
          yield output;
        } else if (this.#ended) {
          return;
        } else {
          this.#resume();
          await new Promise((resolve) => {
            this.#wake = () => resolve(undefined);
          });
        }
      }
    } finally {
      if (!this.#ended) this.close();
    }
  }

  #resume() {
    this.#child.stdout?.resume();
    this.#child.stderr?.resume();
  }

  /**
   * @param {import('./words.js').How & { onAsk?: OnAsk }} how
   * @param {string} set
   * @returns {Promise<string>} how gatekeeper ended
   */
  #follow({ input, onAsk }, set) {
    const child = this.#child;
    let messages = '';
    for (const name of /** @type {const} */ (['stdout', 'stderr'])) {
      child[name]?.on('data', (/** @type {Buffer} */ data) => {
        if (name === 'stderr') messages = (messages + data).slice(-4096);
        if (!this.#streams) return;
        this.#waiting.push({ stream: name, data });
        // Wait for the reader, and let the command wait.
        if (this.#waiting.length > 64) child[name]?.pause();
        this.#wake?.();
      });
    }
    if (onAsk) {
      const socket = /** @type {import('node:net').Socket} */ (child.stdio[4]);
      socket.on('error', () => {});
      const answers = new Answers(onAsk, (answer) => {
        if (socket.writable) socket.write(`${JSON.stringify(answer)}\n`);
      });
      eachLine(socket, (question) => answers.take(question));
      this.#answers = answers;
    }
    if (set !== '') {
      const socket = /** @type {import('node:net').Socket} */ (/** @type {unknown[]} */ (child.stdio)[5]);
      socket.on('error', () => {});
      socket.end(set);
    }
    // The command may exit without reading all of its input.
    child.stdin?.on('error', () => {});
    child.stdin?.end(input);
    return new Promise((resolve, reject) => {
      const end = () => {
        this.#ended = true;
        this.#wake?.();
      };
      child.on('error', (cause) => {
        end();
        const kind = cause.name === 'AbortError' ? GatekeeperError : ProgramMissing;
        reject(new kind(cause.message, { cause }));
      });
      child.on('close', (status, by) => {
        end();
        resolve(`status ${status ?? by}: ${messages.trim()}`);
      });
    });
  }
}

function unnamedFile() {
  const directory = mkdtempSync(join(tmpdir(), 'gatekeeper-report-'));
  try {
    return openSync(join(directory, 'report'), 'wx+', 0o600);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** @param {number} file */
function contents(file) {
  const bytes = Buffer.alloc(fstatSync(file).size);
  let read = 0;
  while (read < bytes.length) read += readSync(file, bytes, read, bytes.length - read, read);
  return bytes.toString();
}
