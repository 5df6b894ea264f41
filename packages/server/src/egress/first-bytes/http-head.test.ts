import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { HttpHeadReader, MAX_HTTP_HEAD_BYTES } from './http-head.ts';
import { cut, pushAll, readInAnyChunks } from './testing/chunking.ts';
import { catchHttpHead } from './testing/first-flight.ts';

const open = () => new HttpHeadReader();
const read = (text: string) => readInAnyChunks(open, Buffer.from(text, 'latin1'));
const malformed = (fault: string) => ({ kind: 'malformed', fault });
const NOT_HTTP = { kind: 'not-http' };

function readAuthority(text: string) {
  const result = read(text);
  assert.equal(result.kind, 'http', text);
  return result.kind === 'http' ? result.authority : undefined;
}

const name = (text: string, port = 80) => ({ host: { kind: 'name', name: text }, port });
const address = (text: string, port = 80) => ({ host: { kind: 'address', address: text }, port });
const get = (...fields: string[]) => ['GET / HTTP/1.1', ...fields, '', ''].join('\r\n');

test('the host is read from the head of a real client', async () => {
  const bytes = await catchHttpHead({ path: '/a?b=c', headers: { Host: 'WWW.Example.com:8080' } });
  const result = readInAnyChunks(open, bytes);
  assert.deepEqual(result, {
    kind: 'http',
    method: 'GET',
    authority: name('www.example.com', 8080),
    body: { kind: 'none' },
    upgrade: false,
    headBytes: bytes.length,
  });
});

test('data after the head is not read', async () => {
  const bytes = await catchHttpHead(
    { method: 'POST', headers: { Host: 'a.com' } },
    'GET / HTTP/1.1\nHost: b.com\0',
  );
  const result = readInAnyChunks(open, bytes);
  assert.equal(result.kind, 'http');
  assert.ok(result.kind === 'http' && result.body.kind === 'length' && result.headBytes <= bytes.length);
  const text = get('Host: a.com');
  assert.deepEqual(read(text + get('Host: b.com')), read(text));
});

test('the Host field is an authority, with blanks around it allowed', () => {
  assert.deepEqual(readAuthority(get('hOsT:\t A.com.:81 \t')), name('a.com', 81));
  assert.deepEqual(readAuthority(get('Host: 203.0.113.7')), address('203.0.113.7'));
  for (const host of ['', 'a b', 'u@a.com', 'a.com,b.com', '127.1', 'a\u00e4.com'])
    assert.deepEqual(read(get(`Host: ${host}`)), malformed('host'), host);
});

test('exactly one Host field is required', () => {
  assert.deepEqual(read(get('Host: a.com', 'Host: a.com')), malformed('host'));
  assert.deepEqual(read(get('Host: a.com', 'X: y', 'hOST: b.com')), malformed('host'));
  assert.deepEqual(read(get()), malformed('host'));
  assert.equal(readAuthority('GET / HTTP/1.0\r\n\r\n'), undefined);
  assert.deepEqual(readAuthority('GET / HTTP/1.0\r\nHost: a.com\r\n\r\n'), name('a.com'));
});

test('a host in the target must equal that of the Host field', () => {
  const target = (text: string, ...fields: string[]) =>
    [`GET ${text} HTTP/1.1`, ...fields, '', ''].join('\r\n');
  assert.deepEqual(readAuthority(target('http://A.com/', 'Host: a.com')), name('a.com'));
  assert.deepEqual(readAuthority(target('HTTP://a.com:80?q', 'Host: a.com')), name('a.com'));
  assert.deepEqual(read(target('http://b.com/', 'Host: a.com')), malformed('host-mismatch'));
  assert.deepEqual(read(target('http://a.com:81/', 'Host: a.com')), malformed('host-mismatch'));
  assert.deepEqual(read(target('http://a.com@b.com/', 'Host: b.com')), malformed('host'));
  assert.deepEqual(read(target('http:///', 'Host: a.com')), malformed('host'));
  assert.deepEqual(read(target('https://a.com/', 'Host: a.com')), malformed('request-line'));
  assert.deepEqual(read(target('a.com:443', 'Host: a.com')), malformed('request-line'));
  assert.deepEqual(read(target('*', 'Host: a.com')), malformed('request-line'));
  assert.deepEqual(readAuthority('OPTIONS * HTTP/1.1\r\nHost: a.com\r\n\r\n'), name('a.com'));
  assert.deepEqual(readAuthority(target('//b.com/', 'Host: a.com')), name('a.com'));
});

