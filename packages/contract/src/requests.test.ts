import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { z } from 'zod';
import { CreateDiskRequest, CreateDiskSnapshotRequest, ForkDiskRequest } from './disks/disks.ts';
import { ExecRequest } from './sandbox/exec.ts';
import { FilePathQuery, UploadQuery } from './sandbox/files.ts';
import { invalidRequest } from './invalid-request.ts';
import { ForkRequest } from './sandbox/forks.ts';
import { CreateSandboxRequest, ListSandboxesQuery, RestoreSandboxRequest } from './sandbox/sandbox.ts';
import { PatchSandboxRequest } from './sandbox/settings.ts';
import { CreateSnapshotRequest, ListSnapshotsQuery, RollbackRequest } from './sandbox/snapshots.ts';

function refusal(schema: z.ZodType, input: unknown, where = 'body'): string {
  const result = schema.safeParse(input);
  assert.ok(!result.success, `accepted ${JSON.stringify(input)}`);
  return invalidRequest(result.error, { where, input }).message;
}

const image = 'node:22-slim';
const REFUSED: [what: string, schema: z.ZodType, input: unknown, message: RegExp][] = [
  ['a missing body', CreateSandboxRequest, undefined, /^body: must be a JSON object/],
  ['a list as body', CreateSandboxRequest, [], /^body: must be a JSON object/],
  ['a missing image', CreateSandboxRequest, {}, /^image: is required/],
  ['an image of another type', CreateSandboxRequest, { image: 7 }, /^image: must be a string/],
  ['NUL in the image', CreateSandboxRequest, { image: 'a\0b:1' }, /^image: must not contain a NUL/],
  ['zero vcpus', CreateSandboxRequest, { image, vcpus: 0 }, /^vcpus: must be a whole number from 1 to 32$/],
  [
    'negative memory',
    CreateSandboxRequest,
    { image, mem_mib: -1 },
    /^mem_mib: .* from 128 to 262144 \(MiB\)$/,
  ],
  [
    'an absurd disk',
    CreateSandboxRequest,
    { image, disk_mib: 1e18 },
    /^disk_mib: .* from 64 to 1048576 \(MiB\)$/,
  ],
  ['a fraction', CreateSandboxRequest, { image, vcpus: 1.5 }, /^vcpus: must be a whole number/],
  ['a number as text', CreateSandboxRequest, { image, vcpus: '2' }, /^vcpus: must be a whole number/],
  ['null', CreateSandboxRequest, { image, timeout: null }, /^timeout: must be a whole number/],
  ['a misspelt field', CreateSandboxRequest, { image, vcpu: 2 }, /^vcpu: unknown field in the body/],
  [
    'a disk name in capitals',
    CreateSandboxRequest,
    { image, disk: 'Data' },
    /^disk: must be 1 to 30 lower-case/,
  ],
  [
    'a fork of a disk without a snapshot',
    CreateSandboxRequest,
    { image, fork_from_disk: 'data' },
    /^disk_snapshot: is required, names the snapshot that is forked$/,
  ],
  [
    'a snapshot of a disk without the disk',
    CreateSandboxRequest,
    { image, disk_snapshot: 'v1' },
    /^fork_from_disk: is required, names the disk of disk_snapshot$/,
  ],
  [
    'too few names of disks',
    ForkRequest,
    { count: 2, disks: ['a'] },
    /^disks: must have one name for each child$/,
  ],
  ['a disk without a size', CreateDiskRequest, { name: 'data' }, /^size_gb: is required, .* from 1 to 16384/],
  [
    'a disk of half a GB',
    CreateDiskRequest,
    { name: 'data', size_gb: 0.5 },
    /^size_gb: must be a whole number/,
  ],
  ['an empty disk', CreateDiskRequest, { name: 'data', size_gb: 0 }, /^size_gb: must be a whole number/],
  ['a name of 31 letters', CreateDiskRequest, { name: 'a'.repeat(31), size_gb: 1 }, /^name: must be 1 to 30/],
  ['an empty name', CreateDiskRequest, { name: '', size_gb: 1 }, /^name: must be 1 to 30/],
  [
    'a name that begins like an option',
    CreateDiskRequest,
    { name: '-a', size_gb: 1 },
    /^name: .* begin with/,
  ],
  [
    'another durability',
    CreateDiskRequest,
    { name: 'a', size_gb: 1, durability: 'x' },
    /^durability: must be local/,
  ],
  ['a snapshot without a name', CreateDiskSnapshotRequest, {}, /^name: is required/],
  ['a fork without a snapshot', ForkDiskRequest, { name: 'copy' }, /^snapshot: is required/],
  ['a lifetime of 0', CreateSandboxRequest, { image, max_lifetime: 0 }, /^max_lifetime: .* from 1 /],
  [
    'a bad label name',
    CreateSandboxRequest,
    { image, labels: { 'a b': 'x' } },
    /^labels\.a b: a label name is/,
  ],
  [
    'a label that is not text',
    CreateSandboxRequest,
    { image, labels: { a: 1 } },
    /^labels\.a: must be a string/,
  ],
  [
    'NUL in a label',
    CreateSandboxRequest,
    { image, labels: { a: '\0' } },
    /^labels\.a: must not contain a NUL/,
  ],
  [
    'a lone surrogate',
    CreateSandboxRequest,
    { image, labels: { a: '\ud800' } },
    /^labels\.a: must be valid Unicode/,
  ],
  [
    'too many labels',
    PatchSandboxRequest,
    { labels: Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`l${index}`, ''])) },
    /^labels: must have at most 32 entries$/,
  ],
  ['a number as the name', PatchSandboxRequest, { name: 7 }, /^name: must be a string/],
  ['a lifetime of half a second', PatchSandboxRequest, { max_lifetime: 0.5 }, /^max_lifetime: .* from 0 /],
  ['an image', PatchSandboxRequest, { image }, /^image: unknown field in the body/],
  ['a negative timeout', PatchSandboxRequest, { timeout: -1 }, /^timeout: .* 0 disables/],
  [
    '"yes" for a flag',
    CreateSandboxRequest,
    { image, auto_hibernate: 'yes' },
    /^auto_hibernate: must be true or false/,
  ],
  [
    'a fork of no children',
    ForkRequest,
    { count: 0 },
    /^count: must be a whole number from 1 to 100 \(children\)$/,
  ],
  ['too large a fork', ForkRequest, { count: 101 }, /^count: .* from 1 to 100/],
  ['an empty name', CreateSnapshotRequest, { name: '' }, /^name: must not be empty/],
  ['a restore without a snapshot', RestoreSandboxRequest, {}, /^snapshot_id: is required/],
  [
    'an image in a restore',
    RestoreSandboxRequest,
    { snapshot_id: 's', image },
    /^image: unknown field in the body/,
  ],
  [
    'network rules that are not lists',
    RestoreSandboxRequest,
    { snapshot_id: 's', network: { allow: 'api.test' } },
    /^network.allow: must be an array of rules/,
  ],
  ['a rollback without a snapshot', RollbackRequest, {}, /^snapshot_id: is required/],
  ['too long a list', ListSnapshotsQuery, { limit: '501' }, /^limit: must be a whole number from 1 to 500/],
  ['a missing command', ExecRequest, {}, /^command: is required/],
  ['an empty command', ExecRequest, { command: '' }, /^command: must not be empty/],
  [
    'a command longer than the kernel accepts',
    ExecRequest,
    { command: 'x'.repeat(131_072) },
    /^command: must be at most 131071 bytes/,
  ],
  ['NUL in a command', ExecRequest, { command: 'a\0' }, /^command: must not contain a NUL/],
  ['a timeout of 0', ExecRequest, { command: 'a', timeout: 0 }, /^timeout: .* from 1 to 86400/],
  [
    '"=" in a variable name',
    ExecRequest,
    { command: 'a', env: { 'A=B': '' } },
    /^env\.A=B: a variable name is/,
  ],
  ['NUL in a path', FilePathQuery, { path: '/a\0b' }, /^path: must not contain a NUL/],
  ['a path that is too long', FilePathQuery, { path: 'x'.repeat(4096) }, /^path: must be at most 4095 bytes/],
  ['a mode that is not octal', UploadQuery, { path: '/a', mode: '8' }, /^mode: must be octal/],
  ['a limit of 0', ListSandboxesQuery, { limit: '0' }, /^limit: must be a whole number from 1 to 500/],
  ['a limit that is not a number', ListSandboxesQuery, { limit: 'x' }, /^limit: must be a whole number/],
  ['a label filter without value', ListSandboxesQuery, { label: 'a' }, /^label: must be name:value/],
  ['an unknown status', ListSandboxesQuery, { status: 'gone' }, /^status: must be one of creating/],
];

