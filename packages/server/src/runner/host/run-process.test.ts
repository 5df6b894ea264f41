import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { findIdentity, isAlive } from './host-process.ts';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { ProcessError, runProcess } from './run-process.ts';
import { makeScratchDirectory } from '../image/testing/scratch-directory.ts';

const shell = (script: string) => ({ command: 'sh', args: ['-c', script], timeoutMs: 20_000 });

test('standard output is returned, standard error explains a failure', async () => {
  assert.equal((await runProcess({ ...shell('echo yes'), maxStdoutBytes: 10 })).toString(), 'yes\n');
  await assert.rejects(runProcess(shell('echo because >&2; exit 3')), (error) => {
    return (
      error instanceof ProcessError && error.stderr === 'because\n' && /exit code 3/u.test(error.message)
    );
  });
});

test('a program gets only the environment it is given', async () => {
  const output = await runProcess({ ...shell('env'), env: { GIVEN: '1' }, maxStdoutBytes: 4096 });
  const names = new Set(output.toString().match(/^\w+/gmu));
  // Variables that a shell sets by itself.
  for (const own of ['PWD', 'OLDPWD', 'SHLVL', '_']) names.delete(own);
  assert.deepEqual(names, new Set(['PATH', 'LC_ALL', 'GIVEN']));
});

test('a program with too much output or too much time is killed', async () => {
  await assert.rejects(runProcess({ ...shell('yes'), maxStdoutBytes: 1000 }), /too much output/u);
  await assert.rejects(runProcess({ ...shell('exec sleep 60'), timeoutMs: 50 }), (error) => {
    return error instanceof ProcessError && error.isTimeout;
  });
  await assert.rejects(runProcess(shell('head -c 100000 /dev/zero >&2; exit 1')), (error) => {
    return error instanceof ProcessError && error.stderr.length === 16 * 1024;
  });
});

test('an abort ends a program with its own reason', async () => {
  const controller = new AbortController();
  const running = runProcess({ ...shell('exec sleep 60'), signal: controller.signal });
  controller.abort(new Error('enough'));
  await assert.rejects(running, /enough/u);
});

test('an error of the feed is reported as it is', async () => {
  const feed = () => Promise.reject(new Error('the source broke'));
  await assert.rejects(runProcess({ ...shell('cat >/dev/null'), feed }), /the source broke/u);
});

test('a program that does not exist is an error', async () => {
  await assert.rejects(runProcess({ command: '/nonexistent', args: [], timeoutMs: 20_000 }), ProcessError);
});

test('a program does not outlive its parent, even when the parent is killed', async () => {
  await using scratch = await makeScratchDirectory();
  const pidPath = join(scratch.path, 'pid');
  const url = new URL('run-process.ts', import.meta.url).href;
  const program = { command: 'sh', args: ['-c', `echo $$ > '${pidPath}'; exec sleep 60`], timeoutMs: 60_000 };
  const script = `import { runProcess } from '${url}'; await runProcess(${JSON.stringify(program)});`;
  const parent = spawn(process.execPath, ['--input-type=module', '--eval', script], { stdio: 'ignore' });
  try {
    const poll = { timeoutMs: 10_000, intervalMs: 10 };
    const identity = await pollUntil({ ...poll, step: 'start of the program' }, async () => {
      const pid = await readFile(pidPath, 'utf8').catch(() => '');
      return pid.endsWith('\n') ? findIdentity(Number(pid)) : undefined;
    });
    assert(isAlive(identity));
    parent.kill('SIGKILL');
    await pollUntil({ ...poll, step: 'end of the program' }, () => (isAlive(identity) ? undefined : true));
  } finally {
    parent.kill('SIGKILL');
  }
});
