import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildCgroupStatus } from './cgroup-status.ts';

const complete = 'every VM has a group';

test('each inactive limit is named, with the problems found', () => {
  const status = buildCgroupStatus({ controllers: ['pids', 'memory'], problems: ['/top: EROFS'], complete });
  assert.deepEqual(status, {
    controllers: ['memory', 'pids'],
    reason: 'no control group that can be used has the controller of: cpu; /top: EROFS',
  });
  const none = buildCgroupStatus({ controllers: [], problems: [], complete });
  assert.match(none.reason, /of: cpu, memory, pids$/u);
});

test('if all limits are active none is reported missing', () => {
  const all = { controllers: ['cpu', 'memory', 'pids', 'cpu', 'cpuacct'] as const, complete };
  assert.deepEqual(buildCgroupStatus({ ...all, problems: [] }), {
    controllers: ['cpu', 'cpuacct', 'memory', 'pids'],
    reason: complete,
  });
});
