// Runs commands confined by gatekeeper, and returns its report: how the command ended, what was denied, and what would allow it.
//
//     import { Gatekeeper } from 'gatekeeper-sandbox';
//     const report = await new Gatekeeper({ profile: 'write' }).run(['git', 'status'], { timeout: 10_000 });
//
// A command never runs unconfined: if the sandbox cannot be set up, the command does not run, and without a report the promise is rejected.

import { grant, ok } from './report.js';
import { Run } from './run.js';
import { Server } from './server.js';
import { Stage } from './stage.js';
import { findProgram, policyFlags } from './words.js';

export * from './errors.js';
export { bytes, check, grant, ok } from './report.js';
export { Run } from './run.js';
export { Server, ServerRun } from './server.js';
export { Stage } from './stage.js';
export { findProgram } from './words.js';

/** @typedef {import('./report.js').Report} Report */
/** @typedef {import('./report.js').Denial} Denial */
/** @typedef {import('./report.js').Layer} Layer */
/** @typedef {import('./report.js').Question} Question */
/** @typedef {import('./report.js').Decision} Decision */
/** @typedef {import('./report.js').Change} Change */
/** @typedef {import('./report.js').Output} Output */
/** @typedef {import('./words.js').Command} Command */
/** @typedef {import('./words.js').Settings} Settings */
/** @typedef {import('./words.js').How} How */
/** @typedef {import('./answers.js').OnAsk} OnAsk */

export class Gatekeeper {
  #settings;

  /** @param {Settings} [settings] what holds for every run */
  constructor(settings = {}) {
    this.program = findProgram(settings.program);
    this.#settings = policyFlags(settings);
  }

  /**
   * Runs a command, given as words or as a line for sh. With `onOutput` the output goes there as it arrives; otherwise the report has it.
   * `onAsk` decides about each refused path, host and UNIX socket while the call waits.
   * @param {Command} command
   * @param {How & { onOutput?: (output: Output) => void, onAsk?: OnAsk }} [how]
   * @returns {Promise<Report>}
   */
  async run(command, how = {}) {
    const run = new Run(this.program, this.#settings, command, how, how.onOutput !== undefined);
    if (how.onOutput) for await (const output of run) how.onOutput(output);
    return run.report;
  }

  /**
   * Starts a command whose output is iterated over: `for await (const output of run)`, then `await run.report`.
   * @param {Command} command
   * @param {How & { onAsk?: OnAsk }} [how]
   * @returns {Run}
   */
  stream(command, how = {}) {
    return new Run(this.program, this.#settings, command, how, true);
  }

  /**
   * Runs a command. If it failed and something was denied, calls `ask` and, on a yes, runs it again with that grant.
   * @param {Command} command
   * @param {(denial: Denial) => boolean | Promise<boolean>} ask
   * @param {How & { onOutput?: (output: Output) => void, most?: number }} [how]
   * @returns {Promise<Report>}
   */
  async runAsking(command, ask, { most = 4, flags = [], ...how } = {}) {
    const granted = [...flags];
    for (let left = most; ; left -= 1) {
      const report = await this.run(command, { ...how, flags: granted });
      const denial = report.denials.find((each) => each.allow_with);
      if (ok(report) || report.outcome !== 'exited' || !denial || left === 0 || !(await ask(denial))) return report;
      granted.push(...grant(denial));
    }
  }

  /**
   * The stage of this name, in which `run(..., { stage: name })` keeps changes.
   * @param {string} name
   * @returns {Stage}
   */
  stage(name) {
    return new Stage(this.program, name);
  }

  /**
   * A warm server for many runs. Close it at the end.
   * @returns {Server}
   */
  serve() {
    return new Server(this.program, this.#settings);
  }
}
