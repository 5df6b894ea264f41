import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareVersions, upstreamVersion } from './version.mjs';

test('versions are compared as numbers, not as text', () => {
  assert.ok(compareVersions('10.0.2', '8.2') > 0);
  assert.ok(compareVersions('7.2.18', '8.2') < 0);
  assert.ok(compareVersions('1.23.5', '1.23') > 0);
  assert.equal(compareVersions('8.2', '8.2.0'), 0);
  assert.equal(compareVersions('1.26rc1', '1.26'), 0);
});

test('epoch and Debian revision are not part of the upstream version', () => {
  assert.equal(upstreamVersion('1:10.0.2+ds-2+deb13u1~bpo12+1'), '10.0.2');
  assert.equal(upstreamVersion('2:1.23~2~bpo12+1'), '1.23');
  assert.equal(upstreamVersion('6.1.192-2'), '6.1.192');
});
