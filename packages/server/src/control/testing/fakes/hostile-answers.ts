/**
 * Answers of a hostile service, as the bytes that it writes: nearly HTTP, so that most get past a parser, with any byte
 * where text is free, and a share of pure noise.
 */
import fc from 'fast-check';

export interface HostileAnswer {
  /** Chunks, written one after the other, each after the previous one is on its way. A character is a byte. */
  pieces: string[];
  /** Whether the connection ends with a reset. */
  isReset: boolean;
}

/** All bytes except line ends, including control characters, DEL and bytes outside ASCII. */
const freeText = fc
  .array(fc.integer({ min: 0, max: 255 }), { maxLength: 12 })
  .map((bytes) => Buffer.from(bytes.filter((byte) => byte !== 10 && byte !== 13)).toString('latin1'));
const anyText = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('', 'OK', 'No Such Thing', 'tab\there', 'caf\u00e9') },
  { weight: 2, arbitrary: freeText },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      '\u0001',
      'O\u0007K',
      '\u007f',
      'a\u001b[2Jb',
      'x\0y',
      'a\rb',
      'long '.repeat(4000),
    ),
  },
);

const status = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(200, 204, 206, 304, 404, 500) },
  { weight: 1, arbitrary: fc.constantFrom(0, 1, 99, 100, 101, 102, 103, 150, 199, 600, 999) },
);
const version = fc.constantFrom(
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.0',
  'HTTP/9.9',
  'http/1.1',
  'ICY',
);

const KNOWN_NAMES = [
  'Content-Type',
  'Link',
  'Set-Cookie',
  'Connection',
  'Keep-Alive',
  'Trailer',
  'Upgrade',
  'Content-Length',
  'Transfer-Encoding',
  'Date',
  'Access-Control-Allow-Origin',
  'X-Request-Id',
  'Sec-WebSocket-Accept',
  '__proto__',
];
const headerName = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...KNOWN_NAMES) },
  { weight: 1, arbitrary: freeText },
);
const headerValue = fc.oneof(
  { weight: 2, arbitrary: anyText },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      'close',
      'keep-alive, X-Y',
      'upgrade',
      'websocket',
      'chunked',
      'gzip, chunked',
      '5',
      '-1',
      '99999999999999999999',
      '<a>; rel=preload',
      '<a>; rel=\u0001',
      'coppice_session=1',
      '=;Domain=a',
      'text/event-stream',
      'y'.repeat(70_000),
    ),
  },
);
const header = fc.tuple(headerName, headerValue).map(([name, value]) => `${name}: ${value}\r\n`);
const headers = fc.array(header, { maxLength: 5 }).map((lines) => lines.join(''));

const statusLine = fc
  .tuple(version, status, anyText)
  .map(([protocol, code, reason]) => `${protocol} ${String(code).padStart(3, '0')} ${reason}\r\n`);

const interim = fc.oneof(
  {
    weight: 3,
    arbitrary: fc
      .tuple(fc.constantFrom(100, 102, 103), anyText, headers)
      .map(([code, reason, fields]) => `HTTP/1.1 ${code} ${reason}\r\n${fields}\r\n`),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom('HTTP/1.1 103 Early Hints\r\nLink: <a>; rel=preload\r\n\r\n'.repeat(40), ''),
  },
);

const trailers = fc.oneof(
  fc.constant('\r\n'),
  fc.tuple(headers).map(([fields]) => `${fields}\r\n`),
);
const body = fc.oneof(
  fc.constant('Content-Length: 5\r\n\r\nhello'),
  fc.constant('Content-Length: 9\r\n\r\nhello'),
  fc.constant('Content-Length: 2\r\n\r\nhello'),
  fc.constant('\r\nhello'),
  fc.constant(''),
  trailers.map((end) => `Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\n${end}`),
  trailers.map((end) => `Transfer-Encoding: chunked\r\n\r\nfffffffff\r\nhello\r\n0\r\n${end}`),
);

const upgrade = fc
  .tuple(anyText, headers, fc.uint8Array({ maxLength: 40 }))
  .map(
    ([reason, fields, frames]) =>
      `HTTP/1.1 101 ${reason}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${fields}\r\n${Buffer.from(frames).toString('latin1')}`,
  );

const exchange = fc
  .tuple(fc.array(interim, { maxLength: 2 }), statusLine, headers, body)
  .map(([before, line, fields, rest]) => `${before.join('')}${line}${fields}${rest}`);

const text = fc.oneof(
  { weight: 6, arbitrary: exchange },
  { weight: 3, arbitrary: upgrade },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 200 }) },
);

export const hostileAnswer: fc.Arbitrary<HostileAnswer> = fc
  .tuple(text, fc.array(fc.nat({ max: 300 }), { maxLength: 3 }), fc.boolean())
  .map(([whole, cuts, isReset]) => ({ pieces: cut(whole, cuts), isReset }));

function cut(whole: string, places: readonly number[]): string[] {
  const edges = [0, ...places.toSorted((a, b) => a - b), whole.length];
  return edges.slice(1).map((edge, index) => whole.slice(edges[index], edge));
}
