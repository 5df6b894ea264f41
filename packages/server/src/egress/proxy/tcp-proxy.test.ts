import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { EgressSite, GUEST, OTHER_GUEST, OTHER_SERVER, SERVER } from '../testing/egress-site.ts';
import { hearFirst, hearOut, httpGet } from '../testing/first-words.ts';
import type { Socket } from 'node:net';

/** Loopback transfers 64 MiB in a tenth of this time. */
const STALL_MS = 1500;

const echo = (socket: Socket) => void socket.pipe(socket);
const sayWho = (who: string) => (socket: Socket) => void socket.once('data', () => socket.end(who));

test('a connection is allowed by its address, and no byte is read before it is open', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => socket.end('greeting'));
  await site.setGuest({ allow: [SERVER] });
  assert.equal(await hearOut(site.connect(port)), 'greeting');
  const counters = await site.counters();
  assert.equal(counters?.connections_allowed, 1);
});

test('a connection that is not allowed, or comes from an unknown guest, ends with a reset', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(sayWho('never'));
  await site.setGuest({ allow: [OTHER_SERVER] });
  assert.equal(await hearOut(site.connect(port)), 'ECONNRESET');
  assert.deepEqual(await site.blocked(), [{ ip: SERVER, port, reason: 'not_allowed', count: 1 }]);
  assert.equal(await hearOut(site.connect(port, { from: OTHER_GUEST })), 'ECONNRESET');
  assert.equal((await site.counters())?.connections_blocked, 1);
});

test('no policy opens the host or other guests', async () => {
  await using site = await EgressSite.open();
  await site.setGuest({ deny: ['bad.test'] });
  assert.equal(await hearOut(site.connect(80, { to: OTHER_GUEST })), 'ECONNRESET');
  assert.deepEqual(await site.blocked(), [{ ip: OTHER_GUEST, port: 80, reason: 'host_address', count: 1 }]);
});

test('a name is dialled with the host’s resolver for any address that the guest connects to', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(sayWho('the named one'));
  await site.serve(sayWho('one of the guest’s'), OTHER_SERVER, port);
  site.names.set('good.test', [SERVER]);
  await site.setGuest({ allow: ['good.test'] });
  const socket = site.connect(port, { to: OTHER_SERVER });
  socket.write(httpGet('good.test'));
  assert.equal(await hearOut(socket), 'the named one');
});

test('an address literal is not a name, and one that differs from the connection’s address is refused', async () => {
  await using site = await EgressSite.open();
  await site.setGuest({ allow: ['good.test'] });
  for (const host of [SERVER, OTHER_SERVER]) {
    const socket = site.connect(80);
    socket.write(httpGet(host));
    assert.equal(await hearOut(socket), 'ECONNRESET');
  }
  assert.deepEqual(await site.blocked(2), [
    { ip: SERVER, port: 80, reason: 'name_missing', count: 1 },
    { ip: SERVER, port: 80, reason: 'name_invalid', count: 1 },
  ]);
});

test('the connections of a guest are limited, and refusals are noted', async () => {
  await using site = await EgressSite.open({ maxFlows: 2 });
  const port = await site.serve(echo);
  await site.setGuest({ allow: [SERVER] });
  for (let index = 0; index < 2; index += 1) {
    const socket = site.connect(port);
    socket.write('x');
    assert.equal(await hearFirst(socket), 'x');
  }
  assert.equal(await hearOut(site.connect(port)), 'ECONNRESET');
  assert.deepEqual(await site.blocked(), [{ ip: SERVER, port, reason: 'too_many_connections', count: 1 }]);
});

test('hundreds of connections to one name at once wait for one answer of a slow resolver', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(echo);
  site.names.set('good.test', [SERVER]);
  site.delayAnswers(500);
  await site.setGuest({ allow: ['good.test'] });
  const heard = await Promise.all(
    Array.from({ length: 200 }, () => {
      const socket = site.connect(port);
      socket.write(httpGet('good.test'));
      return hearFirst(socket);
    }),
  );
  assert.deepEqual([...new Set(heard)], [httpGet('good.test')]);
  assert.deepEqual(site.asked, ['good.test']);
});

