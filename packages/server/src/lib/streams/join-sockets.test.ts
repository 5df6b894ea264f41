import assert from 'node:assert/strict';
import { once } from 'node:events';
import { duplexPair, type Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { withDeadline } from '../waiting/deadline.ts';
import { formatSwitch, joinSockets } from './join-sockets.ts';

interface Joined {
  left: Duplex;
  right: Duplex;
  inner: [Duplex, Duplex];
}

function makeEnds(): Joined {
  const [left, one] = duplexPair();
  const [right, other] = duplexPair();
  return { left, right, inner: [one, other] };
}

const soon = <T>(what: string, promise: Promise<T>): Promise<T> => withDeadline(what, 2000, promise);

test('bytes and ends pass both ways, and bytes are counted by their source', async () => {
  const { left, right, inner } = makeEnds();
  const counts = [0, 0];
  const joined = joinSockets(
    { socket: inner[0], onData: (bytes) => void (counts[0]! += bytes) },
    { socket: inner[1], onData: (bytes) => void (counts[1]! += bytes) },
  );
  left.end('to the right');
  right.end('back');
  assert.deepEqual(await Promise.all([text(left), text(right)]), ['back', 'to the right']);
  await soon('both ends', joined);
  assert.deepEqual(counts, [12, 4]);
});

test('a socket that breaks closes the other', async () => {
  const { inner } = makeEnds();
  const joined = joinSockets({ socket: inner[0] }, { socket: inner[1] });
  inner[0].destroy(new Error('broken'));
  await soon('both ends', joined);
  assert.ok(inner[1].destroyed);
});

test('a socket that broke before the join closes the other, too', async () => {
  for (const which of [0, 1] as const) {
    const { inner } = makeEnds();
    inner[which].destroy();
    await once(inner[which], 'close');
    await soon('both ends', joinSockets({ socket: inner[0] }, { socket: inner[1] }));
    assert.ok(inner[0].destroyed && inner[1].destroyed);
  }
});

test('the head of a protocol switch contains the given fields, and fields that HTTP forbids are refused', () => {
  assert.equal(
    formatSwitch(['Upgrade', 'x', 'X-Caf', '\u00e9']),
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nX-Caf: \u00e9\r\n\r\n',
  );
  for (const fields of [
    ['X', 'a\r\nY: b'],
    ['X', '\u0001'],
    ['X: y\r\nZ', 'a'],
    ['', 'a'],
    ['X', '\u20ac'],
  ])
    assert.throws(() => formatSwitch(fields), TypeError);
});
