/** The port proxy through a real control and real HTTP servers; only the connection into the guest is a fake. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as sendRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, createServer as createTcpServer, type AddressInfo, type Socket } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { API_KEY, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const PORT = 3000;
let harness: ControlHarness;
let id = '';
let onRequest: (request: IncomingMessage, response: ServerResponse) => void;
const service = createServer((request, response) => onRequest(request, response));
const webSockets = new WebSocketServer({ server: service });

before(async () => {
  harness = await startHarness();
  ({ id } = await harness.create());
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(PORT, (service.address() as AddressInfo).port);
});
after(async () => {
  webSockets.close();
  service.closeAllConnections();
  service.close();
  await harness[Symbol.asyncDispose]();
});
afterEach(() => webSockets.removeAllListeners('connection'));

const path = (rest: string, port: number | string = PORT): string => `/v1/runs/${id}/proxy/${port}${rest}`;
const authorization = `Bearer ${API_KEY}`;

interface Reply {
  status: number;
  raw: string[];
  headers: IncomingMessage['headers'];
  text: string;
  trailers: NodeJS.Dict<string>;
}

interface Call {
  method?: string;
  headers?: Record<string, string | string[]>;
  body?: string;
}

/** Sends a request without `fetch`, which normalizes paths and knows few methods. */
async function call(target: string, { method = 'GET', headers = {}, body }: Call = {}): Promise<Reply> {
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const all = { authorization, ...length, ...headers };
  const sent = sendRequest({ hostname, port, path: target, method, headers: all });
  sent.end(body);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of answer) text += String(chunk);
  const { statusCode = 0, rawHeaders, trailers } = answer;
  return { status: statusCode, raw: rawHeaders, headers: answer.headers, text, trailers };
}

const errorOf = ({ text }: Reply): string => (JSON.parse(text) as { error: { code: string } }).error.code;

async function readBody(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return text;
}

test('any method, path, query and body arrive as they were sent', async () => {
  onRequest = (request, response) => {
    void readBody(request).then((text) => response.end(`${request.method} ${request.url} ${text}`));
  };
  const odd = '/a%2Fb/../c//d;x=1?q=%zz&%20+&%E2%82%AC';
  assert.equal((await call(path(odd))).text, `GET ${odd} `);
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND', 'OPTIONS', 'MKCOL', 'QUERY'])
    assert.equal((await call(path('/x'), { method, body: 'body' })).text, `${method} /x body`);
  assert.equal((await call(path(''))).text, 'GET / ');
  assert.equal((await call(path('?a=b'))).text, 'GET /?a=b ');
  const json = await call(path('/j'), {
    method: 'POST',
    body: 'not json',
    headers: { 'content-type': 'application/json' },
  });
  assert.equal(json.text, 'POST /j not json');
});

test('the answer to HEAD has the length of the body that it does not send', async () => {
  onRequest = (_request, response) => response.setHeader('content-length', 1234).end();
  const reply = await call(path('/'), { method: 'HEAD' });
  assert.equal(reply.headers['content-length'], '1234');
  assert.equal(reply.text, '');
});

test('the guest learns the client address and the requested host, and never the key', async () => {
  let seen: IncomingMessage | undefined;
  onRequest = (request, response) => {
    seen = request;
    response.end();
  };
  await call(path('/'), {
    headers: {
      host: 'api.example:8080',
      'x-real-ip': '6.6.6.6',
      'x-forwarded-for': '6.6.6.6',
      'x-forwarded-proto': 'gopher',
      forwarded: 'for=6.6.6.6',
      cookie: 'mine=1; coppice_session=secret; __Host-coppice_x=2; other=3',
      'x-custom': ['one', 'two'],
    },
  });
  assert.ok(seen);
  const { headers, rawHeaders } = seen;
  assert.equal(headers.host, `localhost:${PORT}`);
  assert.equal(headers['x-forwarded-host'], 'api.example:8080');
  assert.equal(headers['x-forwarded-proto'], 'https');
  assert.equal(headers['x-real-ip'], '127.0.0.1');
  assert.equal(headers['x-forwarded-for'], '127.0.0.1');
  assert.equal(headers.cookie, 'mine=1; other=3');
  assert.equal(headers.authorization, undefined);
  assert.equal(headers['forwarded'], undefined);
  assert.equal(rawHeaders.filter((name) => name.toLowerCase() === 'x-custom').length, 2);
  assert.ok(!rawHeaders.join('\n').includes(API_KEY));
});

