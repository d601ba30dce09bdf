// Stages: what a run changed, and waits to be applied.

import { spawn } from 'node:child_process';
import { ProgramMissing, StageConflict, StageError } from './errors.js';

/** @typedef {import('./report.js').Change} Change */

/** The changes of the runs with this stage. Nothing of them is in the real tree before `apply`. */
export class Stage {
  #program;

  /**
   * @param {string} program
   * @param {string} name
   */
  constructor(program, name) {
    this.#program = program;
    this.name = name;
  }

  /**
   * Every change, sorted by path.
   * @returns {Promise<Change[]>}
   */
  async diff() {
    return JSON.parse(await this.#call(['diff', '--json', '--', this.name], [0, 1]));
  }

  /**
   * The changes as a patch for `git apply` and `patch -p1`.
   * @returns {Promise<string>}
   */
  patch() {
    return this.#call(['diff', '--', this.name], [0, 1]);
  }

  /**
   * Takes all changes, or those at and below paths, into the real tree. Rejects with StageConflict, and changes nothing, if files changed
   * there meanwhile.
   * @param {readonly string[]} [paths]
   * @param {{ protected?: 'refuse' | 'skip' | 'take' }} [options] what happens to files that decide what other programs run
   * @returns {Promise<void>}
   */
  async apply(paths = [], options = {}) {
    await this.#call(['apply', `--protected=${options.protected ?? 'refuse'}`, '--', this.name, ...paths], [0]);
  }

  /**
   * Throws the changes away.
   * @returns {Promise<void>}
   */
  async discard() {
    await this.#call(['discard', '--', this.name], [0]);
  }

  /**
   * @param {string[]} words
   * @param {number[]} good exit statuses; 1 is "there are changes" for diff, and a conflict for apply
   * @returns {Promise<string>}
   */
  #call(words, good) {
    return new Promise((resolve, reject) => {
      const child = spawn(this.#program, ['stage', ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
      /** @type {Buffer[]} */
      const output = [];
      let messages = '';
      child.stdout.on('data', (chunk) => output.push(chunk));
      child.stderr.on('data', (chunk) => (messages += chunk));
      child.on('error', (cause) => reject(new ProgramMissing(cause.message, { cause })));
      child.on('close', (status) => {
        if (good.includes(status ?? -1)) resolve(Buffer.concat(output).toString());
        else reject(new (status === 1 ? StageConflict : StageError)(messages.trim() || `status ${status}`));
      });
    });
  }
}
