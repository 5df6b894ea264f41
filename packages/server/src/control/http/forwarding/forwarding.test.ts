/** Two controls on one database, each with a runner. Clients of one use the sandboxes of the other. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { AppError } from '@coppice/contract';
import { API_KEY, waitFor } from '../../testing/control-harness.ts';
import { SocketClient } from '../../testing/requests/socket-client.ts';
import { TwoControls } from '../../testing/controls/two-controls.ts';
import { verifyLog } from '../../testing/verify-log.ts';

const PORT = 3000;

let both: TwoControls;
/** A sandbox of the other control; all requests are sent to `one`. */
let id = '';
before(async () => {
  both = await TwoControls.start();
  ({ id } = await both.other.create());
});
after(() => both[Symbol.asyncDispose]());

const call = (method: string, path: string, body?: unknown) =>
  both.one.call(method, path, body === undefined ? {} : { body });

test('each control shows the sandboxes of both, and each has its own at its own runner', async () => {
  const own = await both.one.create();
  assert.deepEqual([both.one.runner.vms.has(own.id), both.other.runner.vms.has(own.id)], [true, false]);
  assert.deepEqual([both.one.runner.vms.has(id), both.other.runner.vms.has(id)], [false, true]);
  for (const harness of [both.one, both.other]) {
    assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
    assert.equal((await harness.call('GET', `/v1/runs/${own.id}`)).body.status, 'running');
  }
  assert.equal((await both.other.call('DELETE', `/v1/runs/${own.id}`)).status, 200);
  assert.equal(both.one.runner.vms.has(own.id), false);
});

test('commands, their streams and files of a sandbox of the other control are reached', async () => {
  both.other.runner.onExec = (command) => {
    command.stdout(`ran ${command.head.command}`);
    command.exit(3);
  };
  const ran = await call('POST', `/v1/runs/${id}/exec`, { command: 'date' });
  assert.deepEqual([ran.status, ran.body.stdout, ran.body.exit_code], [200, 'ran date', 3]);
  assert.ok(ran.headers.get('ratelimit'), 'the control that was asked has counted the request');
  const streamed = await both.one.fetch('POST', `/v1/runs/${id}/exec/stream`, { body: { command: 'x' } });
  assert.match(await streamed.text(), /"data":"ran x"[\s\S]*"type":"exit"/u);
  const content = Buffer.alloc(5 << 20, 'content ');
  const upload = await both.one.call('POST', `/v1/runs/${id}/files/upload?path=/w/a`, { raw: content });
  assert.deepEqual([upload.status, upload.body.size], [200, content.length]);
  assert.ok(both.other.runner.files.contents.get('/w/a')?.equals(content));
});

test('a stream is passed on as it arrives, and a client that leaves ends the command', async () => {
  const started = Promise.withResolvers<Parameters<typeof both.other.runner.onExec>[0]>();
  both.other.runner.onExec = started.resolve;
  const abort = new AbortController();
  const options = { body: { command: 'x' }, signal: abort.signal };
  const response = await both.one.fetch('POST', `/v1/runs/${id}/exec/stream`, options);
  const command = await started.promise;
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  command.stdout('first');
  assert.match((await reader?.read())?.value ?? '', /first/u);
  abort.abort();
  await waitFor('the end of the command', () => command.stream.closed);
});

test('a WebSocket reaches a command of the other control, and one that is refused gets the refusal', async () => {
  both.other.runner.startsAtHead = true;
  both.other.runner.onExec = (command) => {
    command.stdout('over a socket');
    command.exit(0);
  };
  const client = new SocketClient(both.one, `/v1/runs/${id}/exec/ws`);
  await client.send({ command: 'x' });
  assert.equal((await client.closed).code, 1000);
  assert.deepEqual(
    client.received.map(({ type }) => type),
    ['stdout', 'exit'],
  );
  const { body: ticket } = await call('POST', `/v1/runs/${id}/tickets`, {});
  const byTicket = new SocketClient(both.one, `/v1/runs/${id}/exec/ws?ticket=${ticket.ticket}`, {
    key: null,
  });
  await byTicket.send({ command: 'x' });
  assert.equal((await byTicket.closed).code, 1000);
  const again = new SocketClient(both.one, `/v1/runs/${id}/exec/ws?ticket=${ticket.ticket}`, { key: null });
  await assert.rejects(again.closed, /401/u);
  both.other.runner.startsAtHead = false;
  const none = new SocketClient(both.one, `/v1/runs/run${'0'.repeat(20)}/exec/ws`);
  await assert.rejects(none.closed, /404/u);
});

