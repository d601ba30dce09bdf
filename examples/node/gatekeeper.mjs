// Runs commands confined by gatekeeper and returns its report. Needs Node 18 or newer and no packages.
//
//     import { Gatekeeper } from './gatekeeper.mjs';
//     const report = await new Gatekeeper().run(['touch', 'new'], { timeout: 10_000 });
//
// A command never runs unconfined: if there is no report, the promise is rejected.

import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readSync, fstatSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * @typedef {object} Denial
 * @property {string} layer
 * @property {string} syscall
 * @property {string} rule
 * @property {string | null} path
 * @property {string | null} host
 * @property {number} count
 * @property {string | null} allow_with flags for `gatekeeper run`, quoted for a shell; {@link grant} splits them
 */

/**
 * @typedef {object} Report
 * @property {1} schema
 * @property {'exited' | 'signaled' | 'timeout' | 'limit' | 'refused' | 'setup_failed' | 'not_found'} outcome
 * @property {number} exit_code
 * @property {number | null} signal
 * @property {number} duration_ms
 * @property {string} [error]
 * @property {Denial[]} denials
 */

/**
 * @typedef {object} How
 * @property {string[]} [flags] additional flags for `gatekeeper run`
 * @property {number} [timeout] in milliseconds
 * @property {string | Uint8Array} [input]
 * @property {string} [cwd]
 * @property {AbortSignal} [signal] ends the command and everything it started
 * @property {(stream: 'stdout' | 'stderr', chunk: Buffer) => void} [onOutput]
 * @property {(question: object) => string | Promise<string>} [onAsk] decides about each refused path, host and UNIX socket
 *   while the call waits: 'once', 'run' or 'deny' (docs/guide/ask.md)
 */

/** gatekeeper wrote no report: it is missing, its flags are wrong, or it was killed. */
export class GatekeeperError extends Error {}

/**
 * Splits a grant into words. The confined command may have chosen a path in it, so never paste it into a shell line.
 * @param {Denial} denial
 * @returns {string[]}
 */
export function grant(denial) {
  const words = [];
  const pattern = /\s*((?:'[^']*'|\\'|[^\s'\\])+)/gy;
  const line = denial.allow_with ?? '';
  let end = 0;
  for (let match; (match = pattern.exec(line)); end = pattern.lastIndex) {
    words.push(match[1].replace(/'([^']*)'|\\'/g, (piece, inside) => (piece === "\\'" ? "'" : inside)));
  }
  if (end !== line.length) throw new GatekeeperError(`not a grant: ${line}`);
  return words;
}

export class Gatekeeper {
  /**
   * @param {{ program?: string, flags?: string[] }} [options] the gatekeeper program, and flags for every run
   */
  constructor({ program = process.env.GATEKEEPER ?? 'gatekeeper', flags = [] } = {}) {
    this.program = program;
    this.flags = flags;
  }

  /**
   * Runs a command given as words, or a line with sh.
   * @param {string | string[]} command
   * @param {How} [how]
   * @returns {Promise<Report>}
   */
  async run(command, { flags = [], timeout, input, cwd, signal, onOutput, onAsk } = {}) {
    // Before the caller's flags, so that there is a report whatever they contain.
    const words = ['run', '--quiet', '--report-fd', '3'];
    if (timeout !== undefined) words.push('--timeout', `${Math.max(1, Math.round(timeout))}ms`);
    if (onAsk) words.push('--ask-fd', '4');
    words.push(...this.flags, ...flags, ...(typeof command === 'string' ? ['-c', command] : ['--', ...command]));
    // A deleted file, because Node's pipes are sockets, which gatekeeper cannot open again.
    const report = unnamedFile();
    try {
      const ended = await new Promise((resolve, reject) => {
        const stdin = input === undefined ? 'ignore' : 'pipe';
        // After SIGKILL the guardian ends everything else.
        /** @type {import('node:child_process').StdioOptions} */
        const stdio = onAsk ? [stdin, 'pipe', 'pipe', report, 'pipe'] : [stdin, 'pipe', 'pipe', report];
        const child = spawn(this.program, words, { cwd, signal, killSignal: 'SIGKILL', stdio });
        // Node's pipes are sockets, which can be read and written.
        if (onAsk) answer(/** @type {import('node:net').Socket} */ (child.stdio[4]), onAsk);
        let errors = '';
        child.on('error', (error) => reject(new GatekeeperError(error.message, { cause: error })));
        child.stdout?.on('data', (chunk) => onOutput?.('stdout', chunk));
        child.stderr?.on('data', (chunk) => {
          errors = (errors + chunk).slice(-4096);
          onOutput?.('stderr', chunk);
        });
        // The command may exit without reading all of its input.
        child.stdin?.on('error', () => {});
        child.stdin?.end(input);
        child.on('close', (status, by) => resolve(`status ${status ?? by}: ${errors.trim()}`));
      });
      const text = contents(report);
      if (text === '') throw new GatekeeperError(`no report, ${ended}`);
      const parsed = JSON.parse(text);
      if (parsed.schema !== 1) throw new GatekeeperError(`unsupported report schema ${parsed.schema}, expected 1`);
      return parsed;
    } finally {
      closeSync(report);
    }
  }

  /**
   * Runs a command. If it failed and something was denied, calls `ask` for the grant and, on a yes, runs it again with the grant.
   * @param {string | string[]} command
   * @param {(denial: Denial) => boolean | Promise<boolean>} ask
   * @param {How & { most?: number }} [how]
   * @returns {Promise<Report>}
   */
  async runAsking(command, ask, { most = 4, flags = [], ...how } = {}) {
    const granted = [...flags];
    for (let left = most; ; left -= 1) {
      const report = await this.run(command, { ...how, flags: granted });
      const denial = report.denials.find((each) => each.allow_with);
      const failed = report.outcome === 'exited' && report.exit_code !== 0;
      if (!failed || !denial || left === 0 || !(await ask(denial))) return report;
      granted.push(...grant(denial));
    }
  }
}

/**
 * Answers until gatekeeper ends. What throws closes the socket, and everything is denied.
 * @param {import('node:net').Socket} socket
 * @param {(question: object) => string | Promise<string>} onAsk
 */
function answer(socket, onAsk) {
  let text = '';
  socket.on('error', () => {});
  socket.setEncoding('utf8').on('data', (/** @type {string} */ chunk) => {
    const lines = (text + chunk).split('\n');
    text = lines.pop() ?? '';
    for (const question of lines.map((line) => JSON.parse(line))) {
      if (question.withdrawn) continue;
      Promise.resolve(question).then(onAsk).then(
        (decision) => socket.write(`${JSON.stringify({ id: question.id, decision })}\n`),
        () => socket.destroy(),
      );
    }
  });
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
