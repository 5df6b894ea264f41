import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OrganizationLimits } from '../../../../contract/src/accounts/operator.ts';
import { describeLimits, findFaults, LIMIT_GROUPS, toChange, toFields } from './limit-fields.ts';

const NAMES = LIMIT_GROUPS.flatMap(({ fields }) => fields.map(({ name }) => name));
const NONE = Object.fromEntries(NAMES.map((name) => [name, null])) as OrganizationLimits;

test('only the limits that differ are sent, and an empty field removes one', () => {
  const limits = { ...NONE, vcpus: 8, disks: 0 };
  const fields = toFields(limits);
  assert.deepEqual(toChange(fields, limits), {});
  assert.deepEqual(toChange({ ...fields, vcpus: ' 16 ', disks: '', sandboxes: '0' }, limits), {
    vcpus: 16,
    disks: null,
    sandboxes: 0,
  });
});

test('the size of snapshots is edited in GiB, and stays exact to the byte', () => {
  for (const bytes of [0, 1, 1_500_000_001, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
    const limits = { ...NONE, snapshot_bytes: bytes };
    assert.deepEqual(findFaults(toFields(limits)), {});
    assert.deepEqual(toChange(toFields(limits), NONE), { snapshot_bytes: bytes });
  }
  const fields = { ...toFields(NONE), snapshot_bytes: '1.5' };
  assert.deepEqual(toChange(fields, NONE), { snapshot_bytes: 1_610_612_736 });
});

test('a text that cannot be a limit is explained with the name of its field', () => {
  assert.deepEqual(findFaults({ ...toFields(NONE), disks: ' 3 ', snapshot_bytes: '0.5' }), {});
  for (const text of ['1x', '-1', '1.5', '0x10', '1 000', 'Infinity', '١'])
    assert.deepEqual(findFaults({ ...toFields(NONE), vcpus: text }), {
      vcpus: 'Virtual CPUs must be a whole number, 0 or more; or empty.',
    });
  for (const text of ['1e400', '9'.repeat(309), '1e-12'])
    assert.ok('snapshot_bytes' in findFaults({ ...toFields(NONE), snapshot_bytes: text }), text);
  const { snapshot_bytes: size, rate_limit_burst: burst } = findFaults({
    ...toFields(NONE),
    snapshot_bytes: '-0.5',
    rate_limit_burst: '0',
  });
  assert.match(size ?? '', /^Size of snapshots in GiB must be a number, 0 or more/u);
  assert.match(burst ?? '', /^Requests at once must be a whole number, 1 or more/u);
});

test('limits of its own are listed, also those that are 0', () => {
  assert.equal(describeLimits(NONE), undefined);
  const limits = { ...NONE, disks: 0, vcpus: 4, mem_mib: 2048, snapshot_bytes: 0 };
  assert.equal(describeLimits(limits), 'vCPUs 4, memory 2 GiB, disks no limit, snapshots 0 B');
});
