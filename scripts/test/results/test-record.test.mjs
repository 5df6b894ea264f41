import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { runLive } from '../jobs/live-command.mjs';
import { runNodeTests } from '../jobs/node-tests.mjs';
import { summarizeRecord } from './test-record.mjs';

const BATCH = fileURLToPath(new URL('../jobs/batch.mjs', import.meta.url));
const REPORTER = fileURLToPath(new URL('event-reporter.mjs', import.meta.url));
/** Long enough for Node.js to start on a busy machine. */
const HANG_TIMEOUT_MS = 6_000;
const RUN_TIMEOUT_MS = 60_000;
const KILL_LIMIT_MS = 5_000;

/**
 * Waits until a process has ended. It may stay as a zombie where no init process reaps orphans.
 * @param {number} pid
 */
async function waitForEnd(pid) {
  const end = performance.now() + KILL_LIMIT_MS;
  const isAlive = () =>
    existsSync(`/proc/${pid}/stat`) && !/\) Z /u.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  while (isAlive()) {
    assert.ok(performance.now() < end, 'the process that the hanging test started is still alive');
    await delay(20);
  }
}

describe('the record of a test run', () => {
  /** @type {string} */
  let directory;
  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'coppice-test-record-'));
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  /** @param {string} name @param {string} body */
  const write = (name, body) => {
    const path = join(directory, name);
    writeFileSync(path, `import { before, describe, it, test } from 'node:test';\n${body}`);
    return path;
  };
  /** @param {string[]} files @param {number} timeoutMs */
  const runFiles = async (files, timeoutMs) => {
    const record = join(directory, 'record');
    const reporter = [`--test-reporter=${REPORTER}`, `--test-reporter-destination=${record}`];
    const { expired } = await runLive(
      process.execPath,
      ['--test', '--test-concurrency=1', ...reporter, ...files],
      {
        timeoutMs,
        // In a process that a test runner started, Node's runner does nothing.
        env: { NODE_TEST_CONTEXT: undefined },
        killGraceMs: 1000,
      },
    );
    return { expired, ...summarizeRecord(readFileSync(record, 'utf8'), files) };
  };

  it('counts tests, not the suites around them, and names each failure with its place', async () => {
    const file = write(
      'mixed.test.mjs',
      `describe('s', () => { it('good', () => {}); it('bad', () => { throw new Error('no!'); }); });
       test('skipped', { skip: true }, () => {});
       describe('hook', () => { before(() => { throw new Error('no'); }); it('never', () => {}); });`,
    );
    const { counts, unfinished } = await runFiles([file], RUN_TIMEOUT_MS);
    assert.deepEqual([counts.passed, counts.skipped], [1, 1]);
    assert.match(counts.failures.join('\n'), /^bad \(.*mixed\.test\.mjs:2\)$/mu);
    assert.match(counts.failures.join('\n'), /^Error: no!$/mu);
    assert.match(counts.failures.join('\n'), /^hook \(/mu);
    assert.deepEqual(unfinished, []);
  });

  it('prints the reason of a failure when the test fails', async () => {
    const file = write('fails.test.mjs', `test('bad', () => { throw new Error('no!'); });`);
    /** @type {string[]} */
    const lines = [];
    await runNodeTests({
      node: process.execPath,
      files: [file],
      timeoutMs: RUN_TIMEOUT_MS,
      env: { NODE_TEST_CONTEXT: undefined },
      onLine: (line) => lines.push(line),
    });
    assert.deepEqual(lines.slice(lines.indexOf('!!! bad')).slice(0, 2), ['!!! bad', '    Error: no!']);
  });

  it('files in one process have their own hooks, and a file that does not load is one failure with its name', async () => {
    const hooked = (/** @type {string} */ name) =>
      write(
        `${name}.test.mjs`,
        `import assert from 'node:assert/strict';
         let count = 0;
         before(() => (count += 1));
         test('${name}', () => assert.equal(count, 1));`,
      );
    const files = [hooked('first'), write('dies.test.mjs', `throw new Error('no');`), hooked('second')];
    const { counts, times } = await runNodeTests({
      node: process.execPath,
      files,
      entry: BATCH,
      args: ['--test-isolation=none'],
      timeoutMs: RUN_TIMEOUT_MS,
      env: { NODE_TEST_CONTEXT: undefined, COPPICE_TEST_FILES: JSON.stringify(files) },
      onLine: () => undefined,
    });
    assert.deepEqual([counts.passed, counts.failed], [2, 1]);
    assert.match(counts.failures[0] ?? '', /dies\.test\.mjs[^]*Error: no/u);
    assert.equal([...(times?.keys() ?? [])].filter((path) => /first|second/u.test(path)).length, 2);
  });

  it('a file that crashes is one failure with its name', async () => {
    const file = write('dies.test.mjs', `throw new Error('no');`);
    const { counts } = await runFiles([file], RUN_TIMEOUT_MS);
    assert.equal(counts.failed, 1);
    assert.match(counts.failures[0] ?? '', /dies\.test\.mjs/u);
  });

  it('the record of a killed run shows which tests passed, which hung and which never began', async () => {
    const pidFile = join(directory, 'pid');
    const hangs = write(
      'a-hangs.test.mjs',
      `import { spawn } from 'node:child_process';
       process.on('SIGTERM', () => {});
       test('quick', () => {});
       test('hangs', () => new Promise(() => {
         spawn('sh', ['-c', 'trap "" TERM; echo $$ > ${pidFile}; while :; do sleep 1; done']);
       }));`,
    );
    const later = write('b-later.test.mjs', `test('later', () => {});`);
    const { expired, counts, unfinished } = await runFiles([hangs, later], HANG_TIMEOUT_MS);
    assert.equal(expired, true);
    assert.equal(counts.passed, 1);
    assert.match(unfinished.join('\n'), /a-hangs\.test\.mjs: hangs$/mu);
    assert.match(unfinished.join('\n'), /b-later\.test\.mjs: not begun$/mu);
    await waitForEnd(Number(readFileSync(pidFile, 'utf8')));
  });

  it('an incomplete last line of a killed run does not count', () => {
    const { counts } = summarizeRecord('{"kind":"pass","name":"a","file":"/a"}\n{"kind":"pa', ['/a']);
    assert.equal(counts.passed, 1);
  });
});
