/** Many streams at once. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import type { Latencies } from '../fixtures/streams/latency-probe.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { StreamSocket } from '../fixtures/streams/stream-socket.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const TIMEOUT_MS = 60_000;
const SANDBOXES = 3;
const IDLE = 200;
const BUSY = 50;
/** Concurrent handshakes; each starts a process in a guest. */
const OPENING = 10;
/** Longer than any deadline of a request before its answer. */
const QUIET_MS = 35_000;
const REQUESTS = 400;
const MAX_P99_MS = 50;
/** Limit relative to a server that does nothing, measured at the same time, for hosts that keep processes waiting. */
const MAX_P99_RATIO = 2;
/** Repeats the measurement for this long: other load on the host may pass. */
const MEASURE_FOR_MS = 60_000;
const PROBE = fileURLToPath(new URL('../fixtures/streams/latency-probe.ts', import.meta.url));
const BUSY_COMMAND = `perl -e '$| = 1; while (1) { print "a line\\n"; select undef, undef, undef, 0.02 }'`;

describe('streams under load', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  const ids: string[] = [];
  before(async () => {
    shared = await openShared();
    const { api } = shared;
    for (let index = 0; index < SANDBOXES; index += 1)
      ids.push((await api.create({ image: BASE_IMAGE, mem_mib: 512, timeout: 0 })).id);
  });
  after(() => Promise.all(ids.map(async (id) => shared.api.destroy(id))));

  async function openIdle(index: number): Promise<StreamSocket> {
    const { api } = shared;
    const id = ids[index % ids.length]!;
    if (index % 5 < 2) return Shell.open(api, id);
    if (index % 5 < 4) return Terminal.open(api, id);
    const exec = await new StreamSocket(api, `${id}/exec/ws`).opened();
    exec.send({ command: 'sleep 3600', timeout: 3600 });
    return exec;
  }

  async function openAllIdle(): Promise<StreamSocket[]> {
    const sockets: StreamSocket[] = [];
    for (let index = 0; index < IDLE; index += OPENING)
      sockets.push(
        ...(await Promise.all(Array.from({ length: OPENING }, async (_, more) => openIdle(index + more)))),
      );
    return sockets;
  }

  /** Starts a command that writes a line every 20 ms. Resolves when the first line has arrived. */
  async function openBusy(index: number, signal: AbortSignal): Promise<{ lines: number }> {
    const path = `/v1/runs/${ids[index % ids.length]}/exec/stream`;
    const body = { command: BUSY_COMMAND, timeout: 600 };
    const response = await shared.api.fetch('POST', path, { body, signal });
    assert.equal(response.status, 200);
    const state = { lines: 0 };
    const begun = Promise.withResolvers<void>();
    const read = async (): Promise<void> => {
      for await (const chunk of response.body!) {
        state.lines += String(Buffer.from(chunk as Uint8Array)).split('data: ').length - 1;
        begun.resolve();
      }
    };
    read().catch(begun.reject);
    await begun.promise;
    return state;
  }

  /**
   * Measures requests in parallel with the busy streams. The result starts with `good` or `bad`. Fails if a stream
   * stands still.
   */
  async function measure(busy: readonly { lines: number }[]): Promise<string> {
    const before = busy.map(({ lines }) => lines);
    const startedAt = performance.now();
    const args = [PROBE, `${shared.service.address}/v1/runs/${ids[0]}`, String(REQUESTS)];
    const { stdout } = await promisify(execFile)(process.execPath, args, {
      timeout: 2 * TIMEOUT_MS,
      env: { ...process.env, COPPICE_PROBE_KEY: API_KEY },
    });
    const elapsedS = (performance.now() - startedAt) / 1000;
    const moved = busy.map(({ lines }, index) => lines - before[index]!);
    assert.ok(Math.min(...moved) > 0, `busy streams stood still: ${moved.join(' ')}`);
    const rate = Math.round(moved.reduce((sum, lines) => sum + lines, 0) / elapsedS);
    const { asked, floor } = JSON.parse(stdout) as Latencies;
    const verdict = asked.p99 < Math.max(MAX_P99_MS, MAX_P99_RATIO * floor.p99) ? 'good' : 'bad';
    const times = `p50 ${asked.p50} ms, p99 ${asked.p99} ms, max ${asked.max} ms`;
    return `${verdict}: ${times} (floor: p50 ${floor.p50}, p99 ${floor.p99}, max ${floor.max}) beside ${rate} lines/s`;
  }

  test(`${IDLE} idle WebSockets and ${BUSY} busy streams leave other requests fast`, async (context) => {
    const { api } = shared;
    const openedAt = performance.now();
    const idle = await openAllIdle();
    const abort = new AbortController();
    try {
      const indices = Array.from({ length: BUSY }, (_, index) => index);
      const busy = await Promise.all(indices.map(async (index) => openBusy(index, abort.signal)));
      const figures: string[] = [];
      const busySince = performance.now();
      do figures.push(await measure(busy));
      while (!figures.at(-1)!.startsWith('good') && performance.now() - busySince < MEASURE_FOR_MS);
      context.diagnostic(figures.join('; '));
      assert.match(figures.at(-1)!, /^good/u, figures.join('; '));
    } finally {
      abort.abort();
    }
    await delay(Math.max(0, QUIET_MS - (performance.now() - openedAt)));
    assert.deepEqual(
      idle.map(({ socket }) => socket.readyState).filter((state) => state !== 1),
      [],
    );
    for (const shell of idle.filter((socket) => socket instanceof Shell).slice(0, 10))
      assert.equal(await shell.read('echo here'), 'here\n');
    for (const { socket } of idle) socket.terminate();
    await pollUntil({ step: 'the end of all', timeoutMs: TIMEOUT_MS, intervalMs: 500 }, async () => {
      const left = await Promise.all(
        ids.map(async (id) => (await api.exec(id, "pgrep -c 'bash|sleep|perl'")).stdout),
      );
      return left.every((count) => count === '0\n') || undefined;
    });
  });
});
