import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { Secret } from '../secret.ts';
import { buildTlsMessage, TlsReceiver } from './tls-handover.ts';

function pairOf(cert: string) {
  return { cert, key: new Secret(`key of ${cert}`) };
}

test('the first pair starts the server, later pairs reach the follower, and other messages are ignored', async () => {
  const channel = new EventEmitter();
  const receiver = new TlsReceiver(channel as NodeJS.Process);
  const send = (message: unknown): unknown => channel.emit('message', JSON.parse(JSON.stringify(message)));
  send({ type: 'other' });
  send(buildTlsMessage(pairOf('a')));
  const first = await receiver.first();
  assert.deepEqual([first.cert, first.key.reveal()], ['a', 'key of a']);
  send(buildTlsMessage(pairOf('b')));
  const followed: string[] = [];
  receiver.follow(({ cert, key }) => followed.push(`${cert} ${key.reveal()}`));
  send({ type: 'tls', cert: 1 });
  send(buildTlsMessage(pairOf('c')));
  assert.deepEqual(followed, ['b key of b', 'c key of c']);
});