test('answers keep the order, case and repetition of their headers, but lose those of the connection', async () => {
  onRequest = (_request, response) => {
    response.sendDate = false;
    const head = [
      ['X-One', '1'],
      ['set-cookie', 'a=1; Domain=example.com; Path=/'],
      ['Set-Cookie', 'b=2'],
      ['Set-Cookie', 'coppice_session=stolen'],
      ['Keep-Alive', 'timeout=9'],
      ['X-ONE', '2'],
      ['Strict-Transport-Security', 'max-age=1'],
      ['Clear-Site-Data', '"*"'],
    ];
    response.writeHead(418, 'I am a pot', head.flat());
    response.end('short');
  };
  const reply = await call(path('/'));
  assert.equal(reply.status, 418);
  assert.deepEqual(reply.raw.slice(0, 8), [
    'X-One',
    '1',
    'set-cookie',
    'a=1; Path=/',
    'Set-Cookie',
    'b=2',
    'X-ONE',
    '2',
  ]);
  assert.equal(reply.headers['strict-transport-security'], undefined);
  assert.equal(reply.headers['clear-site-data'], undefined);
  assert.ok(!reply.raw.join('\n').includes('stolen'));
  assert.equal(reply.text, 'short');
});

test('data arrives at once in both directions, and trailers come last', async () => {
  onRequest = (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream', trailer: 'X-Sum' });
    response.write('hello');
    request.on('data', (chunk: Buffer) => response.write(`got ${String(chunk)}`));
    request.on('end', () => {
      response.addTrailers({ 'X-Sum': String(request.trailers['x-in']) });
      response.end();
    });
  };
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const headers = { authorization, te: 'trailers', trailer: 'X-In' };
  const sent = sendRequest({ hostname, port, path: path('/'), method: 'POST', headers });
  sent.write('first');
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  answer.on('data', (chunk: Buffer) => (text += String(chunk)));
  await waitFor('the echo', () => text.includes('got first'));
  assert.ok(text.startsWith('hello'));
  sent.write('second');
  await waitFor('the second echo', () => text.includes('got second'));
  sent.addTrailers({ 'X-In': 'seven' });
  sent.end();
  await once(answer, 'end');
  assert.equal(answer.trailers['x-sum'], 'seven');
});

test('early hints are passed on, and the answer after them', async () => {
  onRequest = (_request, response) => {
    response.writeEarlyHints({ link: '</a.css>; rel=preload' });
    response.end('done');
  };
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const sent = sendRequest({ hostname, port, path: path('/'), headers: { authorization } });
  const hints: unknown[] = [];
  sent.on('information', ({ statusCode, headers }) => hints.push(statusCode, headers['link']));
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  answer.resume();
  assert.deepEqual(hints, [103, '</a.css>; rel=preload']);
});

test('hints that Node would not write, or that do not end, do no harm', async () => {
  await using hinting = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write('HTTP/1.1 103 Early Hints\r\nLink: nonsense;;\r\n\r\n');
      for (let count = 0; count < 5000; count += 1)
        socket.write(`HTTP/1.1 103 Early Hints\r\nLink: </${count}>; rel=preload\r\n\r\n`);
      socket.write('HTTP/1.1 102 Processing\r\n\r\n');
      socket.end('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: \xff\r\n\r\n');
    });
  }).listen(0, '127.0.0.1');
  await once(hinting, 'listening');
  harness.runner.ports.set(103, (hinting.address() as AddressInfo).port);
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const sent = sendRequest({ hostname, port, path: path('/', 103), headers: { authorization } });
  let hints = 0;
  sent.on('information', () => (hints += 1));
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  assert.equal(answer.statusCode, 200);
  answer.resume();
  await once(answer, 'end');
  assert.ok(hints > 0 && hints <= 16, `${hints} hints were passed on`);
});

