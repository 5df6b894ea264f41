import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { overlaps, parseCidr } from '../network/addresses/address-plan.ts';
import { idsOverlap } from './account-ids.ts';
import { chooseRanges, idsFrom, type RangeFindings } from './choose-ranges.ts';
import { FIRST_RANGES, type HostRanges } from './host-ranges.ts';
import type { Installation } from './installations.ts';

const ALONE: RangeFindings = {
  set: {},
  recorded: undefined,
  others: [],
  hasConnectedVm: false,
  isInUse: () => false,
  areIdsInUse: () => false,
};
const SECOND: HostRanges = { guestCidr: '10.203.0.0/16', uidBase: 1_620_000 };
const other = (ranges: HostRanges): Installation => ({ dataDir: '/srv/other', ...ranges });
const choose = (findings: Partial<RangeFindings>): HostRanges => chooseRanges({ ...ALONE, ...findings });

test('a single installation gets the first ranges, a second one the next ranges', () => {
  assert.deepEqual(choose({}), FIRST_RANGES);
  assert.deepEqual(choose({ others: [other(FIRST_RANGES)] }), SECOND);
});

test('ranges that the host, its accounts or its processes use are skipped', () => {
  const lan = parseCidr('lan', '10.202.7.0/24');
  const isInUse: RangeFindings['isInUse'] = (range) => overlaps(range, lan);
  assert.equal(choose({ isInUse }).guestCidr, '10.203.0.0/16');
  const account = { first: 1_600_500, last: 1_600_500 };
  const areIdsInUse: RangeFindings['areIdsInUse'] = (range) => idsOverlap(range, account);
  assert.equal(choose({ areIdsInUse }).uidBase, 1_620_000);
});

test('any overlap with another installation counts, and the search wraps around', () => {
  const wide = other({ guestCidr: '10.192.0.0/10', uidBase: 1_610_000 });
  assert.deepEqual(choose({ others: [wide] }), { guestCidr: '10.0.0.0/16', uidBase: 1_640_000 });
});

test('settings win; an overlap of user ids is refused with the name of the setting and the other data directory', () => {
  const set = { guestCidr: '192.168.0.0/20', uidBase: 5000 };
  assert.deepEqual(choose({ set, recorded: SECOND, others: [other(FIRST_RANGES)] }), set);
  assert.deepEqual(choose({ set: FIRST_RANGES, isInUse: () => true, areIdsInUse: () => true }), FIRST_RANGES);
  assert.throws(() => choose({ set: { uidBase: 1_610_000 }, others: [other(FIRST_RANGES)] }), {
    code: 'invalid_request',
    message:
      'uidBase: user ids 1610000 to 1628435 overlap those of the installation in /srv/other (1600000 to 1618435); ' +
      'choose another, or leave it unset',
  });
  assert.throws(() => choose({ set: { guestCidr: '10.202.0.1/16' } }), /^AppError: guestCidr: /u);
});

test('recorded ranges stay, even when others are free', () => {
  assert.deepEqual(choose({ recorded: SECOND }), SECOND);
  assert.deepEqual(choose({ recorded: SECOND, areIdsInUse: () => true }).uidBase, SECOND.uidBase);
});

test('recorded ranges that others use by now are chosen again, unless a VM is connected', () => {
  const others = [other(SECOND)];
  assert.deepEqual(choose({ recorded: SECOND, others }), FIRST_RANGES);
  const own = parseCidr('own', SECOND.guestCidr);
  const isInUse: RangeFindings['isInUse'] = (range) => overlaps(range, own);
  assert.equal(choose({ recorded: SECOND, isInUse }).guestCidr, FIRST_RANGES.guestCidr);
  assert.equal(choose({ recorded: SECOND, isInUse, hasConnectedVm: true }).guestCidr, SECOND.guestCidr);
});

test('the error on a host without free ranges names the setting to set', () => {
  assert.throws(() => choose({ isInUse: () => true }), /^AppError: guestCidr: every \/16 .* set it/u);
  assert.throws(
    () => choose({ areIdsInUse: () => true }),
    /^AppError: uidBase: no 18436 user ids .* set it/u,
  );
});

test('installations that start one after the other never overlap', () => {
  const step = fc.record({
    guestCidr: fc.option(
      fc.integer({ min: 0, max: 255 }).map((n) => `10.${n}.0.0/16`),
      { nil: undefined },
    ),
    forget: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      let others: Installation[] = [];
      for (const { guestCidr, forget } of steps) {
        const used = others.map((each) => parseCidr('used', each.guestCidr));
        const isInUse: RangeFindings['isInUse'] = (range) => used.some((each) => overlaps(each, range));
        const isFree = guestCidr !== undefined && !isInUse(parseCidr('set', guestCidr));
        const ranges = choose({ others, set: isFree ? { guestCidr } : {} });
        for (const each of others) {
          assert.ok(!overlaps(parseCidr('a', each.guestCidr), parseCidr('b', ranges.guestCidr)));
          assert.ok(!idsOverlap(idsFrom(each.uidBase), idsFrom(ranges.uidBase)));
        }
        others = [...others.slice(forget ? 1 : 0), other(ranges)];
      }
    }),
  );
});
