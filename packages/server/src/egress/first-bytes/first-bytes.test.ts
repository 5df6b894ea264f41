import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { planFirstBytesWait } from './first-bytes-wait.ts';
import { FirstBytesReader } from './first-bytes.ts';
import { cut, pushAll, readInAnyChunks } from './testing/chunking.ts';
import { catchClientHello, catchHttpHead } from './testing/first-flight.ts';
import { extension, helloWith, record } from './testing/hello-bytes.ts';

const open = () => new FirstBytesReader();
const read = (bytes: Uint8Array | string) => readInAnyChunks(open, Buffer.from(bytes as string, 'latin1'));
const refused = (reason: string) => ({ kind: 'refused', reason });
const unnamed = (protocol: string, encryptedName = false) => ({ kind: 'unnamed', protocol, encryptedName });
const named = (protocol: string, name: string) => ({
  kind: 'named',
  protocol,
  host: { kind: 'name', name },
  encryptedName: false,
});
const GET = 'GET / HTTP/1.1\r\nHost: a.com\r\n\r\n';

test('a protocol is recognized by its bytes on any port', async () => {
  assert.deepEqual(read(await catchClientHello({ servername: 'a.com' })), named('tls', 'a.com'));
  assert.deepEqual(read(await catchHttpHead({ headers: { Host: 'a.com' } })), named('http', 'a.com'));
  assert.deepEqual(read(record(helloWith(extension(0xfe_0d, Buffer.alloc(4))))), unnamed('tls', true));
  assert.deepEqual(read('GET / HTTP/1.0\r\n\r\n'), unnamed('http'));
  assert.deepEqual(read('PRI * HTTP/2.0\r\n\r\n'), unnamed('h2c'));
  assert.deepEqual(read('SSH-2.0-x\r\n'), unnamed('other'));
  assert.deepEqual(read(Buffer.from([0x90, 1, 7])), unnamed('other'));
  assert.deepEqual(read('CONNECT a.com:443 HTTP/1.1\r\n'), refused('proxy-request'));
  assert.deepEqual(read(GET.replaceAll('\r', '')), refused('http-request-line'));
  assert.deepEqual(read(Buffer.from([22, 3, 1, 0, 0])), refused('tls-record'));
});

test('an address in the Host field is not a name', () => {
  const result = read('GET / HTTP/1.1\r\nHost: 203.0.113.7\r\n\r\n');
  assert.ok(result.kind === 'named' && result.host.kind === 'address');
});

test('the bytes are kept to be forwarded to the server', () => {
  const reader = open();
  for (const chunk of cut(Buffer.from(GET), 7)) reader.push(chunk);
  assert.equal(reader.takeBytes().toString(), GET);
  assert.equal(reader.takeBytes().length, 0);
});

test('silence is judged by the address, and half a hello is refused', () => {
  assert.deepEqual(open().endWait(), unnamed('other'));
  for (const begun of ['G', 'GET / HTTP/1.1\r\n', '\u0016', '\u0016\u0003\u0001', '\r\n']) {
    const reader = open();
    assert.deepEqual(reader.push(Buffer.from(begun, 'latin1')), { kind: 'needs-more' });
    assert.deepEqual(reader.endWait(), refused('incomplete'));
    assert.deepEqual(reader.push(Buffer.from(GET)), refused('incomplete'), 'the result stays');
  }
});

test('a name that is held back until the wait is over is refused', async () => {
  const hello = await catchClientHello({ servername: 'a.com' });
  for (const bytes of [hello, Buffer.from(GET)]) {
    for (const size of [1, 100, bytes.length]) {
      const reader = open();
      reader.endWait();
      assert.deepEqual(pushAll(reader, cut(bytes, size)), refused('late-name'));
    }
  }
  const other = open();
  other.endWait();
  assert.deepEqual(other.push(Buffer.from('SSH-2.0-x')), { kind: 'needs-more' });
  assert.deepEqual(other.push(Buffer.from('\r\n')), unnamed('other'));
  assert.equal(other.takeBytes().toString(), 'SSH-2.0-x\r\n');
  const half = open();
  half.endWait();
  half.push(Buffer.from('GET'));
  assert.deepEqual(half.endWait(), refused('incomplete'));
});

test('the end of a wait does not change a decided result', () => {
  const reader = open();
  const result = reader.push(Buffer.from(GET));
  assert.deepEqual(reader.endWait(), result);
});

test('the reader never throws, and at most one protocol matches', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), fc.boolean(), (bytes, isSilentFirst) => {
      const [whole, single] = [open(), open()];
      if (isSilentFirst) for (const reader of [whole, single]) reader.endWait();
      whole.push(bytes);
      for (const chunk of cut(bytes, 1)) single.push(chunk);
      assert.deepEqual(whole.endWait(), single.endWait());
    }),
    { numRuns: 2000 },
  );
});

test('there is no wait when no name could matter', () => {
  assert.deepEqual(planFirstBytesWait({ port: 443, couldNameMatter: false, isAddressAllowed: true }), {
    kind: 'none',
  });
});

test('a connection whose server may speak first waits briefly, and every wait ends', () => {
  const wait = (port: number, isAddressAllowed: boolean) => {
    const plan = planFirstBytesWait({ port, couldNameMatter: true, isAddressAllowed });
    assert.ok(plan.kind === 'wait' && plan.wholeMs <= 10_000 && plan.firstByteMs <= 10_000);
    return plan.kind === 'wait' ? plan.firstByteMs : 0;
  };
  assert.ok(wait(22, true) <= 300 && wait(22, false) <= 300);
  assert.ok(wait(5222, true) <= 300);
  assert.ok(wait(443, false) > wait(443, true) && wait(443, true) > wait(22, true));
});
