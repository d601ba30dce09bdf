#!/usr/bin/env node
// An exec tool: exec_tool.mjs [--yes] [--timeout SECONDS] LINE
// Prints what the line says as it comes, and asks before it grants what was denied. GATEKEEPER names the program.

import { parseArgs } from 'node:util';
import { Gatekeeper } from './gatekeeper.mjs';

const { values, positionals } = parseArgs({
  options: { yes: { type: 'boolean' }, timeout: { type: 'string' } },
  allowPositionals: true,
});

/** @param {import('./gatekeeper.mjs').Denial} denial */
const ask = (denial) => {
  console.log(`denied; to be granted: ${denial.allow_with}`);
  return values.yes === true;
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
