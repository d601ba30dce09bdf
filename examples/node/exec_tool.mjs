#!/usr/bin/env node
// An exec tool: exec_tool.mjs [--yes] [--timeout SECONDS] LINE
// Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the
// line again; without a terminal it grants only with --yes. The variable GATEKEEPER names the gatekeeper program.

import { createInterface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import { Gatekeeper } from './gatekeeper.mjs';

const { values, positionals } = parseArgs({
  options: { yes: { type: 'boolean' }, timeout: { type: 'string' } },
  allowPositionals: true,
});

/** @param {import('./gatekeeper.mjs').Denial} denial */
const ask = async (denial) => {
  console.log(`denied; to be granted: ${denial.allow_with}`);
  if (values.yes || !process.stdin.isTTY) return values.yes === true;
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await terminal.question('grant it, and run the line again? [y/N] ');
  terminal.close();
  return /^y(es)?$/i.test(answer.trim());
};

/** @type {import('./gatekeeper.mjs').How['onOutput']} */
const onOutput = (stream, chunk) => {
  if (stream === 'stderr') process.stderr.write(chunk);
  else process.stdout.write(chunk.toString().replace(/^(?=.)/gm, '| '));
};

const timeout = Number(values.timeout ?? 60) * 1000;
const report = await new Gatekeeper().runAsking(positionals.join(' '), ask, { timeout, onOutput });
console.log(report.outcome, report.exit_code);
process.exitCode = report.exit_code;