test('among several addresses of a name the one that the guest chose is dialled first', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(sayWho('first'));
  await site.serve(sayWho('second'), OTHER_SERVER, port);
  site.names.set('good.test', [SERVER, OTHER_SERVER]);
  await site.setGuest({ allow: ['good.test'] });
  const socket = site.connect(port, { to: OTHER_SERVER });
  socket.write(httpGet('good.test'));
  assert.equal(await hearOut(socket), 'second');
});

test('a name that resolves to a closed or denied address is refused with that address', async () => {
  await using site = await EgressSite.open();
  site.names.set('inside.test', ['10.0.0.7']);
  site.names.set('denied.test', [OTHER_SERVER]);
  await site.setGuest({ allow: ['*.test'], deny: [OTHER_SERVER] });
  for (const name of ['inside.test', 'denied.test']) {
    const socket = site.connect(80);
    socket.write(httpGet(name));
    assert.equal(await hearOut(socket), 'ECONNRESET');
  }
  assert.deepEqual(await site.blocked(2), [
    { domain: 'inside.test', ip: '10.0.0.7', port: 80, reason: 'private_address', count: 1 },
    { domain: 'denied.test', ip: OTHER_SERVER, port: 80, reason: 'denied_by_rule', count: 1 },
  ]);
});

test('data of a server that sends first is forwarded, and a name after the wait cuts the connection', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => {
    socket.write('220 ready\r\n');
    socket.on('data', (chunk) => socket.write(chunk));
  });
  await site.setGuest({ deny: ['bad.test'] });
  const honest = site.connect(port);
  assert.equal(await hearFirst(honest), '220 ready\r\n');
  honest.write('EHLO me\r\n');
  assert.equal(await hearFirst(honest), 'EHLO me\r\n');
  const late = site.connect(port);
  assert.equal(await hearFirst(late), '220 ready\r\n');
  late.write(httpGet('bad.test'));
  assert.equal(await hearOut(late), 'ECONNRESET');
  assert.deepEqual(await site.blocked(), [{ ip: SERVER, port, reason: 'name_late', count: 1 }]);
});

test('half-close and reset are forwarded in both directions', async () => {
  await using site = await EgressSite.open();
  const served: Socket[] = [];
  const port = await site.serve((socket) => {
    served.push(socket);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('end', () => socket.end(`heard ${Buffer.concat(chunks).toString()}`));
  });
  await site.setGuest({ allow: [SERVER] });
  const polite = site.connect(port);
  polite.end('all of it');
  assert.equal(await hearOut(polite), 'heard all of it');
  const rude = site.connect(port);
  rude.write('x');
  await once(rude, 'connect');
  while (served.length < 2) await new Promise(setImmediate);
  const broken = once(served[1]!, 'error');
  rude.resetAndDestroy();
  const [error] = (await broken) as [NodeJS.ErrnoException];
  assert.equal(error.code, 'ECONNRESET');
});

test('an unreachable server causes a reset and is not noted as a refusal', async () => {
  await using site = await EgressSite.open();
  const probe = createServer().listen(0, SERVER);
  await once(probe, 'listening');
  const { port } = probe.address() as { port: number };
  probe.close();
  await site.setGuest({ allow: [SERVER, 'nowhere.test'] });
  assert.equal(await hearOut(site.connect(port)), 'ECONNRESET');
  const socket = site.connect(80, { to: OTHER_SERVER });
  socket.write(httpGet('nowhere.test'));
  assert.equal(await hearOut(socket), 'ECONNRESET');
  assert.equal((await site.counters())?.connections_blocked, 0);
});

test('data that the guest sends faster than the server reads waits in the guest', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => void socket.pause());
  await site.setGuest({ allow: [SERVER] });
  const socket = site.connect(port);
  await once(socket, 'connect');
  const write = promisify(socket.write.bind(socket) as (chunk: Buffer, done: () => void) => void);
  let takenMiB = 0;
  const writeAll = async (): Promise<void> => {
    for (; takenMiB < 64; takenMiB += 1) await write(Buffer.alloc(1 << 20));
  };
  await assert.rejects(withDeadline('taking 64 MiB', STALL_MS, writeAll()), /longer than/u);
  assert.ok(takenMiB < 32, `${takenMiB} MiB were taken`);
});

