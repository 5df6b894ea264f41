import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { startNetworkRunner } from '../controls/joined-runner.ts';

test('a fake runner that stops does not wait for a handshake that its peer does not continue', async () => {
  const { runner } = await startNetworkRunner();
  const peer = connect(runner.port, '127.0.0.1');
  await once(peer, 'connect');
  const closed = once(peer, 'close');
  await runner.stop();
  await closed;
  assert.equal(peer.destroyed, true);
});
