#!/usr/bin/env node
// An exec tool: exec_tool.mjs [--yes] [--timeout SECONDS] [--ask] [--stage NAME] LINE
// Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the line again;
// without a terminal it grants only with --yes. With --ask, a refused call waits for the answer instead, and the line runs once.
// With --stage, changes of the working directory wait in a stage: they are shown, and applied after a yes.
// Needs the package gatekeeper-sandbox (bindings/node). The variable GATEKEEPER names another gatekeeper program.

import { createInterface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import { Gatekeeper } from 'gatekeeper-sandbox';

const { values, positionals } = parseArgs({
  options: { yes: { type: 'boolean' }, timeout: { type: 'string' }, ask: { type: 'boolean' }, stage: { type: 'string' } },
  allowPositionals: true,
});

/** @param {string} prompt */
const agreed = async (prompt) => {
  if (values.yes || !process.stdin.isTTY) return values.yes === true;
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await terminal.question(`${prompt} [y/N] `);
  terminal.close();
  return /^y(es)?$/i.test(answer.trim());
};

/** @param {import('gatekeeper-sandbox').Denial} denial */
const grant = (denial) => {
  console.log(`denied; to be granted: ${denial.allow_with}`);
  return agreed('grant it, and run the line again?');
};

/** @param {import('gatekeeper-sandbox').Question} question */
const onAsk = async (question) => {
  // The path is the program's own text: JSON escapes what a terminal would obey.
  console.log(`${JSON.stringify(question.comm)} wants to ${question.access} ${JSON.stringify(question.path ?? question.host)}`);
  return (await agreed('allow it?')) ? 'once' : 'deny';
};

/** @param {import('gatekeeper-sandbox').Output} output */
const onOutput = ({ stream, data }) => {
  if (stream === 'stderr') process.stderr.write(data);
  else process.stdout.write(data.toString().replace(/^(?=.)/gm, '| '));
};

const keeper = new Gatekeeper({ profile: values.stage ? 'write' : [] });
const timeout = Number(values.timeout ?? 60) * 1000;
const how = { timeout, onOutput, stage: values.stage };
const line = positionals.join(' ');
const report = values.ask ? await keeper.run(line, { ...how, onAsk }) : await keeper.runAsking(line, grant, how);
if (report.stage) {
  const stage = keeper.stage(report.stage.name);
  process.stdout.write(await stage.patch());
  if ((await stage.diff()).length && (await agreed('apply these changes?'))) {
    await stage.apply();
    console.log('applied');
  }
}
console.log(report.outcome, report.exit_code);
process.exitCode = report.exit_code;