test('a new policy cuts the open connections that it refuses, and no others', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(echo);
  await site.serve(echo, OTHER_SERVER, port);
  site.names.set('good.test', [SERVER]);
  await site.setGuest({ allow: ['good.test', OTHER_SERVER] });
  const named = site.connect(port);
  named.write(httpGet('good.test'));
  assert.match(await hearFirst(named), /good\.test/u);
  const addressed = site.connect(port, { to: OTHER_SERVER });
  addressed.write('hello');
  assert.equal(await hearFirst(addressed), 'hello');
  await site.setGuest({ allow: ['good.test'] });
  assert.equal(await hearOut(addressed), 'ECONNRESET');
  named.write('still here');
  assert.equal(await hearFirst(named), 'still here');
  await site.setGuest({ allow: ['other.test'] });
  assert.equal(await hearOut(named), 'ECONNRESET');
  const reasons = await site.blocked(2);
  assert.deepEqual(reasons[1], { domain: 'good.test', port, reason: 'not_allowed', count: 1 });
  await site.untilClosed();
});

test('a connection whose name was not read is cut by the first policy with name rules', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(echo);
  await site.setGuest({ deny: [OTHER_SERVER] });
  const socket = site.connect(port);
  socket.write(httpGet('bad.test'));
  await hearFirst(socket);
  await site.setGuest({ deny: ['bad.test'] });
  assert.equal(await hearOut(socket), 'ECONNRESET');
});

test('a new policy ends connections that wait for a name, and late names pass where no name matters', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => {
    socket.write('220 ready');
    socket.on('data', (chunk) => socket.write(chunk));
  });
  await site.setGuest({ allow: ['good.test'] });
  const waiting = site.connect(80);
  waiting.write('GET / HT');
  await once(waiting, 'connect');
  await site.setGuest({ deny: ['bad.test'] });
  const silent = site.connect(port);
  assert.equal(await hearFirst(silent), '220 ready');
  await site.setGuest({});
  silent.write(httpGet('bad.test'));
  assert.match(await hearFirst(silent), /bad\.test/u);
  const ends = [hearOut(waiting), hearOut(silent)];
  await site.setGuest({ deny: ['0.0.0.0/0'] });
  assert.deepEqual(await Promise.all(ends), ['ECONNRESET', 'ECONNRESET']);
});

test('a forgotten guest has nothing open, and the next guest can use its address', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(echo);
  await site.setGuest({ allow: [SERVER] });
  const socket = site.connect(port);
  socket.write('x');
  await hearFirst(socket);
  await site.setGuest({ allow: [SERVER] }, GUEST, 'the-next');
  assert.equal(await hearOut(socket), 'ECONNRESET');
  assert.equal((await site.counters())?.connections_allowed, 0);
  const next = site.connect(port);
  next.write('x');
  assert.equal(await hearFirst(next), 'x');
  await site.forget();
  assert.equal(await hearOut(next), 'ECONNRESET');
  assert.equal(await site.counters(), null);
});

test('1,000 open connections are judged again in milliseconds', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve(echo);
  site.names.set('good.test', [SERVER]);
  const many = Array.from({ length: 10_000 }, (_, index) => `host-${index}.test`);
  await site.setGuest({ allow: ['good.test', ...many.slice(1)] });
  const open = async () => {
    const socket = site.connect(port);
    socket.write(httpGet('good.test'));
    assert.equal(await hearFirst(socket), httpGet('good.test'));
    return socket;
  };
  const sockets: Socket[] = [];
  for (let batch = 0; batch < 10; batch += 1)
    sockets.push(...(await Promise.all(Array.from({ length: 100 }, open))));
  const start = performance.now();
  await site.setGuest({ allow: ['good.test'] });
  const tookMs = performance.now() - start;
  assert.equal((await site.counters())?.connections_open, 1000);
  assert.ok(tookMs < 200, `took ${tookMs} ms`);
  for (const socket of sockets) socket.destroy();
});