for (const [what, schema, input, message] of REFUSED) {
  test(`${what} is refused with a message that names the field`, () =>
    assert.match(refusal(schema, input), message));
}

test('a create with only an image gets the documented defaults', () => {
  assert.deepEqual(CreateSandboxRequest.parse({ image }), {
    image,
    vcpus: 1,
    mem_mib: 1024,
    disk_mib: 4096,
    timeout: 300,
    labels: {},
  });
});

test('a repeated label and a single one both parse to a list', () => {
  assert.deepEqual(ListSandboxesQuery.parse({ label: 'a:b' }), { limit: 100, label: ['a:b'] });
  assert.deepEqual(ListSandboxesQuery.parse({ label: ['a:b', 'c:d'] }).label, ['a:b', 'c:d']);
});

test('several faults are reported at once, at most three', () => {
  const message = refusal(CreateSandboxRequest, { vcpus: 0, mem_mib: 0, disk_mib: 0, timeout: -1 });
  assert.equal(message.split('; ').length, 3);
});

test('a fork without a count has one child', () => {
  assert.deepEqual(ForkRequest.parse({}), { count: 1 });
});

test('a restore may remove the maximum lifetime', () => {
  const request = { snapshot_id: 'snap0', max_lifetime: null };
  assert.deepEqual(RestoreSandboxRequest.parse(request), request);
});
