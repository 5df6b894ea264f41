/** Answers to callers when the runner is too late: they say whether the request can be repeated safely. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import pino from 'pino';
import type { AuditLog } from '../audit/audit-log.ts';
import { AuditedProcess, commandNotes } from '../audit/audited-process.ts';
import { startHarness } from '../testing/control-harness.ts';

test('a command whose resume is too late is answered as not begun, a late resume request as unknown', async () => {
  await using slow = await startHarness({ captureDeadlineMs: 1_000 });
  const { id } = await slow.create({ timeout: 0, auto_hibernate: true });
  const call = (what: string, body: object = {}) => slow.call('POST', `/v1/runs/${id}/${what}`, { body });
  await call('hibernate');
  const gate = Promise.withResolvers<void>();
  slow.runner.captures.onRestore = () => gate.promise;
  const used = await call('exec', { command: 'true' });
  assert.deepEqual([used.status, used.headers.get('retry-after')], [503, '2']);
  const resumed = await call('resume');
  assert.deepEqual([resumed.status, resumed.headers.get('retry-after')], [504, null]);
  assert.equal(resumed.body.error.code, 'outcome_unknown');
  gate.resolve();
  await slow.waitForRecord(id, ({ status }) => status === 'running');
});

test('a hibernation past its deadline has an unknown outcome, and is committed if it was done', async () => {
  await using slow = await startHarness({ captureDeadlineMs: 1_000 });
  const { id } = await slow.create({ timeout: 0 });
  const gate = Promise.withResolvers<void>();
  slow.runner.captures.onHibernate = () => gate.promise;
  const answer = await slow.call('POST', `/v1/runs/${id}/hibernate`);
  assert.deepEqual([answer.status, answer.body.error.code], [504, 'outcome_unknown']);
  gate.resolve();
  await slow.waitForRecord(id, ({ status }) => status === 'hibernated');
});

test('a snapshot and a create past their deadlines are undone: they can be requested again', async () => {
  await using slow = await startHarness({ captureDeadlineMs: 1_000, createDeadlineMs: 1_000 });
  const { id } = await slow.create({ timeout: 0 });
  const gate = Promise.withResolvers<void>();
  slow.runner.captures.onSnapshot = slow.runner.onCreate = () => gate.promise;
  for (const path of [`/v1/runs/${id}/snapshot`, '/v1/runs']) {
    const body = path === '/v1/runs' ? { image: 'node:22-slim' } : {};
    const answer = await slow.call('POST', path, { body });
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '2'], path);
  }
  assert.deepEqual((await slow.call('GET', '/v1/snapshots')).body, []);
  const runs = (await slow.call('GET', '/v1/runs')).body as { id: string }[];
  assert.deepEqual(
    runs.map((run) => run.id),
    [id],
  );
  gate.resolve();
});

test('a command that was killed because its audit entry could not be written has an unknown outcome', async () => {
  for (const [refusal, told] of [
    ['unavailable', 'outcome_unknown'],
    ['secret_unreadable', 'secret_unreadable'],
  ] as const) {
    const audit = {
      processes: { add: () => () => undefined },
      append: async () => Promise.reject(new AppError(refusal, 'the audit log cannot be written')),
    } as unknown as AuditLog;
    const process = AuditedProcess.begin(
      { audit, id: 'run1', log: pino({ level: 'silent' }) },
      commandNotes('x'),
    );
    let isKilled = false;
    const started = process.opened(async () => ({ kill: () => void (isKilled = true) }));
    await assert.rejects(started, { code: told });
    assert.ok(isKilled);
  }
});
