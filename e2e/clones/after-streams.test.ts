/** Transfers and streams in full flow while their sandbox is cloned in every way. */
import assert from 'node:assert/strict';
import { createHash, randomBytes, type Hash } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { withDeadline } from '../../packages/server/src/lib/waiting/deadline.ts';
import { cloneCheck, describeClones, forEach } from '../fixtures/clones/clone-check.ts';
import {
  countLines,
  FLOW_PROGRAM,
  openFlows,
  readProgress,
  STOP_FILE,
  waitForLines,
  type Flow,
} from '../fixtures/clones/clone-flows.ts';
import type { CloneGuest } from '../fixtures/clones/clone-guest.ts';
import { GuestPort, startPortServer } from '../fixtures/ports/guest-port.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { StreamSocket } from '../fixtures/streams/stream-socket.ts';
import { shared } from '../fixtures/service/shared.ts';

/** How long the service may take to end a stream after its sandbox was replaced. */
const TOLD_MS = 10_000;
const TIMEOUT_MS = 60_000;
const MIN_LINES = 10;
const CHUNK_BYTES = 64 * 1024;
const CHUNK_PAUSE_MS = 50;
const ECHO_PAUSE_MS = 50;
const PORT = 3000;
const UPLOADS = '/workspace/uploads';

interface Upload {
  hash: Hash;
  answer: Promise<{ status: number; text: string }>;
  finish: () => void;
}

/** Starts an upload of about one MiB/s that lasts until `finish` is called. */
function beginUpload({ api, id }: CloneGuest): Upload {
  const hash = createHash('sha256');
  const over = new AbortController();
  async function* produce(): AsyncGenerator<Buffer> {
    while (!over.signal.aborted) {
      const chunk = randomBytes(CHUNK_BYTES);
      hash.update(chunk);
      yield chunk;
      await delay(CHUNK_PAUSE_MS);
    }
  }
  const raw = Readable.toWeb(Readable.from(produce())) as ReadableStream;
  const path = `/v1/runs/${id}/files/upload?path=${UPLOADS}/file`;
  const answer = api
    .call('POST', path, { raw })
    .catch((error: unknown) => ({ status: 0, text: String(error) }));
  return { hash, answer, finish: () => over.abort() };
}

const upload = cloneCheck<Upload>({
  name: 'an upload arrives complete in its sandbox, and leaves nothing in a clone',
  before: async (parent) => {
    await parent.read(`rm -rf ${UPLOADS} && mkdir ${UPLOADS}`);
    const begun = beginUpload(parent);
    await parent.read(`until [ "$(du -sm ${UPLOADS} | cut -f1)" -gt 2 ]; do sleep 0.1; done`);
    return begun;
  },
  verify: async ({ parent, clones }, { hash, answer, finish }) => {
    if (parent === undefined) {
      const { status } = await withDeadline('the end of the upload', TOLD_MS, answer);
      assert.ok(status === 0 || status >= 400, `answered ${status}`);
    } else {
      finish();
      const { status, text } = await withDeadline('the answer', TIMEOUT_MS, answer);
      assert.equal(status, 200, text);
      assert.match(
        await parent.read(`cd ${UPLOADS} && ls -A && sha256sum file`),
        new RegExp(`^file\n${hash.digest('hex')} `, 'u'),
      );
    }
    await forEach(clones, async (clone) => {
      const left = await clone.waitFor(
        'the end of the upload',
        async () => ((await clone.read(`ls -A ${UPLOADS}`)) === '' ? true : undefined),
        TOLD_MS,
      );
      assert.equal(left, true);
    });
  },
  release: async ({ finish, answer }) => {
    finish();
    await answer;
  },
});

const flows = cloneCheck<Flow[]>({
  name: 'command output continues without a gap to its client, and the commands continue in every clone',
  install: (parent) => parent.install(FLOW_PROGRAM),
  before: openFlows,
  verify: async ({ parent, clones }, all) => {
    const written = all.map(countLines);
    if (parent === undefined) {
      const ends = await withDeadline('the ends', TOLD_MS, Promise.all(all.map(({ end }) => end)));
      for (const [index, end] of ends.entries()) assert.match(end, /^error /u, all[index]!.name);
    } else {
      await waitForLines(parent, all, MIN_LINES);
      await parent.read(`touch ${STOP_FILE}`);
      const ends = await withDeadline('the ends', TIMEOUT_MS, Promise.all(all.map(({ end }) => end)));
      for (const [index, flow] of all.entries()) {
        assert.equal(ends[index], 'exit 0', flow.name);
        assert.ok(flow.output().endsWith(`\nend ${countLines(flow)}\n`), flow.name);
      }
    }
    await forEach(clones, async (clone) => {
      const from = await readProgress(clone, all);
      await clone.waitFor('progress of the commands', async () => {
        const now = await readProgress(clone, all);
        return now.every((count, index) => count >= from[index]! + MIN_LINES) ? true : undefined;
      });
      if (parent !== undefined)
        for (const [index, count] of from.entries())
          assert.ok(count >= written[index]! / 2, all[index]!.name);
      await clone.read(`touch ${STOP_FILE}; while pgrep -f '[c]lone-flow'; do sleep 0.1; done`);
    });
  },
  release: async (all) => {
    await withDeadline('the ends', TIMEOUT_MS, Promise.all(all.map(({ end }) => end)));
  },
});

interface Typing {
  stream: StreamSocket;
  waiting: Promise<{ status: number; body: Record<string, unknown> }>;
}

