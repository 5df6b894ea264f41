import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ManualClock } from '../testing/manual-clock.ts';
import { RunnerPresence } from './runner-presence.ts';

test('before the first report, and on the same host, the moment is that of control', () => {
  const clock = new ManualClock();
  const presence = new RunnerPresence(clock);
  const here = { bootId: clock.bootId, bootMs: clock.monotonicMs(), wallMs: clock.wallMs() };
  assert.deepEqual(presence.now(), here);
  presence.note({ moment: { boot_id: clock.bootId, ms: here.bootMs - 5 } });
  assert.deepEqual(presence.now(), here);
});

test('the time of another host continues from its reports, the least late of which counts', () => {
  const clock = new ManualClock();
  const presence = new RunnerPresence(clock);
  const wallMs = clock.wallMs();
  presence.note({ moment: { boot_id: 'other', ms: 5_000 } });
  assert.deepEqual(presence.now(), { bootId: 'other', bootMs: 5_000, wallMs });
  clock.advance(1000);
  presence.note({ moment: { boot_id: 'other', ms: 5_900 } });
  assert.equal(presence.now().bootMs, 6_000);
  presence.note({ moment: { boot_id: 'other', ms: 6_050 } });
  assert.equal(presence.now().bootMs, 6_050);
});

test('after a boot of its host the earlier reports do not count', () => {
  const clock = new ManualClock();
  const presence = new RunnerPresence(clock);
  presence.note({ moment: { boot_id: 'first', ms: 900_000 } });
  presence.note({ moment: { boot_id: 'second', ms: 10 } });
  clock.advance(5);
  assert.deepEqual([presence.now().bootId, presence.now().bootMs], ['second', 15]);
});