test('a WebSocket reaches the guest unchanged', async () => {
  webSockets.once('connection', (socket, request) => {
    socket.send(`${request.url} ${request.headers['sec-websocket-protocol'] ?? ''}`);
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
    socket.on('close', (code, reason) => (closedWith = `${code} ${String(reason)}`));
  });
  let closedWith = '';
  const url = `${harness.control?.address.replace('http', 'ws')}${path('/live?x=%2F')}`;
  const socket = new WebSocket(url, ['chat'], { headers: { authorization } });
  const messages: string[] = [];
  socket.on('message', (data: Buffer) => messages.push(String(data)));
  await once(socket, 'open');
  socket.send('ping');
  socket.send(Buffer.alloc(300_000, 'x'));
  await waitFor('the echoes', () => messages.length === 3);
  assert.deepEqual(messages.slice(0, 2), ['/live?x=%2F chat', 'ping']);
  assert.equal(messages[2]?.length, 300_000);
  assert.equal(socket.protocol, 'chat');
  socket.close(4001, 'enough');
  await waitFor('the close in the guest', () => closedWith === '4001 enough');
});

test('an upgrade that the service refuses gets the plain answer of the service', async () => {
  onRequest = (_request, response) => response.writeHead(426).end('no');
  service.removeAllListeners('upgrade');
  const url = `${harness.control?.address.replace('http', 'ws')}${path('/')}`;
  const refused = once(new WebSocket(url, { headers: { authorization } }), 'unexpected-response');
  const [, answer] = (await refused) as [unknown, IncomingMessage];
  assert.equal(answer.statusCode, 426);
});

test('without the key, for another organization, or with an invalid port, nothing is forwarded', async () => {
  const before = harness.runner.tunnels;
  assert.equal((await harness.fetch('GET', path('/'), { apiKey: null })).status, 401);
  const foreign = await harness.addOrganization();
  assert.equal((await harness.fetch('GET', path('/'), { apiKey: foreign })).status, 404);
  for (const port of ['0', '65536', 'abc', '-1', '03000'])
    assert.equal((await call(path('/', port))).status, 400, port);
  const url = `${harness.control?.address.replace('http', 'ws')}${path('/')}`;
  const [, answer] = (await once(new WebSocket(url), 'unexpected-response')) as [unknown, IncomingMessage];
  assert.equal(answer.statusCode, 401);
  assert.equal(harness.runner.tunnels, before);
});

test('no listener, or an end before the answer, is 502; an end during the answer breaks it off', async () => {
  assert.equal(errorOf(await call(path('/', 4999))), 'port_unreachable');
  onRequest = (request) => request.socket.destroy();
  const died = await call(path('/'), { method: 'POST', body: 'x' });
  assert.equal(died.status, 502);
  assert.match(died.text, /port_unreachable.*port 3000/u);
  onRequest = (request, response) => {
    response.write('some');
    setImmediate(() => request.socket.resetAndDestroy());
  };
  await assert.rejects(call(path('/')));
  await assert.rejects(call(path('/')));
});

test('a service that does not speak HTTP is 502, and so is one that upgrades without a request', async () => {
  await using rude = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', (data) =>
      socket.end(
        String(data).includes('/up')
          ? 'HTTP/1.1 101 Up\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'
          : 'SSH-2.0\r\n',
      ),
    );
  }).listen(0, '127.0.0.1');
  await once(rude, 'listening');
  harness.runner.ports.set(22, (rude.address() as AddressInfo).port);
  const reply = await call(path('/', 22));
  assert.equal(reply.status, 502);
  assert.match(reply.text, /did not answer with valid HTTP/u);
  assert.equal((await call(path('/up', 22))).status, 502);
});

