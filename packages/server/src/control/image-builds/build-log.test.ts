import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_BUILD_LOG_BYTES } from '@coppice/contract';
import pino from 'pino';
import { BuildLog } from './build-log.ts';
import type { NewBuildEvent } from './build-store.ts';

interface Stored {
  seq: number;
  event: NewBuildEvent;
}

const LONG_MS = 30_000;

/** A log whose events are kept here; `before` runs ahead of each statement. */
function openLog(before: () => Promise<void> = () => Promise.resolve(), closeDeadlineMs = LONG_MS) {
  const events: Stored[] = [];
  const statements: number[] = [];
  const addEvents = async (_: string, added: readonly Stored[]): Promise<void> => {
    statements.push(added.length);
    await before();
    events.push(...added);
  };
  const log = new BuildLog({
    buildId: 'build1',
    store: { addEvents },
    onEvents: () => undefined,
    log: pino({ level: 'silent' }),
    retryDelaysMs: [1, 1],
    closeDeadlineMs,
  });
  return { log, events, statements };
}

const dataOf = (events: readonly Stored[]): string =>
  events.map(({ event }) => ('data' in event ? event.data : '')).join('');

test('two streams in turn make few statements, and wait for a database that is slow', async () => {
  const gate = Promise.withResolvers<void>();
  const { log, events, statements } = openLog(() => gate.promise);
  let isWaiting = false;
  let written = 0;
  const writing = (async () => {
    for (; written < 5000; written += 1)
      await log.output(written % 2 === 0 ? 'stdout' : 'stderr', Buffer.from('x'));
  })();
  setTimeout(() => (isWaiting = written < 200), 50);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(isWaiting, true, `${written} pieces were taken while the database answered nothing`);
  gate.resolve();
  await writing;
  await log.close();
  assert.equal(dataOf(events).length, 5000);
  assert.ok(statements.length < 200, `${statements.length} statements`);
});

test('what an event costs besides its text counts for the limit of the log', async () => {
  const { log, events } = openLog();
  for (let index = 0; index < 40_000; index += 1)
    await log.output(index % 2 === 0 ? 'stdout' : 'stderr', Buffer.from('x'));
  await log.close();
  assert.ok(events.length < MAX_BUILD_LOG_BYTES / 256, `${events.length} events`);
  const last = events.at(-1)?.event;
  assert.ok(last?.type === 'note' && last.text.includes('the rest is left out'), JSON.stringify(last));
});

test('control characters count as they are stored, and large output is split between characters', async () => {
  const { log, events } = openLog();
  const text = '\u{1F600}'.repeat(50_000) + '\u0001'.repeat(2_000_000);
  await log.output('stdout', Buffer.from(text));
  await log.close();
  const stored = events.reduce((sum, { event }) => sum + JSON.stringify(event).length, 0);
  assert.ok(stored <= MAX_BUILD_LOG_BYTES + 1000, `${stored} bytes`);
  assert.ok(text.startsWith(dataOf(events)));
  for (const { event } of events)
    if ('data' in event) assert.ok(event.data.length <= 64 << 10 && event.data.isWellFormed());
});

test('events are stored after failures, and left out if the database stays away', async () => {
  let failures = 2;
  const { log, events } = openLog(() =>
    failures-- > 0 ? Promise.reject(new Error('the database is away')) : Promise.resolve(),
  );
  await log.note('kept');
  await log.close();
  assert.deepEqual(
    events.map(({ seq, event }) => [seq, event.type]),
    [[1, 'note']],
  );
  const away = openLog(() => Promise.reject(new Error('the database is away')));
  await away.log.note('lost');
  await away.log.close();
  assert.equal(away.events.length, 0);
});

test('the end does not wait for a database that does not answer', { timeout: 5000 }, async () => {
  const { log } = openLog(() => new Promise(() => undefined), 50);
  await log.note('never stored');
  await log.close();
});
