import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DNS_RCODE, readRcode } from './dns-header.ts';
import { classifyQuery, findQuestion, isAnswerTo } from './dns-message.ts';
import {
  buildDnsAnswer,
  buildTruncatedAnswer,
  buildUpstreamQuery,
  DNS_TYPE,
  type DnsQuery,
  parseDnsQuery,
} from './dns-query.ts';
import { dnsMessage, edns, ID, type MessageText, u16 } from './testing/dns-bytes.ts';

function parse(text: MessageText): DnsQuery {
  const result = parseDnsQuery(dnsMessage(text));
  assert.equal(result.kind, 'query');
  assert.ok(result.kind === 'query');
  return result.query;
}

function rcodeOf(message: Buffer): number {
  const result = parseDnsQuery(message);
  assert.ok(result.kind === 'refuse', 'refused');
  assert.equal(result.answer.readUInt16BE(0), message.readUInt16BE(0));
  assert.equal(result.answer.length, 12);
  assert.deepEqual(parseDnsQuery(result.answer), { kind: 'ignore' });
  return readRcode(result.answer);
}

test('a question is parsed and its name folded', () => {
  const query = parse({ name: 'WwW.a.Com', type: DNS_TYPE.aaaa });
  assert.equal(query.hostName, 'www.a.com');
  assert.deepEqual([query.id, query.type, query.isForwarded], [ID, 28, true]);
  assert.equal(query.maxDatagramBytes, 512);
  assert.equal(parse({ additionals: [edns(100)] }).maxDatagramBytes, 512);
  assert.equal(parse({ additionals: [edns(1000)] }).maxDatagramBytes, 1000);
  assert.equal(parse({ additionals: [edns(65_535)] }).maxDatagramBytes, 1232);
});

test('types that could hide names, and unknown types, are not forwarded', () => {
  for (const type of [DNS_TYPE.https, DNS_TYPE.svcb, DNS_TYPE.any, 10, 252, 99])
    assert.equal(parse({ type }).isForwarded, false, `type ${type}`);
  for (const type of [DNS_TYPE.a, DNS_TYPE.aaaa, DNS_TYPE.txt, DNS_TYPE.srv, DNS_TYPE.ptr])
    assert.equal(parse({ type }).isForwarded, true, `type ${type}`);
});

test('only name and type of a guest’s message are sent upstream', () => {
  const options = Buffer.from('000a0008736563726574212121', 'hex').subarray(0, 12);
  const texts: MessageText[] = [
    { name: 'SeCrEt.a.com' },
    { name: 'secret.A.com', flags: 0x01_70 },
    { name: 'secret.a.com', additionals: [edns(4096, options)] },
    { name: 'secret.a.com', tail: Buffer.from('stowaway') },
  ];
  const [first, ...others] = texts.map((text) => buildUpstreamQuery(parse(text), 7));
  assert.ok(first);
  for (const other of others) assert.deepEqual(other, first);
  assert.deepEqual(classifyQuery(first), { kind: 'forward' });
  assert.equal(first.readUInt16BE(0), 7);
});

test('more than one plain question is refused', () => {
  const two = dnsMessage({});
  two.writeUInt16BE(2, 4);
  assert.equal(rcodeOf(two), DNS_RCODE.formatError);
  const record = { owner: 'a.com', type: 1, data: Buffer.alloc(4) };
  assert.equal(rcodeOf(dnsMessage({ answers: [record] })), DNS_RCODE.formatError);
  assert.equal(rcodeOf(dnsMessage({ authorities: [record] })), DNS_RCODE.formatError);
  assert.equal(rcodeOf(dnsMessage({ additionals: [record] })), DNS_RCODE.formatError);
  assert.equal(rcodeOf(dnsMessage({ additionals: [edns(512), edns(512)] })), DNS_RCODE.formatError);
  assert.equal(
    rcodeOf(dnsMessage({ additionals: [edns(512)], tail: Buffer.alloc(1) })),
    DNS_RCODE.formatError,
  );
  assert.equal(rcodeOf(dnsMessage({}).subarray(0, -1)), DNS_RCODE.formatError);
  assert.equal(rcodeOf(dnsMessage({ flags: 0x28_00 })), DNS_RCODE.notImplemented);
  assert.equal(rcodeOf(dnsMessage({ name: Buffer.from([0xc0, 12]) })), DNS_RCODE.formatError);
});

test('other classes and names that no host can have are refused', () => {
  assert.equal(rcodeOf(dnsMessage({ class: 3 })), DNS_RCODE.refused);
  assert.equal(rcodeOf(dnsMessage({ name: '' })), DNS_RCODE.refused);
  assert.equal(rcodeOf(dnsMessage({ name: Buffer.from('\u0005a.com\0') })), DNS_RCODE.refused);
  assert.equal(rcodeOf(dnsMessage({ name: '127.0.0.1' })), DNS_RCODE.refused);
});

test('answers, and messages that are too short or too long, are not answered', () => {
  assert.deepEqual(parseDnsQuery(dnsMessage({ flags: 0x81_80 })), { kind: 'ignore' });
  assert.deepEqual(parseDnsQuery(Buffer.alloc(11)), { kind: 'ignore' });
  assert.deepEqual(parseDnsQuery(dnsMessage({ tail: Buffer.alloc(4096) })), { kind: 'ignore' });
});

test('an answer repeats the question in the guest’s spelling', () => {
  const message = dnsMessage({ name: 'A.cOm', type: DNS_TYPE.https });
  const query = parse({ name: 'A.cOm', type: DNS_TYPE.https });
  for (const rcode of [DNS_RCODE.noError, DNS_RCODE.noSuchName, DNS_RCODE.refused]) {
    const answer = buildDnsAnswer(query, rcode);
    assert.ok(isAnswerTo(message, answer));
    assert.deepEqual(findQuestion(answer), findQuestion(message));
    assert.deepEqual(answer.subarray(2, 12), u16(0x81_80 | rcode, 1, 0, 0, 0));
  }
  assert.equal(buildTruncatedAnswer(query).readUInt16BE(2), 0x83_80);
  assert.equal(buildDnsAnswer(parse({ flags: 0 }), 0).readUInt16BE(2), 0x80_80);
});

test('the parser never throws, and an accepted question can be asked and answered', () => {
  const anyBytes = fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes));
  const shaped = fc
    .tuple(anyBytes, fc.nat(3), fc.nat(2), anyBytes)
    .map(([body, questions, additionals, tail]) =>
      Buffer.concat([
        u16(ID, 0x01_00, questions, 0, 0, additionals),
        body,
        dnsMessage({ tail }).subarray(12),
      ]),
    );
  fc.assert(
    fc.property(
      fc.oneof(
        anyBytes,
        shaped,
        anyBytes.map((tail) => dnsMessage({ tail })),
      ),
      (message) => {
        const result = parseDnsQuery(message);
        if (result.kind !== 'query') return;
        const asked = buildUpstreamQuery(result.query, ID);
        assert.ok(
          isAnswerTo(asked, buildDnsAnswer(result.query, DNS_RCODE.noSuchName)) === (result.query.id === ID),
        );
      },
    ),
    { numRuns: 3000 },
  );
});
