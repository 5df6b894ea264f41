import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildAddressPlan, buildSlotAddresses, parseOpenRanges } from '../addresses/address-plan.ts';
import { buildOpenElements, buildPortChange, buildRuleset, buildSlotElements } from './ruleset.ts';
import { buildInstanceNames } from '../addresses/slot-names.ts';

const names = buildInstanceNames('1a2b');
const plan = buildAddressPlan('10.202.0.0/16');
const slot = (index: number, isOpen = true) => ({ ...buildSlotAddresses(plan, index), isOpen });
const PORTS = { dnsUdp: 40_001, dnsTcp: 40_002, proxy: 40_003, credentials: 40_004 };

function build(slotCount: number, open: string[] = []): string {
  const slots = Array.from({ length: slotCount }, (_, index) => slot(index));
  return buildRuleset({ names, plan, openRanges: parseOpenRanges(open), ports: PORTS, slots });
}

test('the number of rules does not grow with the number of sandboxes', () => {
  const [few, many] = [build(1), build(500)];
  assert.equal(few.split('\n').length, many.split('\n').length);
});

test('the table is replaced in one transaction that names no other table', () => {
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

test('every hook except masquerading matches only interfaces of this instance', () => {
  const hooked = build(1)
    .split(/\n(?=chain )/u)
    .filter((chain) => chain.includes(' hook '));
  assert.equal(hooked.length, 7);
  for (const chain of hooked) assert.match(chain, /[io]ifname (?:!= )?"cop1a2b-\*"/u);
});

test('ranges that are never open are checked before ranges that the operator opened', () => {
  const text = build(1, ['10.0.0.0/8']);
  assert.match(text, /set opened \{ type ipv4_addr; flags interval; elements = \{ 10\.0\.0\.0\/8 \}; \}/u);
  const [never, opened, closed] = ['daddr @never', 'daddr @opened', 'daddr @private'].map((rule) =>
    text.indexOf(rule),
  );
  assert.ok(never! < opened! && opened! < closed!);
  assert.ok(text.indexOf('iifname != @open goto refuse') < text.indexOf('jump destination'));
  assert.match(text, /set never [^\n]*169\.254\.0\.0\/16[^\n]*10\.202\.0\.0\/16/u);
});

test('elements are added with their values and deleted by key, and the set of open slots has only those', () => {
  assert.equal(
    buildSlotElements('add', names, [slot(0, false), slot(3)]),
    'add element inet coppice_1a2b guests { "cop1a2b-0" . 10.202.0.6, "cop1a2b-3" . 10.202.0.18 }\n' +
      'add element inet coppice_1a2b zones { "cop1a2b-0" : 1, "cop1a2b-3" : 4 }\n' +
      'add element inet coppice_1a2b marks { "cop1a2b-0" : 439025665, "cop1a2b-3" : 439025668 }\n' +
      'add element inet coppice_1a2b open { "cop1a2b-3" }\n',
  );
  assert.equal(
    buildSlotElements('delete', names, [slot(0, false)]),
    'delete element inet coppice_1a2b guests { "cop1a2b-0" . 10.202.0.6 }\n' +
      'delete element inet coppice_1a2b zones { "cop1a2b-0" }\n' +
      'delete element inet coppice_1a2b marks { "cop1a2b-0" }\n',
  );
});

test('closing a slot and changing the ports are transactions that name nothing else', () => {
  assert.equal(
    buildOpenElements('delete', names, [slot(3)]),
    'delete element inet coppice_1a2b open { "cop1a2b-3" }\n',
  );
  const { dnsUdp, ...tcp } = PORTS;
  const text = buildPortChange({ names, plan, ports: PORTS });
  for (const set of [
    'set inet coppice_1a2b services',
    'map inet coppice_1a2b redirects',
    'map inet coppice_1a2b proxy',
    'set inet coppice_1a2b listeners',
  ])
    assert.ok(text.includes(`flush ${set}\n`));
  assert.match(text, new RegExp(`10\\.202\\.0\\.1 \\. udp \\. 53 : 10\\.202\\.0\\.1 \\. ${dnsUdp}`, 'u'));
  assert.match(text, /169\.254\.169\.254 \. tcp \. 8014 : 10\.202\.0\.1 \. 40004/u);
  for (const port of Object.values(tcp))
    assert.match(text, new RegExp(`listeners [^\n]*tcp \\. ${port}`, 'u'));
});

test('no rule tests a map for a key, which Linux 6.1 refuses', () => {
  const ruleset = build(1);
  const declared = (kind: string) =>
    [...ruleset.matchAll(new RegExp(`^${kind} (\\w+) \\{`, 'gm'))].map(([, name]) => name);
  const lookups = [...ruleset.matchAll(/(\S+) @(\w+)/g)].filter(([, before]) => before !== 'map');
  const asked = new Set(lookups.map(([, , name]) => name));
  assert.ok(declared('map').length > 0 && asked.has('services'));
  const sets = declared('set');
  assert.deepEqual(
    [...asked].filter((name) => !sets.includes(name)),
    [],
  );
});
