import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mayMount } from './build-mode.mjs';

test('root of a container without CAP_SYS_ADMIN builds the base image without mounts', () => {
  assert.equal(mayMount('Name:\tnode\nCapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n'), false);
  assert.equal(mayMount('CapEff:\t000001fffeffffff\n'), true);
  assert.equal(mayMount(''), false);
});
