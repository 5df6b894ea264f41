import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import type net from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { AgentProtocolError, decodeCtlFrame, encodeCtlFrame, openGeneration } from './ctl-port.ts';

/** An agent that answers `open` with the given bytes. */
function agentAnswering(...frames: Buffer[]): net.Socket {
  const socket = new Duplex({
    read: () => undefined,
    write(_chunk, _encoding, done) {
      for (const frame of frames) this.push(frame);
      done();
    },
  });
  return socket as unknown as net.Socket;
}

const marker = 'f'.repeat(32);
const waiting = (generation: number, protocol = 1) =>
  encodeCtlFrame({ type: 'waiting', generation, protocol });

test('a frame is read back as it was written, and only when it is complete', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(), (message, cut) => {
      const frame = encodeCtlFrame(message);
      assert.equal(decodeCtlFrame(frame.subarray(0, cut % frame.length)), undefined);
      const decoded = decodeCtlFrame(Buffer.concat([frame, Buffer.from('rest')]));
      assert.equal(JSON.stringify(decoded?.message), JSON.stringify(message));
      assert.equal(decoded?.rest.toString(), 'rest');
    }),
  );
});

test('bytes of a hostile guest cause a protocol error or a wait for more bytes, nothing else', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      try {
        decodeCtlFrame(Buffer.from(bytes));
      } catch (error) {
        assert.ok(error instanceof AgentProtocolError);
      }
    }),
  );
});

test('answers of earlier generations are skipped', async () => {
  await openGeneration(agentAnswering(waiting(3), waiting(4)), { generation: 4, marker }, 1000);
});

test('an agent that supports markers says so; an older one does not', async () => {
  const marked = encodeCtlFrame({ type: 'waiting', generation: 1, protocol: 1, marker });
  const opening = { generation: 1, marker };
  assert.deepEqual(await openGeneration(agentAnswering(marked), opening, 1000), { isMarked: true });
  assert.deepEqual(await openGeneration(agentAnswering(waiting(1)), opening, 1000), { isMarked: false });
});

test('an agent with another protocol version is distinguished from a silent one', async () => {
  await assert.rejects(
    openGeneration(agentAnswering(waiting(1, 9)), { generation: 1, marker }, 1000),
    /speaks version 9/u,
  );
});

test('the open fails when the agent is silent until the deadline', async () => {
  await assert.rejects(
    openGeneration(agentAnswering(), { generation: 1, marker }, 10),
    /the agent took longer/u,
  );
});