test('a port of a sandbox of the other control is reached, WebSockets and trailers included', async () => {
  const service = createServer((asked, response) => {
    response.writeHead(200, { trailer: 'x-sum' });
    response.write(`${asked.method} ${asked.url}`);
    response.addTrailers({ 'x-sum': '7' });
    response.end();
  });
  const sockets = new WebSocketServer({ server: service });
  sockets.once('connection', (socket) =>
    socket.on('message', (data: Buffer) => socket.send(`echo ${data.toString()}`)),
  );
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  both.other.runner.ports.set(PORT, (service.address() as AddressInfo).port);
  const url = `${both.one.address}/v1/runs/${id}/proxy/${PORT}/a?b=%2F`;
  const sent = request(url, { headers: { authorization: `Bearer ${API_KEY}`, te: 'trailers' } }).end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  assert.equal(await text(answer), 'GET /a?b=%2F');
  assert.deepEqual(answer.trailers, { 'x-sum': '7' });
  const client = new WebSocket(`${both.one.address.replace('http', 'ws')}/v1/runs/${id}/proxy/${PORT}/live`, {
    headers: { authorization: `Bearer ${API_KEY}` },
  });
  await once(client, 'open');
  const message = once(client, 'message');
  client.send('hello');
  assert.equal(String((await message)[0]), 'echo hello');
  client.close();
  await once(client, 'close');
  sockets.close();
  service.closeAllConnections();
  service.close();
});

test('copies and snapshots are made where the sandbox is, and a repeated request does them once', async () => {
  const headers = { 'idempotency-key': 'once' };
  const fork = () => both.one.call('POST', `/v1/runs/${id}/fork`, { body: { count: 1 }, headers });
  const [first, second] = [await fork(), await fork()];
  assert.equal(first.status, 201);
  assert.deepEqual(second.body, first.body);
  const [child] = first.body;
  assert.ok(both.other.runner.vms.has(child.id));
  const snapshot = await call('POST', `/v1/runs/${id}/snapshot`, {});
  assert.equal(snapshot.status, 201);
  const restored = await call('POST', '/v1/runs/restore', { snapshot_id: snapshot.body.id });
  assert.equal(restored.status, 201);
  assert.ok(both.other.runner.vms.has(restored.body.id));
  assert.equal((await call('DELETE', `/v1/snapshots/${snapshot.body.id}`)).status, 204);
  for (const one of [child.id, restored.body.id])
    assert.equal((await call('DELETE', `/v1/runs/${one}`)).status, 200);
});

test('a create goes to the control that has room', async () => {
  const refuse = (): never => {
    throw new AppError('capacity', 'no memory');
  };
  both.one.runner.onAdmission = refuse;
  await waitFor('the capacity of the other', async () => {
    const made = await both.one.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
    if (made.status !== 201) return false;
    assert.ok(both.other.runner.vms.has(made.body.id));
    return (await call('DELETE', `/v1/runs/${made.body.id}`)).status === 200;
  });
  both.other.runner.onAdmission = refuse;
  const full = await both.one.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  assert.deepEqual([full.status, full.body.error.code], [429, 'capacity']);
  both.one.runner.onAdmission = both.other.runner.onAdmission = () => undefined;
});

test('the audit log of the sandbox is one chain, whichever control was asked', async () => {
  assert.ok((await verifyLog(both.one, id)) > 5);
});

test('while no control has the runner, requests wait, and go on with the next one', async () => {
  const { id: kept } = await both.other.create();
  await both.other.stopControl();
  both.other.runner.onExec = (command) => command.exit(0);
  const waiting = call('POST', `/v1/runs/${kept}/exec`, { command: 'x' });
  await both.other.startControl({ internalListen: { host: '127.0.0.1', port: 0 } });
  assert.equal((await waiting).status, 200);
});