test('requests share kept connections, and a client does not notice that the service closed one', async () => {
  onRequest = (_request, response) => response.end('ok');
  await call(path('/'));
  const before = harness.runner.tunnels;
  for (let count = 0; count < 5; count += 1) await call(path('/'));
  assert.equal(harness.runner.tunnels, before);
  onRequest = (request, response) => {
    // Like a server whose idle timeout elapses just when a request arrives.
    if (stale.delete(request.socket)) request.socket.destroy();
    else response.end('ok');
    stale.add(request.socket);
  };
  const stale = new Set<Socket>();
  for (let count = 0; count < 4; count += 1) assert.equal((await call(path('/'))).text, 'ok');
});

test('a client that leaves ends the request in the guest', async () => {
  let isClosed = false;
  const arrived = Promise.withResolvers<void>();
  onRequest = (request, response) => {
    response.write('begin');
    request.socket.once('close', () => (isClosed = true));
    arrived.resolve();
  };
  const abort = new AbortController();
  const answer = await harness.fetch('GET', path('/'), { signal: abort.signal });
  await arrived.promise;
  abort.abort();
  await answer.text().catch(() => undefined);
  await waitFor('the end in the guest', () => isClosed);
});

test('a client that leaves before its upgrade is answered ends the request in the guest', async () => {
  const silent = createTcpServer();
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  harness.runner.ports.set(4000, (silent.address() as AddressInfo).port);
  const { hostname, port } = new URL(harness.control?.address ?? '');
  for (const leave of [(client: Socket) => client.end(), (client: Socket) => client.resetAndDestroy()]) {
    const asked = once(silent, 'connection');
    const client = connect(Number(port), hostname);
    client.write(
      `GET ${path('/', 4000)} HTTP/1.1\r\nhost: x\r\nauthorization: ${authorization}\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n`,
    );
    const [upstream] = (await asked) as [Socket];
    await once(upstream, 'data');
    const ended = once(upstream, 'close');
    leave(client);
    await ended;
  }
  silent.close();
});

test('a shutdown cuts off endless answers, and other answers finish', async () => {
  await using other = await startHarness();
  other.runner.ports.set(PORT, (service.address() as AddressInfo).port);
  const sandbox = await other.create();
  const finish = Promise.withResolvers<void>();
  onRequest = (request, response) => {
    const isEvents = request.url === '/events';
    response.writeHead(200, { 'content-type': isEvents ? 'text/event-stream' : 'text/plain' });
    response.write('begin ');
    void finish.promise.then(() => response.end('end'));
  };
  const get = (rest: string) => other.fetch('GET', `/v1/runs/${sandbox.id}/proxy/${PORT}${rest}`);
  const [events, file] = await Promise.all([get('/events'), get('/file')]);
  const stopped = other.stopControl();
  await assert.rejects(events.text());
  finish.resolve();
  assert.equal(await file.text(), 'begin end');
  await stopped;
});

test('a client that does not read makes the service wait, and control buffers little', async () => {
  let written = 0;
  onRequest = (_request, response) => {
    const chunk = Buffer.alloc(64 << 10);
    const push = (): void => {
      let hasRoom = true;
      while (hasRoom) {
        hasRoom = response.write(chunk);
        written += chunk.length;
      }
      response.once('drain', push);
    };
    push();
  };
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const client = connect({ host: hostname, port: Number(port) });
  client.write(`GET ${path('/')} HTTP/1.1\r\nHost: x\r\nAuthorization: ${authorization}\r\n\r\n`);
  client.pause();
  let last = -1;
  await waitFor(
    'the service to wait',
    async () => {
      const isSame = last === written && written > 0;
      last = written;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return isSame;
    },
    20_000,
  );
  assert.ok(written < 64 << 20, `${written} bytes were buffered for a client that reads nothing`);
  client.destroy();
});
