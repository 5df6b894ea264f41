import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseRefusedKind, REFUSED_SETS } from '../firewall/refused-packets.ts';
import { countNew } from '../firewall/refused-reader.ts';
import { buildRequest } from './netlink-message.ts';
import { parseElements, SetReader } from './set-reader.ts';
import { runNft } from '../testing/test-site.ts';
import { enterHostNamespace } from '../testing/host-namespace.ts';

test('a request reads one set of one table', () => {
  const attributes: [number, Buffer][] = [
    [1, Buffer.from('t\0')],
    [2, Buffer.from('s\0')],
  ];
  assert.equal(
    buildRequest({ family: 1, type: 0x0a_0d, flags: 0x3_01, sequence: 5, attributes }).toString('hex'),
    // length 36, nftables get elements, request+dump, sequence 5 | inet | table | set
    '24000000' +
      '0d0a' +
      '0103' +
      '05000000' +
      '00000000' +
      '01000000' +
      '06000100' +
      '74000000' +
      '06000200' +
      '73000000',
  );
});

test('elements of a real set are read with keys, counts and lifetimes; missing sets and counters are undefined', async () => {
  using _ = enterHostNamespace();
  using reader = new SetReader('t');
  assert.equal(await reader.readSet('plain'), undefined);
  assert.equal(await reader.readCounter('refused'), undefined);
  runNft(`table inet t {
    counter refused { packets 7 bytes 9 }
    set plain { type ifname; elements = { "tap1", "tap2" }; }
    set many { type ipv4_addr; }
    set refused_ports { type ifname . ipv4_addr . inet_proto . inet_service; flags dynamic,timeout; timeout 1m; }
  }
  add element inet t refused_ports { "tap7" . 203.0.113.1 . udp . 5000 counter packets 3 bytes 90 }
  add element inet t many { ${Array.from({ length: 4000 }, (__, at) => `10.0.${at >> 8}.${at & 255}`).join(', ')} }`);
  const [plain, ports, many] = await Promise.all(
    ['plain', 'refused_ports', 'many'].map((set) => reader.readSet(set)),
  );
  const names = plain?.map(({ key }) => key.toString('latin1').replace(/\0+$/u, ''));
  assert.deepEqual(names?.toSorted(), ['tap1', 'tap2']);
  assert.ok(plain?.every(({ packets, remainingMs }) => packets === 0 && remainingMs === Infinity));
  const [element] = ports ?? [];
  assert.deepEqual(parseRefusedKind(REFUSED_SETS[0], element!), {
    tap: 'tap7',
    ip: '203.0.113.1',
    port: 5000,
    isSpoofed: false,
  });
  assert.equal(element?.packets, 3);
  assert.ok(element.remainingMs > 50_000 && element.remainingMs <= 60_000);
  assert.equal(many?.length, 4000, 'more than one datagram');
  assert.equal(await reader.readCounter('refused'), 7);
  assert.equal(await reader.readCounter('absent'), undefined);
});

test('any bytes are parsed without an error', () => {
  const anyBytes = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  fc.assert(fc.property(anyBytes, (bytes) => Array.isArray(parseElements(bytes))));
  fc.assert(
    fc.property(anyBytes, fc.constantFrom(...REFUSED_SETS), (key, set) => {
      parseRefusedKind(set, { key });
    }),
  );
});

test('packets counted before are not new, unless the element is another one', () => {
  const now = { packets: 5, remainingMs: 40_000 };
  assert.equal(countNew(undefined, now), 5);
  assert.equal(countNew({ packets: 3, remainingMs: 41_000 }, now), 2);
  assert.equal(countNew({ packets: 5, remainingMs: 40_000 }, now), 0);
  assert.equal(countNew({ packets: 5, remainingMs: 100 }, now), 5, 'it was added again after its end');
  assert.equal(countNew({ packets: 9, remainingMs: 41_000 }, now), 5, 'the table was replaced');
});
