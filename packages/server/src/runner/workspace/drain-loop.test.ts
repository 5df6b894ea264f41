import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import type { Attachment } from './attachment.ts';
import { DrainLoop } from './drain-loop.ts';

const WAIT = { timeoutMs: 10_000, intervalMs: 10 };

class FakeAttachment {
  unit = 'u0000000000000000';
  hasGuest = true;
  isReplacement = false;
  dirtyBytes = 0;
  topBytes = 0;
  mustDrain = true;
  sealedCount = 1;
  highestSealed = 0;
  heldFor: string | undefined;
  waitsFor: string | null = null;
  readonly drain = Promise.withResolvers<undefined>();
  compactions = 0;

  async compact(): Promise<string> {
    this.compactions += 1;
    throw new Error('the store is away');
  }

  drainThrough(): Promise<undefined> {
    return this.drain.promise;
  }

  async server(): Promise<unknown> {
    return { store_ok_ms: 9000, store_error_ms: 10, store_error: 'the store is away' };
  }

  isHeldFor(reason: string): boolean {
    return this.heldFor === reason;
  }

  async hold(reason: string): Promise<void> {
    this.heldFor = reason;
  }

  async goOn(): Promise<void> {
    this.heldFor = undefined;
  }
}

function begin(context: TestContext): FakeAttachment {
  const attachment = new FakeAttachment();
  const loop = new DrainLoop({
    attachment: attachment as unknown as Attachment,
    maxDirtyBytes: 100,
    firstCompactMs: 20,
    compactions: new SerialQueue(),
    onReleased: () => undefined,
    log: pino({ level: 'silent' }),
  });
  context.after(() => {
    loop.close();
    attachment.drain.resolve(undefined);
  });
  return attachment;
}

test('a guest that exceeds the bound is held while a drain is in progress, and continues below half of it', async (t) => {
  const attachment = begin(t);
  attachment.dirtyBytes = 101;
  await pollUntil({ step: 'the hold', ...WAIT }, () => attachment.heldFor);
  attachment.dirtyBytes = 49;
  await pollUntil({ step: 'the end of the hold', ...WAIT }, () =>
    attachment.heldFor === undefined ? true : undefined,
  );
});

test('a drain that takes long says what it waits for, and nothing when it proceeds', async (t) => {
  const attachment = begin(t);
  await pollUntil({ step: 'the reason', ...WAIT }, () => attachment.waitsFor ?? undefined);
  assert.equal(attachment.waitsFor, 'the store is away');
  attachment.mustDrain = false;
  attachment.drain.resolve(undefined);
  await pollUntil({ step: 'the end of the reason', ...WAIT }, () =>
    attachment.waitsFor === null ? true : undefined,
  );
});

test('a disk is compacted while nothing waits to be drained, and a failure is not one of the drains', async (t) => {
  const attachment = begin(t);
  await pollUntil({ step: 'the reason', ...WAIT }, () => attachment.waitsFor ?? undefined);
  assert.equal(attachment.compactions, 0);
  attachment.mustDrain = false;
  attachment.drain.resolve(undefined);
  await pollUntil({ step: 'the compaction', ...WAIT }, () => (attachment.compactions > 0 ? true : undefined));
  assert.equal(attachment.waitsFor, null);
  assert.equal(attachment.compactions, 1);
});
