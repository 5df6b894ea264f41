import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readBlockTraffic } from './block-traffic.ts';
import type { QmpClient } from './qmp-client.ts';

/** A monitor that answers each command with `value`. */
function monitorOf(value: unknown): QmpClient {
  return { execute: async () => value } as unknown as QmpClient;
}

const statsOf = (rd_bytes: unknown, wr_bytes: unknown) => ({ stats: { rd_bytes, wr_bytes, flush: 1 } });

test('the bytes of all devices add up', async () => {
  const monitor = monitorOf([statsOf(1, 10), { qdev: '/x/scratch', ...statsOf(2, 20) }]);
  assert.deepEqual(await readBlockTraffic(monitor), { readBytes: 3, writtenBytes: 30 });
  assert.deepEqual(await readBlockTraffic(monitorOf([])), { readBytes: 0, writtenBytes: 0 });
});

test('an answer that an escaped guest may have made up is not believed', async () => {
  const many = Array.from({ length: 65 }, () => statsOf(1, 1));
  const answers = [
    null,
    {},
    [{}],
    [statsOf(-1, 0)],
    [statsOf(0.5, 0)],
    [statsOf('1', 0)],
    [statsOf(1e300, 0)],
    many,
  ];
  for (const answer of answers) await assert.rejects(readBlockTraffic(monitorOf(answer)));
});
