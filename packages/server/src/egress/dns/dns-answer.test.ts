import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { filterDnsAnswer } from './dns-answer.ts';
import { DNS_RCODE } from './dns-header.ts';
import { DNS_TYPE, type DnsQuery, parseDnsQuery } from './dns-query.ts';
import { dnsMessage, dnsName, edns, type MessageText, type RecordText, u16 } from './testing/dns-bytes.ts';

const BOUNDS = { min: 5, max: 600 };
const MALFORMED = { kind: 'malformed' };
const TO_QUESTION = Buffer.from([0xc0, 12]);

function queryFor(text: MessageText = {}): DnsQuery {
  const result = parseDnsQuery(dnsMessage(text));
  assert.ok(result.kind === 'query');
  return result.query;
}

const filter = (text: MessageText, query = queryFor(text.type === undefined ? {} : { type: text.type })) =>
  filterDnsAnswer(query, dnsMessage({ flags: 0x81_80, ...text }), BOUNDS);

function accept(text: MessageText, query?: DnsQuery) {
  const result = filter(text, query);
  assert.equal(result.kind, 'answer');
  assert.ok(result.kind === 'answer');
  return result;
}

const a = (owner: string | Buffer, ...bytes: number[]): RecordText => ({
  owner,
  type: DNS_TYPE.a,
  data: Buffer.from(bytes.length === 0 ? [203, 0, 113, 7] : bytes),
});
const cname = (owner: string | Buffer, target: string | Buffer): RecordText => ({
  owner,
  type: DNS_TYPE.cname,
  data: dnsName(target),
});

test('addresses of the requested name are collected and forwarded', () => {
  const { addresses, names, message, ttl } = accept({
    answers: [a('a.com'), a(TO_QUESTION, 203, 0, 113, 8), a('A.COM', 203, 0, 113, 9)],
  });
  assert.deepEqual(addresses, ['203.0.113.7', '203.0.113.8', '203.0.113.9']);
  assert.deepEqual([names, ttl], [['a.com'], 300]);
  assert.deepEqual(
    message,
    dnsMessage({
      flags: 0x81_80,
      answers: addresses.map((text) => a(TO_QUESTION, ...text.split('.').map(Number))),
    }),
  );
});

test('IPv6 addresses have one spelling', () => {
  const data = Buffer.from('20010db8000000000000000000000001', 'hex');
  const mapped = Buffer.from('00000000000000000000ffff7f000001', 'hex');
  const answers = [data, mapped].map((bytes) => ({ owner: 'a.com', type: DNS_TYPE.aaaa, data: bytes }));
  assert.deepEqual(accept({ type: DNS_TYPE.aaaa, answers }).addresses, ['2001:db8::1', '::ffff:7f00:1']);
});

test('aliases are followed in any order', () => {
  const answers = [
    a('c.com', 203, 0, 113, 9),
    cname('b.com', 'C.com'),
    cname(TO_QUESTION, 'b.com'),
    a('x.com'),
  ];
  const { names, addresses, message } = accept({ answers });
  assert.deepEqual(names, ['a.com', 'b.com', 'c.com']);
  assert.deepEqual(addresses, ['203.0.113.9']);
  assert.equal(message.readUInt16BE(6), 3);
  const again = filterDnsAnswer(queryFor(), message, BOUNDS);
  assert.ok(again.kind === 'answer' && again.message.equals(message), 'the message is read back unchanged');
});

test('records of other names, of other types and the additional section are left out', () => {
  const https = { owner: 'a.com', type: DNS_TYPE.https, data: Buffer.from('000100', 'hex') };
  const { message, addresses } = accept({
    answers: [https, a('evil.com'), { owner: 'a.com', type: DNS_TYPE.aaaa, data: Buffer.alloc(16) }],
    authorities: [{ owner: 'a.com', type: DNS_TYPE.ns, data: dnsName('ns.a.com') }],
    additionals: [https, a('ns.a.com'), edns(1232, Buffer.from('0003000178', 'hex'))],
  });
  assert.deepEqual(addresses, []);
  assert.deepEqual(message, dnsMessage({ flags: 0x81_80 }));
});

test('a chain that loops, forks, is too long or does not end at a host name is refused', () => {
  assert.deepEqual(filter({ answers: [cname('a.com', 'a.com')] }), MALFORMED);
  assert.deepEqual(filter({ answers: [cname('a.com', 'b.com'), cname('b.com', 'A.com')] }), MALFORMED);
  assert.deepEqual(filter({ answers: [cname('a.com', 'b.com'), cname('a.com', 'c.com')] }), MALFORMED);
  assert.deepEqual(filter({ answers: [cname('a.com', Buffer.from('\u0005b.com\0'))] }), MALFORMED);
  const chain = (length: number) => [
    cname('a.com', '0.com'),
    ...Array.from({ length: length - 1 }, (_, index) => cname(`${index}.com`, `${index + 1}.com`)),
  ];
  assert.equal(accept({ answers: chain(16) }).names.length, 17);
  assert.deepEqual(filter({ answers: chain(17) }), MALFORMED);
});

test('a negative answer keeps the SOA of a zone above, and no other', () => {
  const soa = (owner: string): RecordText => ({
    owner,
    type: DNS_TYPE.soa,
    data: Buffer.concat([TO_QUESTION, dnsName('root.com'), Buffer.alloc(20, 1)]),
  });
  const { message, rcode, ttl } = accept({ flags: 0x81_83, authorities: [soa('evil.com'), soa('com')] });
  assert.equal(rcode, DNS_RCODE.noSuchName);
  assert.equal(ttl, 300);
  const data = Buffer.concat([dnsName('a.com'), dnsName('root.com'), Buffer.alloc(20, 1)]);
  assert.deepEqual(message, dnsMessage({ flags: 0x81_83, authorities: [{ ...soa('com'), data }] }));
  assert.equal(accept({ authorities: [soa('')] }).message.readUInt16BE(8), 1);
});

