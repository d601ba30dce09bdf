// Command lines of gatekeeper from the arguments of a call.

import { accessSync, constants } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { GatekeeperError } from './errors.js';

/** @typedef {string | readonly string[]} Command a line for sh, or words */

/**
 * What holds for every run.
 * @typedef {object} Settings
 * @property {string | readonly string[]} [profile] minimal (the default), read, write, network, or several
 * @property {string} [net] none, own, loopback, full or hosts=...
 * @property {readonly string[]} [flags] flags of `gatekeeper run`
 * @property {string} [program] the gatekeeper program; default: that of the variable GATEKEEPER, else the carried one, else that on PATH
 */

/**
 * What holds for one run.
 * @typedef {object} How
 * @property {readonly string[]} [flags] more flags of `gatekeeper run`
 * @property {number} [timeout] in milliseconds
 * @property {string | Uint8Array} [input]
 * @property {string} [cwd]
 * @property {Readonly<Record<string, string>>} [env] variables for the command
 * @property {string} [stage] keep changes in the stage of this name
 * @property {AbortSignal} [signal] ends the command and everything it started
 */

/** @returns {string} */
function carried() {
  const machine = process.arch;
  const file = fileURLToPath(new URL(`../bin/linux-${machine}/gatekeeper`, import.meta.url));
  try {
    accessSync(file, constants.X_OK);
    return file;
  } catch {
    return 'gatekeeper';
  }
}

/**
 * @param {string} [named]
 * @returns {string}
 */
export function findProgram(named) {
  return named || process.env.GATEKEEPER || carried();
}

/**
 * @param {Settings} settings
 * @returns {string[]}
 */
export function policyFlags({ profile = [], net, flags = [] }) {
  const words = (typeof profile === 'string' ? [profile] : profile).flatMap((each) => ['--profile', each]);
  if (net !== undefined) words.push(`--net=${net}`);
  return [...words, ...flags];
}

/**
 * @param {How} how
 * @param {readonly string[]} settings
 * @returns {string[]}
 */
export function runFlags({ timeout, cwd, stage, flags = [] }, settings) {
  const words = [];
  if (cwd !== undefined) words.push(`--cwd=${cwd}`);
  if (stage !== undefined) words.push(`--stage=${stage}`);
  if (timeout !== undefined) {
    if (!(timeout > 0)) throw new GatekeeperError('timeout: more than 0 milliseconds are needed');
    words.push('--timeout', `${Math.max(1, Math.round(timeout))}ms`);
  }
  return [...words, ...settings, ...flags];
}

/**
 * @param {Command} command
 * @returns {string[]}
 */
export function commandWords(command) {
  // In one word, so that a line that begins with a dash is no flag.
  if (typeof command === 'string') return [`-c=${command}`];
  if (command.length === 0) throw new GatekeeperError('command: it has no words');
  return ['--', ...command];
}

/**
 * What `--env-fd` reads. Not flags, because every user can read the command line of a process; and not gatekeeper's own environment,
 * because gatekeeper finds the caller's credentials by it.
 * @param {Readonly<Record<string, string>>} given
 * @returns {string}
 */
export function variables(given) {
  let text = '';
  for (const [name, value] of Object.entries(given)) {
    if (name === '' || /[=\0]/.test(name) || value.includes('\0')) {
      throw new GatekeeperError(`env: ${JSON.stringify(name)} is no name of a variable, or its value has a NUL`);
    }
    if (!isUnicode(name) || !isUnicode(value)) {
      throw new GatekeeperError(`env: ${JSON.stringify(name)} or its value is no Unicode text`);
    }
    text += `${name}=${value}\0`;
  }
  return text;
}

/**
 * Whether a text has no lone surrogate. Node would write U+FFFD in its place.
 * @param {string} text
 */
export function isUnicode(text) {
  return !/\p{Surrogate}/u.test(text);
}
