/** Streams without a reader. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { GuestPort, startInBackground } from '../fixtures/ports/guest-port.ts';
import { RoleMemory } from '../fixtures/service/role-memory.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { StreamSocket } from '../fixtures/streams/stream-socket.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const TIMEOUT_MS = 60_000;
const FLOOD_MS = 10_000;
const MAX_GROWTH_MIB = 96;
/** Long lines, because a terminal is slow for each line and the buffers on the way to the client must fill up. */
const TERMINAL_FLOOD = `stty -opost; exec yes ${'long '.repeat(200)}`;
/** An endless answer. */
const FLOOD = `python3 -c '
import socket
client, _ = socket.create_server(("127.0.0.1", 5000)).accept()
client.recv(65536)
client.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
while True: client.sendall(b"y" * 65536)
'`;
/** Prints state and processor time of each flood, twice, a second apart. */
const LOOK = `t() { for p in $(pgrep -x yes) $(pgrep -f '[b]"y" . 65536'); do awk '{ print $2, $3, $14 + $15 }' /proc/$p/stat; done; }; t; sleep 1; echo -; t`;

describe('streams without a reader', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let id = '';
  before(async () => {
    shared = await openShared();
    ({ id } = await shared.api.create({ image: BASE_IMAGE, mem_mib: 512, timeout: 0 }));
  });
  after(() => shared.api.destroy(id));

  async function openFloods(): Promise<{ sockets: StreamSocket[]; leave: () => void }> {
    const { api } = shared;
    const exec = await new StreamSocket(api, `${id}/exec/ws`).opened();
    exec.send({ command: 'yes', timeout: 600 });
    const shell = await Shell.open(api, id);
    shell.begin('yes');
    const terminal = await Terminal.open(api, id, { command: TERMINAL_FLOOD });
    const sockets = [exec, shell, terminal];
    for (const socket of sockets) socket.socket.once('message', () => socket.socket.pause());
    await startInBackground(api, id, 'flood', FLOOD);
    await pollUntil({ step: 'the server', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await api.exec(id, 'ss -Hltn sport = :5000')).stdout === '' ? undefined : true,
    );
    const answer = await new GuestPort(api, id, 5000).open({ path: '/' });
    await once(answer, 'readable');
    const leave = (): void => {
      answer.destroy();
      for (const { socket } of sockets) socket.terminate();
    };
    return { sockets, leave };
  }

  test('a stream without a reader stops in the guest, and the service uses little memory', async () => {
    const { api, service } = shared;
    const memory = new RoleMemory(service);
    const { sockets, leave } = await openFloods();
    try {
      await delay(FLOOD_MS);
      const { text, maxMiB } = memory.growth();
      assert.ok(maxMiB < MAX_GROWTH_MIB, `grew by ${text}`);
      const { stdout } = await api.exec(id, LOOK);
      const [first = '', second] = stdout.split('-\n');
      assert.equal(first, second, 'a flood still runs');
      assert.deepEqual(
        first
          .trim()
          .split('\n')
          .map((line) => line.replace(/ \d+$/u, '')),
        ['(yes) S', '(yes) S', '(yes) S', '(python3) S'],
      );
      const [exec] = sockets as [StreamSocket];
      const count = exec.frames.length;
      exec.socket.resume();
      await exec.waitFor('more output', () => exec.frames.length > count + 100 || undefined);
    } finally {
      leave();
    }
    await pollUntil({ step: 'the end of the floods', timeoutMs: TIMEOUT_MS, intervalMs: 200 }, async () =>
      (await api.exec(id, LOOK)).stdout === '-\n' ? true : undefined,
    );
  });
});
