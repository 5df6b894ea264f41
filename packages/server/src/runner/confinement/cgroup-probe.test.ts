import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { probeCgroups } from './cgroup-probe.ts';
import type { Hierarchy } from './hierarchies.ts';

/** A process that does not belong to the service. */
const FOREIGN_PID = 1;

test('a missing limit is named and an active one is not', () => {
  const { controllers, reason } = probeCgroups();
  for (const each of ['cpu', 'memory', 'pids'])
    assert.notEqual(controllers.includes(each), reason.split(/\W+/u).includes(each), reason);
});

function makeGroup(directory: string, offered: string, pids: readonly number[]): void {
  mkdirSync(directory);
  writeFileSync(join(directory, 'cgroup.controllers'), `${offered}\n`);
  writeFileSync(join(directory, 'cgroup.subtree_control'), '\n');
  writeFileSync(join(directory, 'cgroup.procs'), pids.map((pid) => `${pid}\n`).join(''));
}

function makeHierarchy(t: TestContext, sessionPids: readonly number[]): Hierarchy {
  const parent = mkdtempSync(join(tmpdir(), 'cgroup-'));
  t.after(() => rmSync(parent, { recursive: true }));
  const mountPoint = join(parent, 'top');
  const ownDirectory = join(mountPoint, 'session');
  makeGroup(mountPoint, 'cpuset cpu io memory pids', [FOREIGN_PID]);
  makeGroup(ownDirectory, 'memory pids', sessionPids);
  return { version: 2, controllers: [], mountPoint, ownDirectory };
}

test('in a shared session the top of the tree is used, where the groups would be created', (t) => {
  const hierarchy = makeHierarchy(t, [FOREIGN_PID]);
  assert.deepEqual(probeCgroups([hierarchy]).controllers, ['cpu', 'memory', 'pids']);
});

test('in a group of the service alone its own controllers are used, and the missing one is named', (t) => {
  const status = probeCgroups([makeHierarchy(t, [process.pid])]);
  assert.deepEqual(status.controllers, ['memory', 'pids']);
  assert.match(status.reason, /has the controller of: cpu$/u);
});

test('if no group can be divided, each is named', (t) => {
  const hierarchy = makeHierarchy(t, [FOREIGN_PID]);
  rmSync(join(hierarchy.mountPoint, 'cgroup.subtree_control'));
  const { controllers, reason } = probeCgroups([hierarchy]);
  assert.deepEqual(controllers, []);
  assert.match(reason, /session: is shared with other processes; .*top\/cgroup\.subtree_control/u);
});
