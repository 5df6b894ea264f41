import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { findAddresses, findInHosts } from './find-addresses.ts';

/** A name server that answers queries of type A for names that begin with "known", and no other. */
class NameServer implements AsyncDisposable {
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  static async start(): Promise<NameServer> {
    const socket = createSocket('udp4');
    socket.on('message', (query, { port, address }) => {
      const answer = buildAnswer(query);
      if (answer !== undefined) socket.send(answer, port, address);
    });
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    return new NameServer(socket);
  }

  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#socket, 'close');
    this.#socket.close();
    await closed;
  }
}

const TYPE_A = 1;
const HEADER_BYTES = 12;

function buildAnswer(query: Buffer): Buffer | undefined {
  const nameEnd = query.indexOf(0, HEADER_BYTES);
  if (
    !query
      .subarray(HEADER_BYTES + 1)
      .toString('latin1')
      .startsWith('known')
  )
    return undefined;
  const isA = query.readUInt16BE(nameEnd + 1) === TYPE_A;
  const header = Buffer.from(query.subarray(0, HEADER_BYTES));
  header.writeUInt16BE(0x8180, 2);
  header.writeUInt16BE(isA ? 1 : 0, 6);
  header.fill(0, 8);
  const question = query.subarray(HEADER_BYTES, nameEnd + 5);
  const record = Buffer.from([0xc0, HEADER_BYTES, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
  return Buffer.concat(isA ? [header, question, record] : [header, question]);
}

test('name servers that do not answer delay neither other names nor the files of control', async () => {
  await using server = await NameServer.start();
  const servers = [server.address];
  const startedAt = performance.now();
  const silent = Array.from({ length: 32 }, (_, n) => findAddresses(`silent${n}.test`, { servers }));
  const ends = Promise.allSettled(silent);
  const known = await findAddresses('known.test', { servers });
  await readFile(import.meta.filename);
  assert.ok(performance.now() - startedAt < 1_000);
  assert.deepEqual(known, [{ address: '192.0.2.7', family: 4 }]);
  assert.ok((await ends).every(({ status }) => status === 'rejected'));
  assert.ok(performance.now() - startedAt < 10_000);
});

test('names of the hosts file are found in any case, IPv4 first, and comments are none', () => {
  const text = '::1 localhost ip6\n127.0.0.1\tLocalHost other # ghost\n# 10.0.0.1 commented\nnothing\n';
  assert.deepEqual(findInHosts(text, 'LOCALHOST.'), [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
  for (const name of ['ghost', 'commented', 'local', '127.0.0.1'])
    assert.deepEqual(findInHosts(text, name), []);
});
