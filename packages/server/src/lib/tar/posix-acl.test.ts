import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LayerError } from './layer-error.ts';
import { findAcl, modeWithoutAcl } from './posix-acl.ts';

/** user::rw-, user:1000:rwx, group::r--, mask::rwx, other::--- */
const XATTR = Buffer.from(
  [
    '02000000',
    '01000600ffffffff',
    '02000700e8030000',
    '04000400ffffffff',
    '10000700ffffffff',
    '20000000ffffffff',
  ].join(''),
  'hex',
);
const KEY = 'SCHILY.xattr.system.posix_acl_access';
const TEXT = 'user::rw-,user:app:rwx:1000,group::r--,mask::rwx,other::---\n';

test("without its ACL a file gives its group the ACL's group permissions, not the ACL's mask", () => {
  for (const pax of [new Map([[KEY, XATTR]]), new Map([['SCHILY.acl.access', Buffer.from(TEXT)]])]) {
    const acl = findAcl('a', pax);
    assert.deepEqual(acl, { group: 4 });
    assert.equal(modeWithoutAcl(0o4670, acl).toString(8), '4640');
  }
});

test('a mask that is narrower than the group stays narrow', () => {
  assert.equal(modeWithoutAcl(0o640, { group: 7 }), 0o640);
});

test('a default ACL changes no mode, and most entries have no ACL', () => {
  const acl = findAcl('a', new Map([['SCHILY.xattr.system.posix_acl_default', XATTR]]));
  assert.equal(modeWithoutAcl(0o775, acl!), 0o775);
  assert.equal(findAcl('a', new Map([['path', Buffer.from('b')]])), undefined);
});

test('the error for a malformed ACL names the entry', () => {
  const values = [
    Buffer.alloc(0),
    XATTR.subarray(0, 11),
    Buffer.from('03000000', 'hex'),
    XATTR.subarray(0, 12),
  ];
  for (const value of values) {
    assert.throws(
      () => findAcl('a/b', new Map([[KEY, value]])),
      (error) => error instanceof LayerError && error.message.includes('"a/b"'),
    );
  }
  assert.throws(() => findAcl('a', new Map([['SCHILY.acl.access', Buffer.from('user::rwx')]])), LayerError);
});
