import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ClientHelloReader, MAX_CLIENT_HELLO_BYTES, MAX_CLIENT_HELLO_RECORDS } from './client-hello.ts';
import { cut, pushAll, readInAnyChunks } from './testing/chunking.ts';
import { catchClientHello } from './testing/first-flight.ts';
import {
  extension,
  hello,
  helloWith,
  nameEntry,
  record,
  serverName,
  vector16,
} from './testing/hello-bytes.ts';

const open = () => new ClientHelloReader();
const read = (bytes: Uint8Array) => readInAnyChunks(open, bytes);
const named = (name: string | undefined, encryptedName = false) => ({ kind: 'tls', name, encryptedName });
const malformed = (fault: string) => ({ kind: 'malformed', fault });
const EXAMPLE = serverName(nameEntry('example.com'));

test('the name is read from the hello of a real client for every version', async () => {
  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    const bytes = await catchClientHello({
      servername: 'WWW.Example.com',
      maxVersion,
      ALPNProtocols: ['h2'],
    });
    assert.deepEqual(read(bytes), named('www.example.com'));
  }
  assert.deepEqual(read(await catchClientHello({})), named(undefined));
});

test('a real hello that is split over records is reassembled', async () => {
  const bytes = await catchClientHello({ servername: 'example.com' });
  const message = bytes.subarray(5);
  for (const size of [1 + Math.floor(message.length / MAX_CLIENT_HELLO_RECORDS), 100, message.length - 1]) {
    const split = Buffer.concat(cut(message, size).map((fragment) => record(fragment)));
    assert.deepEqual(read(split), named('example.com'));
  }
  const first = Buffer.concat([record(message.subarray(0, 1)), record(message.subarray(1))]);
  assert.deepEqual(read(first), named('example.com'));
});

test('a part of a real hello never has a result', async () => {
  const bytes = await catchClientHello({ servername: 'example.com' });
  for (let length = 0; length < bytes.length; length += 1)
    assert.deepEqual(open().push(bytes.subarray(0, length)), { kind: 'needs-more' });
});

test('a hello without extensions has no name', () => {
  assert.deepEqual(read(record(hello(Buffer.alloc(0)))), named(undefined));
  assert.deepEqual(read(record(helloWith())), named(undefined));
});

test('an encrypted hello is detected together with its outer name', () => {
  const ech = extension(0xfe_0d, Buffer.from([0, 1, 2, 3]));
  assert.deepEqual(read(record(helloWith(ech, EXAMPLE))), named('example.com', true));
  assert.deepEqual(read(record(helloWith(ech))), named(undefined, true));
  assert.deepEqual(read(record(helloWith(extension(0xff_ce, Buffer.alloc(9))))), named(undefined, true));
});

test('names are folded, and invalid host names are refused', () => {
  assert.deepEqual(read(record(helloWith(serverName(nameEntry('ExAmPlE.CoM.'))))), named('example.com'));
  for (const name of [
    '',
    '.',
    'a..b',
    'a\0.b',
    'exa mple.com',
    '127.0.0.1',
    '127.1',
    '0x7f000001',
    '::1',
    'ex\u00e4.com',
  ])
    assert.deepEqual(read(record(helloWith(serverName(nameEntry(name))))), malformed('server-name'), name);
  assert.deepEqual(
    read(record(helloWith(serverName(nameEntry('a.'.repeat(127) + 'com'))))),
    malformed('server-name'),
  );
});

test('a second name is refused in every form', () => {
  const [one, other] = [nameEntry('a.com'), nameEntry('b.com')];
  assert.deepEqual(read(record(helloWith(serverName(one, other)))), malformed('server-name'));
  assert.deepEqual(read(record(helloWith(serverName(one, nameEntry('b.com', 1))))), malformed('server-name'));
  assert.deepEqual(read(record(helloWith(serverName(one), serverName(other)))), malformed('structure'));
  assert.deepEqual(read(record(helloWith(serverName()))), malformed('server-name'));
  assert.deepEqual(read(record(helloWith(extension(0, Buffer.alloc(0))))), malformed('server-name'));
  const trailed = extension(0, Buffer.concat([vector16(one), Buffer.from([0])]));
  assert.deepEqual(read(record(helloWith(trailed))), malformed('server-name'));
});

