import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { buildConnectionMark, buildInstanceNames, buildTapName, findTapIndex } from './slot-names.ts';

const names = buildInstanceNames('1a2b');

test('a TAP name is short enough for an interface, and its slot can be parsed from it', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 65_534 }), (index) => {
      const name = buildTapName(names, index);
      assert.ok(name.length <= 15);
      assert.equal(findTapIndex(names, name), index);
    }),
  );
});

test('other interfaces are not taken for TAPs of this instance', () => {
  for (const name of [
    'eth0',
    'cop1a2b-',
    'cop1a2b-01',
    'cop1a2b-1x',
    'cop9999-1',
    'cop1a2b-123456',
    'xcop1a2b-1',
  ]) {
    assert.equal(findTapIndex(names, name), undefined, name);
  }
});

test('marks distinguish instances and slots and are never zero', () => {
  assert.equal(buildConnectionMark(names, 7), 0x1a_2b_00_07);
  assert.equal(buildConnectionMark(buildInstanceNames('ffff'), 65_535), 0xff_ff_ff_ff);
});

test('a slug that is not 4 hex characters is refused', () => {
  for (const slug of ['', '1A2B', '12345', 'zzzz', '12-4']) {
    assert.throws(() => buildInstanceNames(slug), { code: 'invalid_request', message: /^slug:/u });
  }
});