const RELEASE_FILE = '/tmp/release';

const commands = cloneCheck<Typing>({
  name: 'the pending answer and the input of a command belong to the original sandbox only',
  before: async (parent) => {
    await parent.read(`rm -f ${RELEASE_FILE}`);
    const command = `until [ -e ${RELEASE_FILE} ]; do sleep 0.5; done; hostname`;
    const waiting = parent.api
      .call('POST', `/v1/runs/${parent.id}/exec`, { body: { command, timeout: 600 } })
      .catch(() => ({ status: 0, body: {} }));
    const stream = await new StreamSocket(parent.api, `${parent.id}/exec/ws`).opened();
    stream.send({ command: 'cat -n', timeout: 600 });
    stream.send({ type: 'stdin', data: 'first\n' });
    await stream.waitFor('the echo', () => stream.frames.find(({ data }) => data?.includes('1\tfirst')));
    return { stream, waiting };
  },
  verify: async ({ parent, clones }, { stream, waiting }) => {
    if (parent === undefined) {
      const { code } = await withDeadline('the close', TOLD_MS, stream.closed);
      assert.ok(code >= 1000, `closed with ${code}`);
      const { status, body } = await withDeadline('the answer', TOLD_MS, waiting);
      assert.notEqual(status === 200 ? body['exit_code'] : undefined, 0);
    } else {
      stream.send({ type: 'stdin', data: 'second\n' });
      await stream.waitFor('the echo', () => stream.frames.find(({ data }) => data?.includes('2\tsecond')));
      await parent.read(`touch ${RELEASE_FILE}`);
      const { status, body } = await withDeadline('the answer', TIMEOUT_MS, waiting);
      assert.deepEqual([status, body['exit_code'], body['stdout']], [200, 0, `${parent.id}\n`]);
    }
    await forEach(clones, async (clone) => {
      const shell = await Shell.open(clone.api, clone.id);
      const id = shell.begin('hostname');
      assert.equal((await shell.result(id)).stdout, `${clone.id}\n`);
      const others = shell.frames.filter((frame) => frame.id !== undefined && frame.id !== id);
      assert.deepEqual(others, []);
      shell.socket.close();
      await clone.read(`pgrep -fx 'cat -n'; touch ${RELEASE_FILE}; pkill -fx 'cat -n'; true`);
    });
  },
  release: ({ stream }) => {
    stream.socket.terminate();
    return Promise.resolve();
  },
});

interface Proxied {
  socket: WebSocket;
  answer: IncomingMessage;
  /** Number of messages that have come back. */
  echoes: () => number;
  /** Resolves when the socket and the answer are cut. */
  cut: Promise<unknown>;
  left: number;
}

const portOf = (guest: CloneGuest): GuestPort => new GuestPort(guest.api, guest.id, PORT);

/** Returns how many connections the server has accepted, and how many of those have ended. */
async function readHanging(guest: CloneGuest): Promise<{ begun: number; left: number }> {
  return JSON.parse(await portOf(guest).get('/hanging')) as { begun: number; left: number };
}

const proxied = cloneCheck<Proxied>({
  name: 'a WebSocket and an answer through the port proxy continue in their sandbox, and end in a clone',
  install: async (parent) => {
    await startPortServer(parent.api, parent.id, PORT);
  },
  before: async (parent) => {
    const left = await parent.waitFor('the end of others', async () => {
      const hanging = await readHanging(parent);
      return hanging.begun === hanging.left ? hanging.left : undefined;
    });
    const socket = portOf(parent).openSocket('/');
    socket.on('error', () => undefined);
    let echoes = 0;
    socket.on('message', (message: Buffer) => {
      // The first message describes the request.
      if (echoes > 0) assert.equal(String(message), `message ${echoes}`);
      echoes += 1;
      setTimeout(() => socket.send(`message ${echoes}`), ECHO_PAUSE_MS);
    });
    const closed = once(socket, 'close');
    const answer = await portOf(parent).open({ path: '/hang' });
    const answerCut = answer.toArray().catch(() => undefined);
    await parent.waitFor('echoes', () => Promise.resolve(echoes > 5 ? true : undefined));
    return { socket, answer, echoes: () => echoes, cut: Promise.all([closed, answerCut]), left };
  },
  verify: async ({ parent, clones }, { socket, echoes, cut, left }) => {
    if (parent === undefined) {
      await withDeadline('the end of both', TOLD_MS, cut);
    } else {
      const from = echoes();
      await parent.waitFor('echoes', () => Promise.resolve(echoes() > from + MIN_LINES ? true : undefined));
      assert.equal(socket.readyState, WebSocket.OPEN);
      assert.deepEqual(await readHanging(parent), { begun: left + 2, left });
    }
    await forEach(clones, (clone) =>
      clone.waitFor(
        'the end in the guest',
        async () => {
          const hanging = await readHanging(clone);
          assert.equal(hanging.begun, left + 2);
          return hanging.left === hanging.begun ? true : undefined;
        },
        TOLD_MS,
      ),
    );
  },
  release: ({ socket, answer }) => {
    socket.terminate();
    answer.destroy();
    return Promise.resolve();
  },
});

describeClones({
  title: 'streams and a clone',
  api: async () => (await shared()).api,
  shape: () => Promise.resolve({ image: BASE_IMAGE, mem_mib: 512, vcpus: 2 }),
  siblings: 1,
  checks: [upload, proxied, commands, flows],
});
