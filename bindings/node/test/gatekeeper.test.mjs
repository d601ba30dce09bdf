// Run with `npm test`; GATEKEEPER names the program, unless the package carries one.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import * as gs from 'gatekeeper-sandbox';

const { Gatekeeper } = gs;
const top = mkdtempSync(join(tmpdir(), 'gatekeeper-node-'));
let place = top;
let count = 0;
after(() => rmSync(top, { recursive: true, force: true }));
beforeEach(() => {
  place = join(top, `${(count += 1)}`, 'work');
  mkdirSync(place, { recursive: true });
  process.chdir(place);
  // Outside the working directory: a command must not reach its own stage.
  process.env.XDG_STATE_HOME = join(top, `${count}`, 'state');
});

/** @param {string} mark */
async function eventuallyNone(mark) {
  const running = () => {
    try {
      return execFileSync('pgrep', ['-f', `sleep ${mark}`]).length > 0;
    } catch {
      return false;
    }
  };
  for (let left = 1200; running(); left -= 1) {
    assert.ok(left > 0, 'the command still runs');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test('a command is run and reported', async () => {
  const report = gs.check(await new Gatekeeper().run(['echo', 'one word', '$HOME'], { timeout: 30_000 }));
  assert.deepEqual([report.outcome, report.exit_code, report.stdout], ['exited', 0, 'one word $HOME\n']);
  const enforced = report.layers.filter((layer) => layer.status === 'enforced').map((layer) => layer.layer);
  assert.ok(enforced.includes('seccomp') && enforced.includes('landlock'));
});

test('what is denied is named with its grant', async () => {
  const keeper = new Gatekeeper();
  const report = await keeper.run(['touch', 'new']);
  assert.throws(() => gs.check(report), { name: 'CommandFailed', message: /denied: openat/ });
  assert.deepEqual(gs.grant(report.denials[0]), ['--write', place]);
  assert.equal(existsSync('new'), false);
  assert.ok(gs.ok(await keeper.runAsking(['touch', 'new'], (denial) => denial.syscall === 'openat')));
  assert.ok(existsSync('new'));
  for (const allow_with of ["--write 'open", '--write a\\b']) assert.throws(() => gs.grant({ allow_with }), gs.GatekeeperError);
  assert.deepEqual(gs.grant({ allow_with: "--write 'a'\\''b c'" }), ['--write', "a'b c"]);
});

test('input and output may be large and need not be text', async () => {
  const keeper = new Gatekeeper();
  assert.equal((await keeper.run(['wc', '-c'], { input: 'x'.repeat(300_000) })).stdout, '300000\n');
  assert.ok(gs.ok(await keeper.run(['true'], { input: 'x'.repeat(300_000) })));
  assert.deepEqual(gs.bytes(await keeper.run(['cat'], { input: Buffer.from([255, 0, 10]) }), 'stdout'), Buffer.from([255, 0, 10]));
});

test('each outcome has its exception', async () => {
  const keeper = new Gatekeeper({ profile: 'read' });
  const name = async (/** @type {Promise<gs.Report>} */ run) => {
    const report = await run;
    try {
      gs.check(report);
    } catch (error) {
      assert.ok(error instanceof gs.RunFailed && error.report === report);
      return error.name;
    }
    return 'none';
  };
  assert.equal(await name(keeper.run(['no-such-program'])), 'CommandNotFound');
  assert.equal(await name(keeper.run('kill -TERM $$')), 'CommandKilled');
  assert.equal(await name(keeper.run('sleep 60', { timeout: 200 })), 'TimedOut');
  await assert.rejects(new Gatekeeper({ profile: 'wriet' }).run(['true']), { name: 'NoReport', message: /wriet/ });
  await assert.rejects(new Gatekeeper({ program: '/nonexistent/gatekeeper' }).run(['true']), gs.ProgramMissing);
});

test('a line or a value is never a flag', async () => {
  assert.equal(gs.ok(await new Gatekeeper().run('--profile=write -c touch\\ new')), false);
  await assert.rejects(new Gatekeeper({ net: '--profile=write' }).run(['true']), gs.NoReport);
  assert.equal(existsSync('new'), false);
});

test('variables are set', async () => {
  const report = await new Gatekeeper({ profile: 'read' }).run('echo "$TOKEN-$HOME"', { env: { TOKEN: 's3cret', HOME: '/elsewhere' } });
  assert.equal(report.stdout, 's3cret-/elsewhere\n');
  const long = Object.fromEntries(['A', 'B', 'C', 'D'].map((name) => [name, 'x'.repeat(100_000)]));
  assert.equal((await new Gatekeeper({ profile: 'read' }).run('echo $D | wc -c', { env: long })).stdout, '100001\n');
  for (const env of [{ 'A=B': 'c' }, { A: 'b\0' }, { A: '\ud800' }]) {
    await assert.rejects(new Gatekeeper().run(['true'], { env }), gs.GatekeeperError);
  }
});

test('variables of the command do not change what is protected', async () => {
  const named = join(process.cwd(), 'cluster');
  writeFileSync(named, 'secret\n');
  assert.equal((await new Gatekeeper().run(['cat', named])).stdout, 'secret\n');
  process.env.KUBECONFIG = named;
  try {
    const report = await new Gatekeeper().run(['cat', named], { env: { KUBECONFIG: '/dev/null' } });
    assert.deepEqual([report.exit_code, report.stdout, report.denials[0].path], [1, '', named]);
  } finally {
    delete process.env.KUBECONFIG;
  }
});

test('a server refuses what it could not read', async () => {
  const server = new Gatekeeper().serve();
  try {
    for (const [words, how] of [[['cat', '\ud800'], {}], [['true'], { env: { A: '\udfff' } }], [['cat'], { input: 'x'.repeat(17 << 20) }]]) {
      await assert.rejects(server.run(words, how), gs.GatekeeperError);
    }
    assert.equal((await server.run(['echo', '\\ud800 \u{1f600}'])).stdout, '\\ud800 \u{1f600}\n');
  } finally {
    await server.close();
  }
});

test('output streams while the command runs', async () => {
  const run = new Gatekeeper({ profile: 'read' }).stream('echo first; until [ -e go ]; do sleep 0.02; done; echo last >&2; exit 3');
  const seen = [];
  for await (const { stream, data } of run) {
    seen.push(`${stream}: ${data}`);
    writeFileSync('go', '');
  }
  assert.deepEqual(seen, ['stdout: first\n', 'stderr: last\n']);
  assert.equal((await run.report).exit_code, 3);
});

test('leaving the loop, or the signal, ends the command', async () => {
  const keeper = new Gatekeeper({ profile: 'read' });
  const mark = `75.${process.pid}1`;
  for await (const _ of keeper.stream(`echo up; setsid sleep ${mark} & sleep ${mark}`)) break;
  await eventuallyNone(mark);
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 300);
  await assert.rejects(keeper.run(`sleep ${mark}`, { signal: stop.signal }), (error) => error.cause.name === 'AbortError');
  await eventuallyNone(mark);
});

test('a callback decides while the call waits', async () => {
  const keeper = new Gatekeeper();
  for (const decision of /** @type {const} */ (['once', 'deny'])) {
    const path = join(place, decision);
    const report = await keeper.run(['touch', path], { onAsk: async (question) => (question.path === path ? decision : 'deny') });
    assert.equal(gs.ok(report), decision === 'once');
    assert.equal(existsSync(path), decision === 'once');
    assert.equal(report.asked?.[0].decision, decision);
  }
  const path = join(place, 'other');
  await assert.rejects(keeper.run(['touch', path], { onAsk: () => { throw new RangeError('broken'); } }), RangeError);
  // @ts-expect-error: not a decision
  await assert.rejects(keeper.run(['touch', path], { onAsk: () => 'maybe' }), /maybe/);
  assert.equal(existsSync(path), false);
});

test('a callback decides for runs of the server', async () => {
  const server = new Gatekeeper().serve();
  try {
    const names = ['a', 'b', 'c', 'd'].map((name) => join(place, name));
    const reports = await Promise.all(names.map((path, number) => server.run(['touch', path], {
      onAsk: async (question) => (question.path === path && number < 3 ? 'once' : 'deny'),
    })));
    assert.deepEqual(reports.map(gs.ok), [true, true, true, false]);
    assert.deepEqual(reports.map((report) => report.asked?.[0].decision), ['once', 'once', 'once', 'deny']);
    assert.deepEqual(names.map((name) => existsSync(name)), [true, true, true, false]);
    const path = join(place, 'other');
    await assert.rejects(server.run(['touch', path], { onAsk: () => { throw new RangeError('broken'); } }), RangeError);
    // @ts-expect-error: not a decision
    await assert.rejects(server.run(['touch', path], { onAsk: () => 'maybe' }), /maybe/);
    const run = server.stream(['touch', path], { onAsk: () => 'run' });
    for await (const _ of run);
    assert.ok(gs.ok(await run.report) && existsSync(path));
    // Without a callback, nothing is asked.
    assert.equal(gs.ok(await server.run(['touch', join(place, 'last')])), false);
  } finally {
    await server.close();
  }
});

test('changes wait in a stage', async () => {
  const keeper = new Gatekeeper({ profile: 'write' });
  writeFileSync('notes', 'one\n');
  gs.check(await keeper.run('echo two >> notes; echo x > added', { stage: 's' }));
  const stage = keeper.stage('s');
  assert.deepEqual((await stage.diff()).map(({ path, change }) => [path, change]), [['added', 'added'], ['notes', 'modified']]);
  assert.match(await stage.patch(), /^\+two$/m);
  assert.equal(readFileSync('notes', 'utf8'), 'one\n');
  await stage.apply(['notes']);
  assert.equal(readFileSync('notes', 'utf8'), 'one\ntwo\n');
  gs.check(await keeper.run('echo three >> notes', { stage: 's' }));
  writeFileSync('notes', 'changed meanwhile\n');
  await assert.rejects(stage.apply(), { name: 'StageConflict', message: /notes/ });
  await stage.discard();
  await assert.rejects(stage.diff(), { name: 'StageError' });
});

test('a server runs many commands, streams and cancels', async () => {
  const server = new Gatekeeper({ profile: 'read' }).serve();
  try {
    const reports = await Promise.all(Array.from({ length: 12 }, (_, number) => server.run(['echo', `${number}`])));
    assert.deepEqual(reports.map((report) => report.stdout), Array.from({ length: 12 }, (_, number) => `${number}\n`));
    assert.equal((await server.run('cat; pwd; echo $A', { input: 'text\n', cwd: '/', env: { A: 'b' } })).stdout, 'text\n/\nb\n');
    const run = server.stream('echo first; until [ -e go ]; do sleep 0.02; done; echo last; exit 4');
    const seen = [];
    for await (const { data } of run) {
      seen.push(`${data}`);
      writeFileSync('go', '');
    }
    assert.deepEqual([seen, (await run.report).exit_code], [['first\n', 'last\n'], 4]);
    const mark = `76.${process.pid}2`;
    for await (const _ of server.stream(`echo up; sleep ${mark}`)) break;
    await eventuallyNone(mark);
    await assert.rejects(server.run(['true'], { flags: ['--profile', 'raed'] }), { name: 'NoReport', message: /raed/ });
    const stop = new AbortController();
    const aborted = server.run(['sleep', mark], { signal: stop.signal });
    stop.abort();
    await assert.rejects(aborted, (error) => error instanceof gs.GatekeeperError && error.cause.name === 'AbortError');
    await eventuallyNone(mark);
    const last = server.run(['sleep', mark]);
    await server.close();
    await assert.rejects(last, gs.ServerGone);
    await eventuallyNone(mark);
    await assert.rejects(server.run(['true']), gs.ServerGone);
  } finally {
    await server.close();
  }
});
