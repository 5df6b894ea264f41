import assert from 'node:assert/strict';
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { pino } from 'pino';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { OPEN_GUEST } from '../testing/open-guest.ts';
import { DNS_RCODE, readRcode } from './dns-header.ts';
import { DnsServer } from './dns-server.ts';
import { DnsStreamDecoder, encodeStreamMessage } from './dns-stream.ts';
import { GuestAnswers } from './guest-answers.ts';
import { GuestQuota, type QuotaLimits } from './guest-quota.ts';
import { NameLookups } from './name-lookups.ts';
import { UpstreamQueries } from './upstream-queries.ts';
import type { UpstreamResolver } from './upstream-resolvers.ts';

const QUERY = Buffer.from('123401000001000000000000076578616d706c6503636f6d0000010001', 'hex');
const TIMEOUT_MS = 5000;
const SHORT_MS = 300;
const LOOPBACK = '127.0.0.1';

function answerTo(query: Buffer, tail = 'answer'): Buffer {
  const answer = Buffer.concat([query, Buffer.from(tail)]);
  answer.writeUInt16BE(0x81_80, 2);
  return answer;
}

type Upstream = UpstreamResolver & AsyncDisposable & { socket: Socket; queries: Buffer[] };

/** Starts an upstream that answers over UDP with `answer`. */
async function startUpstream(
  answer: (query: Buffer, socket: Socket, from: RemoteInfo) => void,
): Promise<Upstream> {
  const socket = createSocket('udp4');
  const queries: Buffer[] = [];
  socket.on('message', (query, from) => {
    queries.push(query);
    answer(query, socket, from);
  });
  socket.bind(0, LOOPBACK);
  await once(socket, 'listening');
  const close = async () => {
    socket.close();
    await once(socket, 'close');
  };
  return { address: LOOPBACK, port: socket.address().port, socket, queries, [Symbol.asyncDispose]: close };
}

const echo = (query: Buffer, socket: Socket, from: RemoteInfo) =>
  socket.send(answerTo(query), from.port, from.address);

const LIMITS: QuotaLimits = { ratePerSecond: 100, burst: 500, inFlight: 64, connections: 16 };

interface ServerOptions {
  limits?: QuotaLimits;
  listUpstreams?: () => Promise<readonly UpstreamResolver[]>;
}

/** Opens a server for guests without restrictions, whose messages are forwarded unchanged. */
function openServer(
  upstreams: readonly UpstreamResolver[],
  { limits = LIMITS, listUpstreams = async () => upstreams }: ServerOptions = {},
): Promise<DnsServer> {
  const log = pino({ level: 'silent' });
  const queries = new UpstreamQueries({ listUpstreams, log });
  const guests = { findByAddress: () => OPEN_GUEST };
  const answers = new GuestAnswers({ guests, queries, lookups: new NameLookups(queries) });
  const answer = answers.answer.bind(answers);
  return DnsServer.listen({ address: LOOPBACK, answer, quota: new GuestQuota(limits), log });
}

async function ask(port: number, query: Buffer, timeoutMs = TIMEOUT_MS): Promise<Buffer> {
  const socket = createSocket('udp4');
  try {
    socket.send(query, port, LOOPBACK);
    const [answer] = (await withDeadline('answer', timeoutMs, once(socket, 'message'))) as [Buffer];
    return answer;
  } finally {
    socket.close();
  }
}

test('a question is forwarded with a new id, and its answer has the guest’s id', async () => {
  await using upstream = await startUpstream(echo);
  await using server = await openServer([upstream]);
  for (let round = 0; round < 4; round += 1) {
    assert.deepEqual(await ask(server.ports.udp, QUERY), answerTo(QUERY));
  }
  const ids = upstream.queries.map((query) => query.readUInt16BE(0));
  assert.ok(new Set([0x12_34, ...ids]).size > 2, 'ids are random');
  assert.deepEqual(upstream.queries[0]?.subarray(2), QUERY.subarray(2));
});

test('answers with another id or question are ignored', async () => {
  await using upstream = await startUpstream((query, socket, from) => {
    const forged = answerTo(query, 'forged');
    forged.writeUInt16BE(forged.readUInt16BE(0) ^ 1, 0);
    socket.send(forged, from.port, from.address);
    const other = answerTo(query, 'forged');
    other[13] = 0x7a;
    socket.send(other, from.port, from.address);
    echo(query, socket, from);
  });
  await using server = await openServer([upstream]);
  assert.deepEqual(await ask(server.ports.udp, QUERY), answerTo(QUERY));
});

