// The report of a run, and what it consists of.

import * as errors from './errors.js';

/**
 * @typedef {object} Denial
 * @property {string} layer
 * @property {string} syscall
 * @property {string} rule
 * @property {string | null} path
 * @property {string | null} host
 * @property {number} count
 * @property {string | null} allow_with flags for another run, quoted for a shell; {@link grant} splits them
 */

/**
 * @typedef {object} Layer
 * @property {string} layer
 * @property {'enforced' | 'partial' | 'unavailable' | 'off'} status
 * @property {string} detail
 */

/**
 * The document as gatekeeper wrote it; `gatekeeper schema report` describes every field.
 * @typedef {object} Report
 * @property {1} schema
 * @property {'exited' | 'signaled' | 'timeout' | 'limit' | 'refused' | 'setup_failed' | 'not_found'} outcome
 * @property {number} exit_code
 * @property {number | null} signal
 * @property {number} duration_ms
 * @property {string[]} command
 * @property {string} [error]
 * @property {Denial[]} denials
 * @property {Layer[]} layers
 * @property {string} [stdout] the captured output, its beginning and its end; absent if it was streamed
 * @property {string} [stderr]
 * @property {string} [stdout_base64] the same bytes, if they are no UTF-8
 * @property {string} [stderr_base64]
 * @property {{ name: string, changes: number, means: 'overlay' | 'copy' }} [stage]
 * @property {(Question & { decision: Decision, because: string })[]} [asked]
 */

/** @typedef {'once' | 'run' | 'deny'} Decision */

/**
 * A refused call that waits for a decision. Its texts come from the confined program: escape them before you print them.
 * @typedef {object} Question
 * @property {number} id
 * @property {'path' | 'host' | 'socket'} kind
 * @property {'read' | 'write' | 'connect'} access
 * @property {string} syscall
 * @property {string | null} path
 * @property {string | null} host
 * @property {string} comm
 * @property {number} pid
 * @property {string[]} argv
 * @property {string | null} allow_with
 * @property {string} rule
 */

/**
 * One change that waits in a stage.
 * @typedef {object} Change
 * @property {string} path
 * @property {'added' | 'modified' | 'deleted' | 'mode' | 'type'} change
 * @property {'file' | 'dir' | 'symlink'} kind
 * @property {number | null} size
 * @property {string | null} sha256
 */

/** @typedef {{ stream: 'stdout' | 'stderr', data: Buffer }} Output */

const FAILURES = {
  exited: errors.CommandFailed,
  signaled: errors.CommandKilled,
  timeout: errors.TimedOut,
  limit: errors.LimitReached,
  refused: errors.Refused,
  setup_failed: errors.SetupFailed,
  not_found: errors.CommandNotFound,
};

/**
 * Whether the command exited with 0.
 * @param {Report} report
 * @returns {boolean}
 */
export function ok(report) {
  return report.outcome === 'exited' && report.exit_code === 0;
}

/**
 * Returns the report of a command that exited with 0, and throws the RunFailed of its outcome otherwise.
 * @param {Report} report
 * @returns {Report}
 */
export function check(report) {
  if (ok(report)) return report;
  throw new (FAILURES[report.outcome] ?? errors.RunFailed)(report);
}

/**
 * Splits the grant of a denial into words for `flags`; none if no flag would allow it. The confined command may have chosen a path in it,
 * so never paste it into a shell line.
 * @param {{ allow_with: string | null }} denial
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
  if (end !== line.length) throw new errors.GatekeeperError(`not a grant: ${line}`);
  return words;
}

/**
 * @param {string} text
 * @returns {Report}
 */
export function parse(text) {
  let report;
  try {
    report = JSON.parse(text);
  } catch (cause) {
    throw new errors.NoReport('the report is not JSON', { cause });
  }
  return checked(report);
}

/**
 * @param {any} report
 * @returns {Report}
 */
export function checked(report) {
  if (report?.schema !== 1) throw new errors.NoReport(`unsupported report schema ${report?.schema}, expected 1`);
  return report;
}

/**
 * The bytes of a captured stream.
 * @param {any} from a report, or an answer of the server
 * @param {'stdout' | 'stderr'} name
 * @returns {Buffer}
 */
export function bytes(from, name) {
  const exact = from[`${name}_base64`];
  return typeof exact === 'string' ? Buffer.from(exact, 'base64') : Buffer.from(from[name] ?? '');
}