test('lengths must add up', () => {
  const message = helloWith(EXAMPLE);
  assert.deepEqual(read(record(Buffer.concat([message, Buffer.from([0])]))), malformed('structure'));
  assert.deepEqual(read(record(hello(Buffer.from([0, 1])))), malformed('structure'));
  assert.deepEqual(read(record(hello(Buffer.from([0, 0, 0])))), malformed('structure'));
  assert.deepEqual(read(record(hello(Buffer.alloc(0), 33))), malformed('structure'));
});

test('records that cannot contain a hello are refused or belong to another protocol', () => {
  const message = helloWith(EXAMPLE);
  const alert = Buffer.concat([record(message.subarray(0, 9)), record(Buffer.from([1, 0]), 21)]);
  assert.deepEqual(read(alert), malformed('record'));
  assert.deepEqual(read(record(Buffer.alloc(0))), malformed('record'));
  assert.deepEqual(read(Buffer.from([22, 3, 1, 0x40, 0x01])), malformed('record'));
  assert.deepEqual(read(record(Buffer.from([2, 0, 0, 1, 1]))), malformed('not-a-client-hello'));
  assert.deepEqual(read(Buffer.from([22, 2])), { kind: 'not-tls' });
  assert.deepEqual(read(Buffer.from('GET / HTTP/1.1\r\n')), { kind: 'not-tls' });
  assert.deepEqual(read(Buffer.from([0x80, 0x2e, 1, 0, 2, 0, 0x15])), malformed('sslv2'));
  assert.deepEqual(read(Buffer.from([0x80, 0x2e, 1, 3, 1, 0, 0x15])), malformed('sslv2'));
  assert.deepEqual(read(Buffer.from([0x80, 0x2e, 2])), { kind: 'not-tls' });
});

test('size and number of records are limited', () => {
  const padding = (bytes: number) => extension(21, Buffer.alloc(bytes));
  const bare = helloWith(padding(0)).length;
  const largest = helloWith(padding(MAX_CLIENT_HELLO_BYTES - bare));
  assert.deepEqual(open().push(record(largest)), named(undefined));
  const larger = helloWith(padding(MAX_CLIENT_HELLO_BYTES + 1 - bare));
  assert.deepEqual(open().push(record(larger.subarray(0, 4))), malformed('too-large'));
  const message = helloWith(EXAMPLE);
  const split = (count: number) =>
    Buffer.concat(
      [...cut(message.subarray(0, count - 1), 1), message.subarray(count - 1)].map((part) => record(part)),
    );
  assert.deepEqual(read(split(MAX_CLIENT_HELLO_RECORDS)), named('example.com'));
  assert.deepEqual(read(split(MAX_CLIENT_HELLO_RECORDS + 1)), malformed('too-many-records'));
});

test('the reader never throws, and no split changes its result', async () => {
  const real = await catchClientHello({ servername: 'example.com' });
  const edit = fc.tuple(fc.nat(real.length - 1), fc.nat(255));
  const damaged = fc.array(edit, { maxLength: 4 }).map((edits) => {
    const bytes = Buffer.from(real);
    for (const [at, value] of edits) bytes[at] = value;
    return bytes;
  });
  const anyBytes = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  const anyHello = fc.oneof(
    damaged,
    anyBytes,
    anyBytes.map((bytes) => record(hello(bytes))),
    anyBytes.map((bytes) => record(bytes)),
  );
  fc.assert(
    fc.property(anyHello, fc.integer({ min: 1, max: 64 }), (bytes, size) => {
      const result = open().push(bytes);
      assert.deepEqual(pushAll(open(), cut(bytes, size)) ?? result, result);
      if (result.kind === 'tls' && result.name !== undefined)
        assert.match(result.name, /^[a-z0-9._-]{1,253}$/u);
    }),
    { numRuns: 2000 },
  );
});