test('after a refusing resolver the next one is asked, and with no resolver the answer is a failure', async () => {
  await using upstream = await startUpstream(echo);
  const closed = await startUpstream(echo);
  await closed[Symbol.asyncDispose]();
  await using server = await openServer([closed, upstream]);
  assert.deepEqual(await ask(server.ports.udp, QUERY), answerTo(QUERY));
  await using deaf = await openServer([]);
  assert.equal(readRcode(await ask(deaf.ports.udp, QUERY)), DNS_RCODE.serverFailure);
  await using unreadable = await openServer([], {
    listUpstreams: () => Promise.reject(new Error('no file')),
  });
  assert.equal(readRcode(await ask(unreadable.ports.udp, QUERY)), DNS_RCODE.serverFailure);
});

test('a malformed question is refused without an upstream query, and an answer is never answered', async () => {
  await using upstream = await startUpstream(echo);
  await using server = await openServer([upstream]);
  assert.equal(readRcode(await ask(server.ports.udp, QUERY.subarray(0, 20))), DNS_RCODE.formatError);
  await assert.rejects(ask(server.ports.udp, answerTo(QUERY), SHORT_MS), /longer than/u);
  await assert.rejects(ask(server.ports.udp, Buffer.alloc(3), SHORT_MS), /longer than/u);
  assert.equal(upstream.queries.length, 0);
});

test('a guest over its quota is not answered', async () => {
  await using upstream = await startUpstream(echo);
  const limits = { ratePerSecond: 0.001, burst: 2, inFlight: 10, connections: 1 };
  await using server = await openServer([upstream], { limits });
  await ask(server.ports.udp, QUERY);
  await ask(server.ports.udp, QUERY);
  await assert.rejects(ask(server.ports.udp, QUERY, SHORT_MS), /longer than/u);
  server.forgetGuest(LOOPBACK);
  await ask(server.ports.udp, QUERY);
});

test('several questions on one TCP connection are answered in order', async () => {
  const upstream = createServer((socket) => {
    const decoder = new DnsStreamDecoder(4096);
    socket.on('data', (chunk: Buffer) => {
      for (const query of decoder.push(chunk))
        socket.write(encodeStreamMessage(answerTo(query, 'x'.repeat(5000))));
    });
  }).listen(0, LOOPBACK);
  await once(upstream, 'listening');
  const { port } = upstream.address() as AddressInfo;
  await using server = await openServer([{ address: LOOPBACK, port }]);
  const client = connect(server.ports.tcp, LOOPBACK);
  const second = Buffer.from(QUERY);
  second.writeUInt16BE(2, 0);
  client.end(Buffer.concat([encodeStreamMessage(QUERY), encodeStreamMessage(second)]));
  const decoder = new DnsStreamDecoder(0xff_ff);
  const answers: Buffer[] = [];
  const collect = async () => {
    for await (const chunk of client) answers.push(...decoder.push(chunk as Buffer));
  };
  await withDeadline('end of the connection', TIMEOUT_MS, collect());
  assert.deepEqual(
    answers.map((answer) => answer.readUInt16BE(0)),
    [0x12_34, 2],
  );
  assert.equal(answers[0]?.length, QUERY.length + 5000);
  upstream.close();
});

test('a TCP guest that sends invalid data or opens too many connections is disconnected', async () => {
  const limits = { ratePerSecond: 10, burst: 10, inFlight: 10, connections: 1 };
  await using server = await openServer([], { limits });
  const first = connect(server.ports.tcp, LOOPBACK);
  await once(first, 'connect');
  const second = connect(server.ports.tcp, LOOPBACK);
  second.on('error', () => second.destroy());
  await withDeadline('end of the second connection', TIMEOUT_MS, once(second.resume(), 'close'));
  first.on('error', () => first.destroy());
  first.write(Buffer.from([0xff, 0xff, 1, 2, 3]));
  await withDeadline('end of the first connection', TIMEOUT_MS, once(first.resume(), 'close'));
});
