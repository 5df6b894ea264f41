/** Each fault that the checker of the fault tests looks for is found, and it finds none in a cluster that is in order. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findContradictions,
  findLeftCaptures,
  type ClusterState,
  type RunnerState,
  type SandboxState,
} from '../fixtures/machines/checker.ts';

const A: RunnerState = {
  id: 'runner-a',
  vms: [{ id: 'run-1', state: 'running' }],
  captures: [{ id: 'snap-1', kind: 'snapshot', vmId: 'run-1' }],
  processes: ['run-1'],
};
const B: RunnerState = { id: 'runner-b', vms: [], captures: [], processes: [] };
const RUNNING: SandboxState = {
  id: 'run-1',
  status: 'running',
  reason: null,
  runner: 'runner-a',
  hibernation: null,
  operation: null,
  isResuming: false,
  lastSeenAt: 1000,
};
const HIBERNATED: SandboxState = { ...RUNNING, id: 'run-2', status: 'hibernated', hibernation: 'hib-2' };
const LOST: SandboxState = { ...RUNNING, id: 'run-3', status: 'failed', reason: 'vm_lost' };
const GOOD: ClusterState = {
  runners: [A, B],
  owners: [
    { id: 'runner-a', isOwned: true },
    { id: 'runner-b', isOwned: true },
  ],
  sandboxes: [RUNNING, HIBERNATED, LOST],
  snapshots: [{ id: 'snap-1', status: 'ready', runner: 'runner-a' }],
  periods: [
    { sandbox: 'run-3', startedAt: 500, endedAt: 1000 },
    { sandbox: 'run-3', startedAt: 0, endedAt: 500 },
  ],
  stored: ['hib-2'],
  known: ['hib-2'],
  manifests: [{ capture: 'hib-2', missing: [] }],
  faults: [],
};

test('a cluster that is in order has no contradiction', () => {
  assert.deepEqual(findContradictions(GOOD), []);
  assert.deepEqual(findLeftCaptures(GOOD), []);
});

const withSandbox = (change: Partial<SandboxState>): Partial<ClusterState> => ({
  sandboxes: [{ ...RUNNING, ...change }, HIBERNATED, LOST],
});

const BREAKS: readonly [what: string, change: Partial<ClusterState>, expected: RegExp[]][] = [
  [
    'a sandbox in two rosters',
    { runners: [A, { ...B, vms: A.vms }] },
    [/by rosters at runner-a and runner-b/u, /in the roster of runner-b/u],
  ],
  [
    'a sandbox with two processes',
    { runners: [{ ...A, processes: ['run-1', 'run-1'] }, B] },
    [/its processes are at runner-a and runner-a/u],
  ],
  [
    'a sandbox at another runner',
    withSandbox({ runner: 'runner-b' }),
    [
      /run-1 runs at runner-b by SQL, by rosters at runner-a/u,
      /its processes are at runner-a/u,
      /in the roster of runner-a, and does not run there/u,
    ],
  ],
  [
    'a sandbox that runs nowhere',
    { runners: [{ ...A, vms: [], processes: [] }, B] },
    [/by rosters at none/u, /its processes are at none/u],
  ],
  [
    'a VM that SQL does not know',
    { runners: [A, { ...B, vms: [{ id: 'run-9', state: 'running' }], processes: ['run-9'] }] },
    [/run-9 is running in the roster of runner-b/u],
  ],
  [
    'a VM of an ended sandbox',
    withSandbox({ status: 'destroyed', reason: 'requested' }),
    [/run-1 is running in the roster of runner-a/u],
  ],
  [
    'a QEMU that no record names',
    { runners: [A, { ...B, processes: [undefined] }] },
    [/a QEMU of no sandbox runs at runner-b/u],
  ],
  [
    'a runner without an owner',
    {
      owners: [
        { id: 'runner-a', isOwned: false },
        { id: 'runner-b', isOwned: true },
      ],
    },
    [/no living control owns runner-a/u],
  ],
  [
    'a runner that is not in SQL',
    { owners: [{ id: 'runner-a', isOwned: true }] },
    [/SQL does not have runner-b/u],
  ],
  [
    'a create without an end',
    withSandbox({ status: 'creating' }),
    [/run-1 is creating with the operation none/u, /in the roster of runner-a/u],
  ],
  [
    'an operation without an end',
    withSandbox({ operation: 'snapshot' }),
    [/run-1 is running with the operation snapshot/u],
  ],
  [
    'a resume without an end',
    withSandbox({ isResuming: true }),
    [/run-1 is running with the operation none/u],
  ],
  [
    'an undecided hibernation',
    withSandbox({ hibernation: 'hib-1' }),
    [/its hibernation hib-1 is not decided/u],
  ],
  [
    'an end without a reason',
    { sandboxes: [RUNNING, HIBERNATED, { ...LOST, reason: null }] },
    [/run-3 is failed without a reason/u],
  ],
  [
    'half a snapshot',
    { snapshots: [{ id: 'snap-1', status: 'creating', runner: 'runner-a' }] },
    [/snap-1 is creating/u],
  ],
  ['a snapshot without files', { runners: [{ ...A, captures: [] }, B] }, [/the snapshot snap-1 is nowhere/u]],
  [
    'a hibernation without files',
    { stored: [], known: ['hib-2'] },
    [/run-2 is hibernated, and hib-2 is nowhere/u],
  ],
  ['a manifest that the bucket lacks', { manifests: [] }, [/the bucket has no manifest of it/u]],
  [
    'a chunk that the bucket lacks',
    { manifests: [{ capture: 'hib-2', missing: ['c'] }] },
    [/lacks the chunk c of hib-2/u],
  ],
  [
    'a manifest that SQL does not know',
    {
      manifests: [
        { capture: 'hib-2', missing: [] },
        { capture: 'snap-9', missing: [] },
      ],
    },
    [/a manifest of snap-9, which SQL does not know/u],
  ],
  [
    'periods that overlap',
    {
      periods: [
        { sandbox: 'run-1', startedAt: 0, endedAt: 9 },
        { sandbox: 'run-1', startedAt: 8, endedAt: 12 },
      ],
    },
    [/run-1 is billed twice/u],
  ],
  [
    'a lost sandbox billed for too long',
    { periods: [{ sandbox: 'run-3', startedAt: 0, endedAt: 1001 }] },
    [/billed for 1 ms after it was last seen/u],
  ],
  ['a fault of an audit log', { faults: ['the audit log of run-1: broken'] }, [/the audit log of run-1/u]],
];

for (const [what, change, expected] of BREAKS)
  test(`${what} is found`, () => {
    const found = findContradictions({ ...GOOD, ...change });
    assert.equal(found.length, expected.length, found.join('\n'));
    for (const [index, pattern] of expected.entries()) assert.match(found[index] ?? '', pattern);
  });

test('a capture that no record names is found', () => {
  assert.equal(findLeftCaptures({ ...GOOD, snapshots: [] }).length, 1);
  const ended = { ...HIBERNATED, status: 'destroyed', reason: 'requested' };
  const runners = [{ ...A, captures: [{ id: 'hib-2', kind: 'hibernation', vmId: 'run-2' }] }, B];
  assert.equal(findLeftCaptures({ ...GOOD, sandboxes: [RUNNING, ended, LOST], runners }).length, 1);
});
