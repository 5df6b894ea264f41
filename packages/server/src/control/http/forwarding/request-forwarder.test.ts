/** Forwarded requests that an owner refuses, as it is still taking the runner or has it no more: what is sent again. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import { connect, type AddressInfo } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { after, before, test } from 'node:test';
import Fastify, { type FastifyInstance } from 'fastify';
import { AppError } from '@coppice/contract';
import { exportKey, issueCertificate, makeKeyPair } from '../../../lib/tls/issue-certificate.ts';
import { TAKING_OVER } from '../requests/forwarded-request.ts';
import { RequestForwarder } from './request-forwarder.ts';

const RUNNER = 'runner-a';
const HOUR_MS = 3_600_000;

type Serve = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

let owner: Server;
let app: FastifyInstance;
let forwarder: RequestForwarder;
let serve: Serve;
/** Where requests are forwarded to, and whether it is known where that is. */
let target = { at: RUNNER, isKnown: true };
before(async () => {
  const { publicKey, privateKey } = makeKeyPair();
  const issuer = { commonName: 'owner', key: privateKey };
  const [validFrom, validTo] = [-HOUR_MS, HOUR_MS].map((ms) => new Date(Date.now() + ms)) as [Date, Date];
  const cert = issueCertificate({ commonName: 'owner', publicKey, validFrom, validTo }, issuer);
  owner = createServer(
    { cert, key: exportKey(privateKey) },
    (request, response) => void serve(request, response),
  );
  owner.listen(0, '127.0.0.1');
  await once(owner, 'listening');
  const address = `127.0.0.1:${(owner.address() as AddressInfo).port}`;
  forwarder = new RequestForwarder({
    findOwner: async () => (target.isKnown ? { id: 'owner', address } : undefined),
    tlsTo: () => ({ rejectUnauthorized: false }),
  });
  app = Fastify();
  app.decorateRequest('clientAddress', '127.0.0.1');
  app.decorateRequest('ownOrigin', '');
  app.addHook('onRequest', async (request, reply) => {
    reply.hijack();
    try {
      await forwarder.forward(target.at, request, reply, new AbortController().signal);
    } catch (error) {
      const [status, reason] =
        error instanceof AppError ? [503, `${error.code}: ${error.message}`] : [500, String(error)];
      reply.raw.writeHead(status, { connection: 'close' }).end(reason);
    }
  });
  app.all('/*', async () => undefined);
  await app.listen({ host: '127.0.0.1', port: 0 });
});
after(async () => {
  forwarder[Symbol.dispose]();
  app.server.closeAllConnections();
  await app.close();
  owner.closeAllConnections();
  owner.close();
});

const refuse = (response: ServerResponse, at = RUNNER): void =>
  void response.writeHead(503, { [TAKING_OVER]: at }).end('taking over');

/** Sends a head, and gives the body and the answer to the test. */
async function send(fields: string) {
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(`POST /upload HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n${fields}\r\n\r\n`);
  return { socket, answer: text(socket) };
}

/** An owner that refuses at once, and serves the second request. */
function refuseOnce() {
  const [refused, served] = [Promise.withResolvers<void>(), Promise.withResolvers<Buffer>()];
  let attempts = 0;
  serve = async (request, response) => {
    if ((attempts += 1) === 1) {
      response.once('finish', () => refused.resolve());
      return refuse(response);
    }
    served.resolve(await buffer(request));
    response.end('stored');
  };
  return { refused: refused.promise, served: served.promise };
}

test('a chunked body that begins after the refusal reaches the next attempt whole', async () => {
  const { refused, served } = refuseOnce();
  const { socket, answer } = await send('transfer-encoding: chunked\r\ntrailer: x-sum');
  await refused;
  // In the pause, and after it.
  for (const chunk of ['first', 'second', 'third']) {
    await delay(100);
    socket.write(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
  }
  socket.write('0\r\nx-sum: 7\r\n\r\n');
  assert.equal(String(await served), 'firstsecondthird');
  assert.match(await answer, /^HTTP\/1.1 200 [\s\S]*stored/u);
});

test('so does a long one with its length', async () => {
  const { refused, served } = refuseOnce();
  const content = Buffer.from(Array.from({ length: 1 << 20 }, (_, index) => index % 251));
  const { socket, answer } = await send(`content-length: ${content.length}`);
  await refused;
  socket.write(content.subarray(0, 300_000));
  await delay(100);
  socket.write(content.subarray(300_000));
  assert.ok((await served).equals(content));
  assert.match(await answer, /^HTTP\/1.1 200 /u);
});

test('an empty body that has ended before the refusal is sent again', async () => {
  const attempts: string[] = [];
  serve = async (request, response) => {
    attempts.push(await text(request));
    if (attempts.length === 1) refuse(response);
    else response.end('stored');
  };
  const { socket, answer } = await send('transfer-encoding: chunked');
  socket.write('0\r\n\r\n');
  assert.match(await answer, /^HTTP\/1.1 200 /u);
  assert.deepEqual(attempts, ['', '']);
});

test('a body that was begun is not sent again', async () => {
  let attempts = 0;
  serve = (request, response) => {
    attempts += 1;
    request.once('data', () => refuse(response));
  };
  const { socket, answer } = await send('content-length: 10');
  socket.write('begun');
  assert.match(await answer, /^HTTP\/1.1 503 /u);
  assert.equal(attempts, 1);
});

test('two owners that name each other are asked a few times a second', async () => {
  let attempts = 0;
  let isSettled = false;
  serve = (_request, response) => {
    if (isSettled) response.end('stored');
    else refuse(response, `runner-${(attempts += 1) % 2 === 0 ? 'a' : 'b'}`);
  };
  const { answer } = await send('content-length: 0');
  await delay(1_000);
  isSettled = true;
  assert.match(await answer, /^HTTP\/1.1 200 /u);
  assert.ok(attempts >= 4 && attempts <= 10, `${attempts} attempts`);
});

test('a request for a control that has ended is refused at once, and one that it is told to send elsewhere follows only a runner', async () => {
  const asked: string[] = [];
  serve = (request, response) => {
    asked.push(request.url ?? '');
    if (asked.length === 1) refuse(response, 'ctl2');
    else response.end('stored');
  };
  try {
    target = { at: 'ctl1', isKnown: true };
    const served = await send('content-length: 0');
    assert.match(await served.answer, /^HTTP\/1.1 200 /u);
    assert.equal(asked.length, 2);
    target = { at: 'ctl3', isKnown: false };
    const startedAt = performance.now();
    const refused = await send('content-length: 0');
    assert.match(
      await refused.answer,
      /^HTTP\/1.1 503 [\s\S]*unavailable: the control that could answer .* has ended/u,
    );
    assert.ok(performance.now() - startedAt < 2_000);
  } finally {
    target = { at: RUNNER, isKnown: true };
  }
});
