import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { largestDiskMiB, templateDiskMiB } from './disk-sizes.ts';

test('template sizes map to themselves, other sizes to the next smaller template', () => {
  const sizes = [64, 65, 511, 512, 4095, 4096, 5000, 16_383, 16_384, 1_048_575, 1_048_576];
  assert.deepEqual(
    sizes.map(templateDiskMiB),
    [64, 64, 64, 512, 512, 4096, 4096, 4096, 16_384, 262_144, 1_048_576],
  );
});

test('a disk smaller than every template is refused, named by its field', () => {
  assert.throws(
    () => templateDiskMiB(63),
    (error) =>
      error instanceof AppError && error.code === 'invalid_request' && error.message.startsWith('disk_mib: '),
  );
});

test('every allowed size maps to one of a few templates and lies in its range', () => {
  const templates = new Set<number>();
  fc.assert(
    fc.property(fc.integer({ min: 64, max: 1_048_576 }), (diskMiB) => {
      const template = templateDiskMiB(diskMiB);
      templates.add(template);
      return (
        template <= diskMiB && diskMiB <= largestDiskMiB(template) && largestDiskMiB(template) < template * 8
      );
    }),
  );
  assert.ok(templates.size <= 7);
});
