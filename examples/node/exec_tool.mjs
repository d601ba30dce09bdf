#!/usr/bin/env node
// An exec tool: exec_tool.mjs [--yes] [--timeout SECONDS] [--stage NAME] LINE
// Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the line again;
// without a terminal it grants only with --yes. With --stage, changes of the working directory wait in a stage, and are shown.
// Needs the package gatekeeper-sandbox (bindings/node). The variable GATEKEEPER names another gatekeeper program.

import { createInterface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import { Gatekeeper } from 'gatekeeper-sandbox';

const { values, positionals } = parseArgs({
  options: { yes: { type: 'boolean' }, timeout: { type: 'string' }, stage: { type: 'string' } },
  allowPositionals: true,
});

/** @param {import('gatekeeper-sandbox').Denial} denial */
const ask = async (denial) => {
  console.log(`denied; to be granted: ${denial.allow_with}`);
  if (values.yes || !process.stdin.isTTY) return values.yes === true;
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await terminal.question('grant it, and run the line again? [y/N] ');
  terminal.close();
  return /^y(es)?$/i.test(answer.trim());
};

/** @param {import('gatekeeper-sandbox').Output} output */
const onOutput = ({ stream, data }) => {
  if (stream === 'stderr') process.stderr.write(data);
  else process.stdout.write(data.toString().replace(/^(?=.)/gm, '| '));
};

const keeper = new Gatekeeper({ profile: values.stage ? 'write' : [] });
const timeout = Number(values.timeout ?? 60) * 1000;
const report = await keeper.runAsking(positionals.join(' '), ask, { timeout, onOutput, stage: values.stage });
if (report.stage) process.stdout.write(await keeper.stage(report.stage.name).patch());
console.log(report.outcome, report.exit_code);
process.exitCode = report.exit_code;
