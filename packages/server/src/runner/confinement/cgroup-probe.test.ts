import assert from 'node:assert/strict';
import { test } from 'node:test';
import { probeCgroups } from './cgroup-probe.ts';

test('what is missing is named, and nothing is said to be missing that is there', () => {
  const { controllers, reason } = probeCgroups();
  for (const each of ['cpu', 'memory', 'pids'])
    assert.notEqual(controllers.includes(each), reason.split(/\W+/u).includes(each), reason);
});
