import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isInTime } from './guest-timer.ts';

test('a timer is in time when its rate is the true one or slightly lower', () => {
  for (const rate_hz of [62_500_000, 62_700_000, 57_000_000])
    assert.ok(isInTime({ device: 'lapic', rate_hz }), String(rate_hz));
  for (const rate_hz of [63_857_000, 91_136_000, 50_000_000, 3675, 0])
    assert.ok(!isInTime({ device: 'lapic', rate_hz }), String(rate_hz));
});

test('a timer set by the time stamp counter needs no rate; a timer that is not the processor\u2019s own is refused', () => {
  assert.ok(isInTime({ device: 'lapic-deadline', rate_hz: 1 }));
  assert.ok(!isInTime({ device: 'pit', rate_hz: 1_193_182 }));
});
