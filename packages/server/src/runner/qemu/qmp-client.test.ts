import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mkdtempSync, rmSync } from 'node:fs';
import { test } from 'node:test';
import { QmpClient, QmpError, type QmpEvent } from './qmp-client.ts';

type Answer = (command: string, id: number, socket: net.Socket) => void;

interface Request {
  execute: string;
  id: number;
}

/** A monitor whose answers the test decides; e2e uses real QEMU. */
async function withMonitor(answer: Answer, use: (client: QmpClient) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'qmp-'));
  const path = join(directory, 'qmp');
  const server = net.createServer((socket) => {
    socket.write('{"QMP":{}}\n');
    socket.on('data', (chunk) => {
      for (const line of chunk.toString().trim().split('\n')) {
        const { execute, id } = JSON.parse(line) as Request;
        if (execute === 'qmp_capabilities') socket.write(`{"return":{},"id":${id}}\n`);
        else answer(execute, id, socket);
      }
    });
  });
  server.listen(path);
  await once(server, 'listening');
  const client = await QmpClient.open(net.connect(path));
  try {
    await use(client);
  } finally {
    client.close();
    server.close();
    rmSync(directory, { recursive: true });
  }
}

test('answers are matched to commands by id, in any order and in any pieces', async () => {
  const held: number[] = [];
  const answer: Answer = (command, id, socket) => {
    held.push(id);
    if (command !== 'second') return;
    const text = held
      .toReversed()
      .map((each) => `{"return":"answer ${each}","id":${each}}\n`)
      .join('');
    socket.write(text.slice(0, 20));
    setImmediate(() => socket.write(text.slice(20)));
  };
  await withMonitor(answer, async (client) => {
    const answers = await Promise.all([client.execute('first'), client.execute('second')]);
    assert.deepEqual(
      answers,
      held.map((id) => `answer ${id}`),
    );
  });
});

test('a refusal carries the command and QEMU\u2019s description', async () => {
  const answer: Answer = (_command, id, socket) =>
    socket.write(`{"error":{"class":"x","desc":"no such node"},"id":${id}}\n`);
  await withMonitor(answer, async (client) => {
    await assert.rejects(
      client.execute('block_resize'),
      (error) => error instanceof QmpError && /block_resize: no such node/u.test(error.message),
    );
  });
});

test('events between answers reach the listener', async () => {
  const answer: Answer = (_command, id, socket) =>
    socket.write(`{"event":"SHUTDOWN","data":{"guest":true},"timestamp":{}}\n{"return":{},"id":${id}}\n`);
  await withMonitor(answer, async (client) => {
    const events: QmpEvent[] = [];
    client.on('event', (event) => events.push(event));
    await client.execute('cont');
    assert.deepEqual(events, [{ event: 'SHUTDOWN', data: { guest: true } }]);
  });
});

test('when QEMU goes away, pending commands fail, and later ones fail immediately', async () => {
  await withMonitor(
    (_command, _id, socket) => socket.destroy(),
    async (client) => {
      await assert.rejects(client.execute('stop'), QmpError);
      await assert.rejects(client.execute('stop'), /the monitor is closed/u);
    },
  );
});

test('a line that is not JSON ends the connection', async () => {
  await withMonitor(
    (_command, _id, socket) => socket.write('not json\n'),
    async (client) => {
      await assert.rejects(client.execute('stop'), QmpError);
      assert.ok(client.closed);
    },
  );
});
