import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import http2, { type ClientHttp2Session } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import pino from 'pino';
import { EventLine, type Heartbeat } from '../../lib/protocol/runner-protocol.ts';
import { EventSpool } from '../driver/event-spool.ts';
import { Fence } from './fence.ts';
import { RunnerServer, type RunnerServerParts } from './runner-server.ts';

const log = pino({ level: 'silent' });
const BEAT: Heartbeat = {
  type: 'heartbeat',
  runner_id: `runner-${'a'.repeat(32)}`,
  moment: { boot_id: 'boot', ms: 1 },
  capacity: {
    mem_mib: { promised: 1, limit: 2 },
    vcpus: { promised: 1, limit: 2 },
    mem_available_mib: 1,
    starts: { running: 0, waiting: 0 },
    disk: { free_mib: 1, reserve_mib: 1 },
  },
  roster: 'f'.repeat(64),
};

let directory = '';
let spool: EventSpool;
let server: RunnerServer;
let session: ClientHttp2Session;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cop-events-'));
  spool = EventSpool.open(join(directory, 'events'), { log });
  const parts = { spool, heartbeat: () => BEAT, fence: new Fence(directory), log };
  const socketPath = join(directory, 'socket');
  server = await RunnerServer.listen(parts as unknown as RunnerServerParts, { socketPath });
  session = http2.connect('http://runner', { createConnection: () => connect(socketPath) });
});
after(async () => {
  session.destroy();
  await server.close();
  rmSync(directory, { recursive: true });
});

test('a reader gets a heartbeat first and then every 5 s or more often, with the events in between', async () => {
  const startedAt = performance.now();
  const stream = session.request({ ':path': '/events' });
  const end = { id: `run${'1'.repeat(20)}`, reason: 'destroyed', cpu_ms: 1, mem_peak_bytes: 1 } as const;
  const seen: EventLine[] = [];
  for await (const line of createInterface({ input: stream })) {
    seen.push(EventLine.parse(JSON.parse(line)));
    if (seen.length === 1) await spool.add({ ...end, ended_at: new Date().toISOString() });
    if (seen.length === 3) break;
  }
  stream.destroy();
  assert.deepEqual(
    seen.map(({ type }) => type),
    ['heartbeat', 'vm_ended', 'heartbeat'],
  );
  assert.ok(performance.now() - startedAt < 7_000);
  assert.deepEqual(seen[0], BEAT);
});
