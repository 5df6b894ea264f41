import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OrganizationLimits } from '../../../../contract/src/accounts/operator.ts';
import { countOwnLimits, LIMIT_LABELS, toChange, toFields } from './limit-fields.ts';

const NONE = Object.fromEntries(LIMIT_LABELS.map(([name]) => [name, null])) as OrganizationLimits;

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

test('text that is no number is sent as it is refused', () => {
  assert.deepEqual(toChange({ ...toFields(NONE), vcpus: '1x' }, NONE), { vcpus: '1x' });
});

test('limits of its own are counted, also those that are 0', () => {
  assert.equal(countOwnLimits(NONE), 'none');
  assert.equal(countOwnLimits({ ...NONE, disks: 0, vcpus: 4 }), '2');
});