test('names inside records are written uncompressed', () => {
  const mx = { owner: 'a.com', type: DNS_TYPE.mx, data: Buffer.concat([u16(10), TO_QUESTION]) };
  const { message } = accept({ type: DNS_TYPE.mx, answers: [mx] });
  assert.ok(message.includes(Buffer.concat([u16(8 + 1), u16(10), dnsName('a.com')])));
  const short = { ...mx, data: u16(10) };
  assert.deepEqual(
    filter({ type: DNS_TYPE.mx, answers: [short, a('a.com')] }),
    MALFORMED,
    'no reading into the next',
  );
  assert.deepEqual(
    filter({ type: DNS_TYPE.mx, answers: [{ ...mx, data: Buffer.concat([mx.data, u16(0)]) }] }),
    MALFORMED,
  );
});

test('times to live are kept within bounds', () => {
  const ttlOf = (ttl: number) => accept({ answers: [{ ...a('a.com'), ttl }] }).ttl;
  assert.deepEqual(
    [0, 4, 60, 601, 0x7f_ff_ff_ff, 0x80_00_00_00, 0xff_ff_ff_ff].map(ttlOf),
    [5, 5, 60, 600, 600, 5, 5],
  );
});

test('another question, a query or half a message is refused as an answer', () => {
  const good = { answers: [a('a.com'), a('a.com')] };
  assert.deepEqual(filter({ ...good, name: 'b.com' }), MALFORMED);
  assert.deepEqual(filter({ ...good, type: 28 }, queryFor()), MALFORMED);
  assert.deepEqual(filter({ ...good, flags: 0x01_00 }), MALFORMED);
  const whole = dnsMessage({ flags: 0x81_80, ...good });
  for (let length = 0; length < whole.length; length += 1)
    assert.deepEqual(filterDnsAnswer(queryFor(), whole.subarray(0, length), BOUNDS), MALFORMED);
  assert.deepEqual(filter({ answers: [a('a.com', 1, 2, 3)] }), MALFORMED);
  const counted = dnsMessage({ flags: 0x81_80 });
  counted.writeUInt16BE(0xff_ff, 6);
  assert.deepEqual(filterDnsAnswer(queryFor(), counted, BOUNDS), MALFORMED);
});

test('a truncated answer requires another attempt, and a failure is forwarded without records', () => {
  assert.deepEqual(filter({ flags: 0x83_80, answers: [a('a.com')] }), { kind: 'truncated' });
  const failed = accept({ flags: 0x81_82, answers: [a('a.com')] });
  assert.deepEqual([failed.rcode, failed.addresses, failed.ttl], [DNS_RCODE.serverFailure, [], undefined]);
});

test('an answer for one guest’s spelling serves another’s', () => {
  const query = queryFor({ name: 'A.Com' });
  const { message } = accept({ name: 'a.com', answers: [a('a.com')] }, query);
  assert.deepEqual(message, dnsMessage({ flags: 0x81_80, name: 'A.Com', answers: [a(TO_QUESTION)] }));
});

test('the number of kept records is limited', () => {
  const many = (count: number) => Array.from({ length: count }, () => a(TO_QUESTION));
  assert.equal(accept({ answers: many(1000) }).addresses.length, 128);
  assert.deepEqual(filter({ answers: many(1025) }), MALFORMED);
});

test('the filter never throws and can read the messages that it writes', () => {
  const anyBytes = fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes));
  const anyOwner = fc.oneof(
    fc.constantFrom<string | Buffer>('a.com', 'b.com', 'c.com', 'com', '', TO_QUESTION),
    anyBytes,
  );
  const anyRecord = fc.record({
    owner: anyOwner,
    type: fc.constantFrom(1, 1, 2, 5, 5, 5, 6, 15, 16, 28, 33, 65),
    data: fc.oneof(
      anyOwner.map(dnsName),
      fc.uint8Array({ minLength: 4, maxLength: 4 }).map((four) => Buffer.from(four)),
      anyBytes,
    ),
    ttl: fc.nat(),
  });
  const anyRecords = fc.array(anyRecord, { maxLength: 6 });
  fc.assert(
    fc.property(
      anyRecords,
      anyRecords,
      anyBytes,
      fc.constantFrom(1, 5, 15, 28),
      (answers, authorities, tail, type) => {
        const query = queryFor({ type });
        const result = filterDnsAnswer(
          query,
          dnsMessage({ flags: 0x81_80, type, answers, authorities, tail }),
          BOUNDS,
        );
        if (result.kind !== 'answer') return;
        const again = filterDnsAnswer(query, result.message, BOUNDS);
        assert.ok(again.kind === 'answer');
        assert.deepEqual(again.addresses, result.addresses);
        assert.deepEqual(again.names, result.names);
        assert.ok(result.ttl === undefined || (result.ttl >= BOUNDS.min && result.ttl <= BOUNDS.max));
      },
    ),
    { numRuns: 3000 },
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.nat(20), fc.nat(20), (body, answers, authorities) => {
      const message = Buffer.concat([dnsMessage({ flags: 0x81_80 }), body]);
      message.writeUInt16BE(answers, 6);
      message.writeUInt16BE(authorities, 8);
      filterDnsAnswer(queryFor(), message, BOUNDS);
    }),
    { numRuns: 3000 },
  );
});
