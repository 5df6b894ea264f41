import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertCaptureFiles } from './capture-files.ts';

const ID = `snap${'1'.repeat(20)}`;
const WHOLE = ['ram', 'devices', 'disk/0.qcow2', 'disk/1.qcow2', 'image.squashfs', 'base.ext4'];

test('the files of a stored capture are accepted in any order', () => {
  assertCaptureFiles(WHOLE, ID);
  assertCaptureFiles(WHOLE.toReversed(), ID);
});

test('names that are not exactly those of a capture are refused, with the name of the snapshot', () => {
  const refused = [
    [],
    WHOLE.slice(1),
    WHOLE.filter((name) => name !== 'disk/0.qcow2'),
    [...WHOLE, 'ram'],
    [...WHOLE, 'disk/1.qcow2'],
    [...WHOLE, 'manifest.json'],
    [...WHOLE, '../escape'],
    [...WHOLE, '/etc/passwd'],
    [...WHOLE, 'disk/../ram'],
    [...WHOLE, 'disk/02.qcow2'],
    [...WHOLE, ...Array.from({ length: 70 }, (_, number) => `disk/${number + 2}.qcow2`)],
  ];
  for (const names of refused)
    assert.throws(() => assertCaptureFiles(names, ID), {
      code: 'snapshot_unusable',
      message: new RegExp(ID, 'u'),
    });
});
