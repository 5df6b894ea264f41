import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommandInfo } from '../../../../../sdk/src/index.ts';
import { describeCommand, durationOf, explainExit } from './command-text.ts';
import { EMPTY_FORM, readStart } from './start-form.ts';

function info(part: Partial<CommandInfo>): CommandInfo {
  return {
    state: 'exited',
    exitCode: 0,
    timedOut: false,
    startedAt: '2026-11-27T12:00:00.000Z',
    endedAt: '2026-11-27T12:00:05.000Z',
    ...part,
  } as CommandInfo;
}

test('fields that are left empty are left to the service', () => {
  assert.deepEqual(readStart(EMPTY_FORM), { options: {}, errors: {} });
});

test('a form becomes the options of the start', () => {
  const form = {
    ...EMPTY_FORM,
    tag: ' build ',
    cwd: '/srv',
    user: '1000:1000',
    timeout: '1h 30m',
    env: 'A=1\nB=x=y',
    isInteractive: true,
  };
  assert.deepEqual(readStart(form).options, {
    tag: 'build',
    cwd: '/srv',
    user: '1000:1000',
    timeout: 5400,
    env: { A: '1', B: 'x=y' },
    stdin: true,
  });
});

test('texts that cannot be read are errors of their fields', () => {
  const { errors } = readStart({ ...EMPTY_FORM, timeout: 'soon', env: '=1' });
  assert.deepEqual(Object.keys(errors), ['timeout', 'env']);
});

test('the state of a command says how it ended', () => {
  assert.deepEqual(describeCommand(info({})), { text: 'exited 0', tone: 'good' });
  assert.deepEqual(describeCommand(info({ exitCode: 2 })), { text: 'exited 2', tone: 'bad' });
  assert.equal(describeCommand(info({ exitCode: 124, timedOut: true })).text, 'timed out');
  assert.equal(describeCommand(info({ state: 'lost', exitCode: null })).tone, 'warn');
  assert.equal(explainExit(info({ exitCode: 137 })), 'Signal 9 ended it.');
  assert.equal(explainExit(info({ exitCode: 255 })), undefined);
});

test('the duration of a running command grows, and that of a lost one may be unknown', () => {
  const start = Date.parse('2026-11-27T12:00:00.000Z');
  assert.equal(durationOf(info({}), start + 9e6), 5000);
  assert.equal(durationOf(info({ state: 'running', endedAt: null }), start + 7000), 7000);
  assert.equal(durationOf(info({ state: 'lost', endedAt: null }), start + 7000), undefined);
});