test('proxy requests and HTTP/2 with prior knowledge are distinguished', () => {
  assert.deepEqual(read('CONNECT a.com:443 HTTP/1.1\r\n'), { kind: 'proxy-request' });
  assert.deepEqual(read('connect a.com:443 http/1.1\r\n'), { kind: 'proxy-request' });
  assert.deepEqual(read('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), { kind: 'h2c' });
  assert.deepEqual(read('PRI * HTTP/2.0\n'), malformed('request-line'));
});

test('malformed lines that a lenient server would accept are refused', () => {
  const lines = [
    'GET / HTTP/1.1',
    ' GET / HTTP/1.1\r',
    '\r\nGET / HTTP/1.1\r',
    'GET  / HTTP/1.1\r',
    'GET\t/ HTTP/1.1\r',
    'GET\v/ HTTP/1.1\r',
    'GET\r/ HTTP/1.1\r',
    'GET / HTTP/1.1 \r',
    'GET / a HTTP/1.1\r',
    'GET / HTTP/1.2\r',
    'GET / HTTP/2\r',
    'get / http/1.1\r',
    'G~T / HTTP/1.1\r',
    'GET / HT\0TP/1.1\r',
    'GET /\0 HTTP/1.1\r',
  ];
  for (const line of lines)
    assert.deepEqual(read(`${line}\nHost: a.com\r\n\r\n`), malformed('request-line'), JSON.stringify(line));
  assert.deepEqual(read(get('Host: a.com\nX: y')), malformed('line-ending'));
  assert.deepEqual(read(get('X: \rHost: b.com', 'Host: a.com')), malformed('line-ending'));
  assert.deepEqual(read('GET / HTTP/1.1\r\nHost: a.com\n\n'), malformed('line-ending'));
  assert.deepEqual(read('GET / HTTP/1.1\r\nHost: a.com\r\n\r\r\n'), malformed('line-ending'));
});

test('fields that servers read differently are refused', () => {
  assert.deepEqual(read(get('Host: a.com', ' b.com')), malformed('folded-field'));
  assert.deepEqual(read('GET / HTTP/1.1\r\n Host: a.com\r\n\r\n'), malformed('folded-field'));
  for (const field of [
    'Host : b.com',
    'Host\t: b.com',
    ': x',
    'novalue',
    'A B: c',
    'Content_Length: 3',
    'a\u00e9: b',
  ])
    assert.deepEqual(read(get('Host: a.com', field)), malformed('field'), field);
  for (const byte of ['\0', '\u0001', '\u007f', '\v'])
    assert.deepEqual(read(get(`X: a${byte}b`, 'Host: a.com')), malformed('control-character'));
});

test('the body must have exactly one framing', () => {
  const body = (...fields: string[]) => {
    const result = read(get('Host: a.com', ...fields));
    return result.kind === 'http' ? result.body : result;
  };
  assert.deepEqual(body('Content-Length: 12'), { kind: 'length', bytes: 12 });
  assert.deepEqual(body('Transfer-Encoding: Chunked'), { kind: 'chunked' });
  const doubtful = [
    ['Content-Length: 1', 'Transfer-Encoding: chunked'],
    ['Content-Length: 1', 'Content-Length: 1'],
    ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
    ['Transfer-Encoding: gzip, chunked'],
    ['Transfer-Encoding: xchunked'],
    ['Content-Length: +1'],
    ['Content-Length: 1, 1'],
    ['Content-Length: 0x1'],
    ['Content-Length: 1e1'],
    ['Content-Length: '],
    ['Content-Length: 9999999999999999'],
  ];
  for (const fields of doubtful) assert.deepEqual(body(...fields), malformed('framing'), fields.join());
  const old = 'POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n';
  assert.deepEqual(read(old), malformed('framing'));
});

test('other protocols are recognized by their first line or byte', () => {
  for (const text of [
    'SSH-2.0-OpenSSH_9.6 x\r\n',
    'EHLO a.com\r\n',
    'get key other\r\n',
    'PING\r\n',
    'GET /\r\n',
    '\0',
    'A\0',
    '*1\r\n',
    'RFB 003.008\n',
    '\r\n\r\n(',
    'A'.repeat(33),
    'GET\n',
  ])
    assert.deepEqual(read(text), NOT_HTTP, JSON.stringify(text));
});

test('the size is limited', () => {
  const fits = get('Host: a.com', `X: ${'a'.repeat(MAX_HTTP_HEAD_BYTES - get('Host: a.com', 'X: ').length)}`);
  assert.equal(open().push(Buffer.from(fits)).kind, 'http');
  for (const endless of [get('Host: a.com').slice(0, -2) + 'X: ', 'GET /', 'GET / HTTP/1.1\r\nA: b\r\n'])
    assert.deepEqual(
      open().push(Buffer.from(endless.padEnd(MAX_HTTP_HEAD_BYTES, 'a'))),
      malformed('too-large'),
    );
  assert.deepEqual(open().push(Buffer.alloc(MAX_HTTP_HEAD_BYTES, ' ')), malformed('too-large'));
  assert.deepEqual(
    open().push(Buffer.from(get('Host: a.com', ...Array(256).fill('A: b')))),
    malformed('too-large'),
  );
});

test('the reader never throws, and no split changes its result', () => {
  const piece = fc.oneof(
    fc.constantFrom(
      'GET',
      'POST',
      ' ',
      '/',
      'http://a.com/',
      ' HTTP/1.1',
      '\r\n',
      '\n',
      '\r',
      'Host: a.com',
      'Host:',
      'b.com',
      ':',
      '\t',
      '\0',
      'Content-Length: 1',
      '\r\n\r\n',
    ),
    fc.string({ unit: 'binary-ascii', maxLength: 8 }),
  );
  const shaped = fc
    .array(piece, { maxLength: 24 })
    .map((pieces) => `GET / HTTP/1.1\r\n${pieces.join('')}\r\n\r\n`);
  const anyText = fc.oneof(
    shaped,
    fc.array(piece, { maxLength: 24 }).map((pieces) => pieces.join('')),
  );
  fc.assert(
    fc.property(anyText, fc.integer({ min: 1, max: 16 }), (text, size) => {
      const bytes = Buffer.from(text, 'latin1');
      const result = open().push(bytes);
      assert.deepEqual(pushAll(open(), cut(bytes, size)) ?? result, result);
      if (result.kind !== 'http') return;
      const head = text.slice(0, result.headBytes);
      assert.ok(
        head.endsWith('\r\n\r\n') && !/[^\r]\n|\r[^\n]|\0|\n[ \t]/u.test(head),
        'an unambiguous head',
      );
      assert.equal(head.match(/\nhost[ \t]*:/giu)?.length ?? 0, result.authority === undefined ? 0 : 1);
    }),
    { numRuns: 3000 },
  );
});
