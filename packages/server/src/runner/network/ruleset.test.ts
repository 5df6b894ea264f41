import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildAddressPlan, buildSlotAddresses, parseOpenRanges } from './address-plan.ts';
import { buildRuleset, buildSlotElements } from './ruleset.ts';
import { buildInstanceNames } from './slot-names.ts';

const names = buildInstanceNames('1a2b');
const plan = buildAddressPlan('10.202.0.0/16');
const slot = (index: number) => buildSlotAddresses(plan, index);

function build(slotCount: number, open: string[] = []): string {
  const slots = Array.from({ length: slotCount }, (_, index) => slot(index));
  const dnsPorts = { udp: 40_001, tcp: 40_002 };
  return buildRuleset({ names, plan, openRanges: parseOpenRanges(open), dnsPorts, slots });
}

test('the number of rules does not grow with the number of sandboxes', () => {
  const [few, many] = [build(1), build(500)];
  assert.equal(few.split('\n').length, many.split('\n').length);
});

test('the table is replaced in one transaction and no other is named', () => {
  const text = build(2);
  assert.ok(
    text.startsWith('add table inet coppice_1a2b\ndelete table inet coppice_1a2b\ntable inet coppice_1a2b {'),
  );
  assert.doesNotMatch(text, /flush/u);
  assert.deepEqual(
    new Set(text.match(/(?:table|element) inet \w+/gu)),
    new Set(['table inet coppice_1a2b', 'element inet coppice_1a2b']),
  );
});

test('every hook but masquerading looks at interfaces of this instance alone', () => {
  const hooked = build(1)
    .split(/\n(?=chain )/u)
    .filter((chain) => chain.includes(' hook '));
  assert.equal(hooked.length, 7);
  for (const chain of hooked) assert.match(chain, /[io]ifname (?:!= )?"cop1a2b-\*"/u);
});

test('what is never open is checked before what the operator opened', () => {
  const text = build(1, ['10.0.0.0/8']);
  assert.match(text, /set opened \{ type ipv4_addr; flags interval; elements = \{ 10\.0\.0\.0\/8 \}; \}/u);
  const [never, opened, closed] = ['daddr @never', 'daddr @opened', 'daddr @private'].map((rule) =>
    text.indexOf(rule),
  );
  assert.ok(never! < opened! && opened! < closed!);
  assert.match(text, /set never [^\n]*169\.254\.0\.0\/16[^\n]*10\.202\.0\.0\/16/u);
});

test('elements are added with their values and deleted by key', () => {
  assert.equal(
    buildSlotElements('add', names, [slot(0), slot(3)]),
    'add element inet coppice_1a2b guests { "cop1a2b-0" . 10.202.0.6, "cop1a2b-3" . 10.202.0.18 }\n' +
      'add element inet coppice_1a2b zones { "cop1a2b-0" : 1, "cop1a2b-3" : 4 }\n' +
      'add element inet coppice_1a2b marks { "cop1a2b-0" : 439025665, "cop1a2b-3" : 439025668 }\n',
  );
  assert.equal(
    buildSlotElements('delete', names, [slot(0)]),
    'delete element inet coppice_1a2b guests { "cop1a2b-0" . 10.202.0.6 }\n' +
      'delete element inet coppice_1a2b zones { "cop1a2b-0" }\n' +
      'delete element inet coppice_1a2b marks { "cop1a2b-0" }\n',
  );
});
