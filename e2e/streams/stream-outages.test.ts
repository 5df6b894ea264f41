/** Open streams when processes of the service die or stop: each stream reports it, and the guest continues. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil, withDeadline } from '../../packages/server/src/lib/waiting/deadline.ts';
import { startGoServer } from '../fixtures/ports/go-server.ts';
import type { GuestPort } from '../fixtures/ports/guest-port.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { StreamSocket } from '../fixtures/streams/stream-socket.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const TIMEOUT_MS = 60_000;
/** Endless streams must not use up the time that a stopping service gives to open requests. */
const AT_ONCE_MS = 10_000;
const MARKERS = { shell: 'sleep 9001', terminal: 'sleep 9002', exec: 'sleep 9003', stream: 'sleep 9004' };

/** One stream of each kind, each with a running command. */
interface Streams {
  sockets: Record<'shell' | 'terminal' | 'exec', StreamSocket>;
  /** Resolves with everything that the event stream of a command has sent. */
  events: Promise<string>;
  /** Resolves when an upgraded connection to a port and an event stream through a port are cut. */
  cut: Promise<unknown>;
}

describe('outages of streams', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let id = '';
  let port: GuestPort;
  before(async () => {
    shared = await openShared();
    ({ id } = await shared.api.create({ image: BASE_IMAGE, mem_mib: 512, timeout: 0 }));
    port = await startGoServer(shared.api, id, 9000);
  });
  after(() => shared.api.destroy(id));

  const isRunning = async (command: string): Promise<boolean> =>
    (await shared.api.exec(id, `pgrep -fx '${command}'`)).exit_code === 0;
  const whoRuns = async (): Promise<string[]> => {
    const running = await Promise.all(Object.values(MARKERS).map(isRunning));
    return Object.keys(MARKERS).filter((_, index) => running[index]);
  };

  async function openAll(): Promise<Streams> {
    const { api } = shared;
    const shell = await Shell.open(api, id);
    shell.begin(MARKERS.shell);
    const terminal = await Terminal.open(api, id, { command: MARKERS.terminal });
    const exec = await new StreamSocket(api, `${id}/exec/ws`).opened();
    exec.send({ command: MARKERS.exec, timeout: 600 });
    const body = { command: `echo begun; ${MARKERS.stream}`, timeout: 600 };
    const stream = await api.fetch('POST', `/v1/runs/${id}/exec/stream`, { body });
    const events = stream.text().catch((error: unknown) => `cut: ${String(error)}`);
    const upgraded = await port.openUpgrade('/hijack', 'lines');
    upgraded.on('error', () => undefined);
    const answer = await port.open({ method: 'POST', path: '/events', body: new PassThrough() });
    assert.equal(answer.statusCode, 200);
    const answerCut = assert.rejects(answer.toArray(), { code: 'ECONNRESET' });
    const cut = Promise.all([once(upgraded.resume(), 'close'), answerCut]);
    await pollUntil({ step: 'all commands', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await whoRuns()).length === 4 ? true : undefined,
    );
    return { sockets: { shell, terminal, exec }, events, cut };
  }

  /** Fails unless each stream ends with the error in its last frame, and each WebSocket with the close code. */
  async function assertTold(streams: Streams, closeCode: number, errorCode: string): Promise<void> {
    for (const [kind, socket] of Object.entries(streams.sockets)) {
      const { code, reason } = await socket.close();
      const last = socket.frames.at(-1);
      assert.deepEqual([code, last?.type, last?.error?.code], [closeCode, 'error', errorCode], kind);
      assert.ok(reason.length > 10, kind);
    }
    const events = await withDeadline('the end of the events', TIMEOUT_MS, streams.events);
    assert.match(events.trim().split('\n').at(-1) ?? '', new RegExp(`"code":"${errorCode}"`, 'u'));
    await withDeadline('the end of proxied streams', TIMEOUT_MS, streams.cut);
  }

  const assertNewOnesOpen = async (): Promise<void> => {
    const shell = await Shell.open(shared.api, id);
    assert.equal(await shell.read('echo again'), 'again\n');
    shell.socket.close();
    assert.match(await port.get('/again'), /^GET \/again /u);
  };

  test('the runner is killed: every stream reports it, every command continues', async () => {
    const streams = await openAll();
    await shared.service.killRole('runner');
    await assertTold(streams, 1012, 'unavailable');
    assert.deepEqual(await whoRuns(), ['shell', 'terminal', 'exec', 'stream']);
    await assertNewOnesOpen();
    await shared.api.exec(id, "pkill -f '^sleep 900'");
  });

  test('the service stops: every stream reports it at once, and new streams open after a restart', async () => {
    const streams = await openAll();
    const stopped = shared.service.stop();
    await withDeadline(
      'the closes',
      AT_ONCE_MS,
      Promise.all(Object.values(streams.sockets).map(async (each) => each.close())),
    );
    await assertTold(streams, 1012, 'unavailable');
    assert.equal(await withDeadline('the stop', AT_ONCE_MS, stopped), 0);
    await shared.service.launch();
    await shared.service.waitFor('/healthz', TIMEOUT_MS, async () => (await shared.service.health()) === 200);
    await assertNewOnesOpen();
  });
});
