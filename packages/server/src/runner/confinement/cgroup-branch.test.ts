/**
 * Tests version 2 on a plain directory, as far as possible; e2e/confinement/cgroup-v2.test.ts uses the real file
 * system.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { openBranches, UNIT_LEAF } from './cgroup-branch.ts';
import type { Hierarchy } from './hierarchies.ts';

const NAME = 'coppice_abcd';

function makeTree(t: TestContext, controllers: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'cgroup-'));
  t.after(() => rmSync(directory, { recursive: true }));
  mkdirSync(join(directory, NAME));
  writeFileSync(join(directory, 'cgroup.controllers'), `${controllers}\n`);
  for (const each of [directory, join(directory, NAME)])
    writeFileSync(join(each, 'cgroup.subtree_control'), '');
  return directory;
}

const v2 = (mountPoint: string, ownDirectory = mountPoint): Hierarchy => ({
  version: 2,
  controllers: [],
  mountPoint,
  ownDirectory,
});

test('the useful controllers are enabled for the children and grandchildren', (t) => {
  const directory = makeTree(t, 'cpuset cpu io memory pids');
  const { branches, problems } = openBranches([v2(directory)], NAME);
  assert.deepEqual(problems, []);
  assert.deepEqual(branches, [
    { version: 2, directory: join(directory, NAME), controllers: ['cpu', 'memory', 'pids'] },
  ]);
  for (const each of [directory, join(directory, NAME)])
    assert.equal(readFileSync(join(each, 'cgroup.subtree_control'), 'utf8'), '+cpu +memory +pids');
});

test('a runner that was moved to the service group finds the tree in its old place', (t) => {
  const directory = makeTree(t, 'cpu memory pids');
  const { branches } = openBranches([v2('/elsewhere', join(directory, `${NAME}_service`))], NAME);
  assert.equal(branches[0]?.directory, join(directory, NAME));
});

test('a runner that systemd started in the subgroup of its unit creates the tree next to it and sets its own weight', (t) => {
  const directory = makeTree(t, 'cpu memory pids');
  const leaf = join(directory, UNIT_LEAF);
  mkdirSync(leaf);
  writeFileSync(join(leaf, 'cpu.weight'), '100');
  const { branches } = openBranches([v2('/elsewhere', leaf)], NAME);
  assert.equal(branches[0]?.directory, join(directory, NAME));
  assert.equal(readFileSync(join(leaf, 'cpu.weight'), 'utf8'), '400');
});

test('a unit that an older systemd started in its own group is not divided, so that it can be restarted', (t) => {
  const top = makeTree(t, 'cpu memory pids');
  const unit = join(top, 'system.slice', 'coppice.service');
  mkdirSync(unit, { recursive: true });
  writeFileSync(join(unit, 'cgroup.controllers'), 'cpu memory pids\n');
  writeFileSync(join(unit, 'cgroup.subtree_control'), '');
  const { branches } = openBranches([v2(top, unit)], NAME);
  assert.equal(branches[0]?.directory, join(top, NAME));
  assert.equal(readFileSync(join(unit, 'cgroup.subtree_control'), 'utf8'), '');
});

test('the systemd unit runs its processes in that subgroup', () => {
  const unit = new URL('../../../../../deploy/coppice.service', import.meta.url);
  assert.match(readFileSync(unit, 'utf8'), new RegExp(`^DelegateSubgroup=${UNIT_LEAF}$`, 'mu'));
});

/** A login session as on stock Debian 13: systemd gives it fewer controllers than the top of the tree has. */
function makeSession(t: TestContext, offered: string): { top: string; session: string } {
  const top = makeTree(t, 'cpuset cpu io memory pids');
  const session = join(top, 'user.slice', 'session-1.scope');
  mkdirSync(session, { recursive: true });
  writeFileSync(join(session, 'cgroup.controllers'), `${offered}\n`);
  // Simulates a group that the kernel does not let the runner divide.
  mkdirSync(join(session, 'cgroup.subtree_control'));
  return { top, session };
}

for (const offered of ['memory pids', '']) {
  test(`at the top of the tree the controllers of the top are used, if the session has "${offered}"`, (t) => {
    const { top, session } = makeSession(t, offered);
    const { branches, problems } = openBranches([v2(top, session)], NAME);
    assert.deepEqual(problems, []);
    assert.deepEqual(branches, [
      { version: 2, directory: join(top, NAME), controllers: ['cpu', 'memory', 'pids'] },
    ]);
    assert.equal(readFileSync(join(top, NAME, 'cgroup.subtree_control'), 'utf8'), '+cpu +memory +pids');
    assert.equal(existsSync(join(session, NAME)), false);
  });
}

test('if neither the own group nor the top can be divided, both are named with their reasons', (t) => {
  const { top, session } = makeSession(t, 'memory pids');
  rmSync(join(top, 'cgroup.subtree_control'));
  const { branches, problems } = openBranches([v2(top, session)], NAME);
  assert.deepEqual(branches, []);
  assert.equal(problems.length, 1);
  assert.match(problems[0] ?? '', new RegExp(`^${session}: EISDIR.*; ${top}: ENOENT`, 'u'));
});

test('the empty version 2 hierarchy of a hybrid host is not used and is not a problem', (t) => {
  const directory = makeTree(t, 'hugetlb');
  assert.deepEqual(openBranches([v2(directory)], NAME), { branches: [], problems: [] });
});

test('a hierarchy that cannot be written is named and does not affect the others', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'cgroup-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'file');
  writeFileSync(file, '');
  const v1 = (ownDirectory: string, controllers: Hierarchy['controllers']): Hierarchy => ({
    version: 1,
    controllers,
    mountPoint: directory,
    ownDirectory,
  });
  const { branches, problems } = openBranches([v1(file, ['memory']), v1(directory, ['pids'])], NAME);
  assert.deepEqual(
    branches.flatMap((branch) => branch.controllers),
    ['pids'],
  );
  assert.ok(existsSync(join(directory, NAME)));
  assert.equal(problems.length, 1);
  assert.ok(problems[0]?.startsWith(`${file}: `));
});
