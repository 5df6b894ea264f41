import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { EgressSite, GUEST, OTHER_GUEST, OTHER_SERVER, RESOLVER, SERVER } from './testing/egress-site.ts';
import { hearFirst, hearOut, httpGet } from './testing/first-words.ts';

/** Returns a resolver that works like the one in the guest. */
function resolverOf(address = GUEST): Resolver {
  const resolver = new Resolver({ timeout: 2000, tries: 1 });
  resolver.setServers([RESOLVER]);
  resolver.setLocalAddress(address);
  return resolver;
}

/** Sends a raw datagram from the guest and returns the answer. */
async function askRaw(query: Buffer): Promise<Buffer> {
  const socket = createSocket('udp4');
  socket.bind(0, GUEST, () => socket.send(query, 53, RESOLVER));
  try {
    const [answer] = (await once(socket, 'message', { signal: AbortSignal.timeout(5000) })) as [Buffer];
    return answer;
  } finally {
    socket.close();
  }
}

const codeOf = (asking: Promise<unknown>) =>
  asking.then(
    () => 'answered',
    (error: NodeJS.ErrnoException) => error.code,
  );

test('under an allow list only names that could be allowed are sent upstream; the others do not exist', async () => {
  await using site = await EgressSite.open();
  site.names.set('good.test', [SERVER]);
  site.names.set('secret.evil.test', [SERVER]);
  await site.setGuest({ allow: ['good.test', '*.wild.test'] });
  const resolver = resolverOf();
  assert.deepEqual(await resolver.resolve4('good.test'), [SERVER]);
  assert.equal(await codeOf(resolver.resolve4('secret.evil.test')), 'ENOTFOUND');
  assert.equal(await codeOf(resolver.resolve4('wild.test')), 'ENOTFOUND');
  assert.deepEqual(site.asked, ['good.test']);
  assert.deepEqual((await site.blocked(2))[0], {
    domain: 'secret.evil.test',
    reason: 'not_allowed',
    count: 1,
  });
  const counters = await site.counters();
  assert.equal(counters?.names_resolved, 1);
  assert.equal(counters?.names_refused, 2);
});

test('under a deny list other names are asked for, under a lock none, and a new policy applies at once', async () => {
  await using site = await EgressSite.open();
  site.names.set('good.test', [SERVER]);
  await site.setGuest({ deny: ['bad.test'] });
  const resolver = resolverOf();
  assert.deepEqual(await resolver.resolve4('good.test'), [SERVER]);
  assert.equal(await codeOf(resolver.resolve4('bad.test')), 'ENOTFOUND');
  await site.setGuest({ deny: ['0.0.0.0/0'] });
  assert.equal(await codeOf(resolver.resolve4('good.test')), 'ENOTFOUND');
  await site.setGuest({});
  assert.deepEqual(await resolver.resolve4('good.test'), [SERVER]);
});

test('under address rules a name resolves to the allowed addresses, which can then be dialled', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => socket.end('here'));
  site.names.set('both.test', [OTHER_SERVER, SERVER]);
  site.names.set('outside.test', [OTHER_SERVER, SERVER]);
  await site.setGuest({ allow: [`${SERVER}/32`], deny: ['0.0.0.0/0'] });
  const resolver = resolverOf();
  assert.deepEqual(await resolver.resolve4('both.test'), [SERVER]);
  const socket = site.connect(port);
  socket.write(httpGet('both.test'));
  assert.equal(await hearOut(socket), 'here');
  site.names.set('outside.test', [OTHER_SERVER]);
  assert.equal(await codeOf(resolver.resolve4('outside.test')), 'ENOTFOUND');
  assert.deepEqual(await site.blocked(), [
    { domain: 'outside.test', ip: OTHER_SERVER, reason: 'not_allowed', count: 1 },
  ]);
  const counters = await site.counters();
  assert.deepEqual([counters?.names_resolved, counters?.names_refused], [1, 1]);
});

test('under address rules a guest receives only addresses: no alias and no record of another type', async () => {
  await using site = await EgressSite.open();
  site.aliases.set('alias.test', 'words.stranger.test');
  site.names.set('words.stranger.test', [SERVER]);
  await site.setGuest({ allow: [SERVER] });
  const resolver = resolverOf();
  const asks = [
    resolver.resolve6('alias.test'),
    resolver.resolveTxt('alias.test'),
    resolver.resolveCname('alias.test'),
    resolver.resolvePtr('10.113.0.203.in-addr.arpa'),
  ];
  for (const code of await Promise.all(asks.map(codeOf))) assert.equal(code, 'ENODATA');
  assert.deepEqual(site.asked, [], 'questions for other types are not sent upstream');
  assert.deepEqual(await resolver.resolve4('alias.test', { ttl: true }), [{ address: SERVER, ttl: 300 }]);
  assert.deepEqual([...site.askedTypes], [1]);
  const question = Buffer.from('123401000001000000000000', 'hex');
  const answer = await askRaw(Buffer.concat([question, Buffer.from('\x05alias\x04test\0\0\x01\0\x01')]));
  assert.equal(answer.includes('stranger'), false);
});

test('under name and address rules an allowed name has all its addresses, others only the allowed ones', async () => {
  await using site = await EgressSite.open();
  for (const name of ['good.test', 'else.test', 'bad.test', 'to-bad.test'])
    site.names.set(name, [SERVER, OTHER_SERVER]);
  site.aliases.set('to-bad.test', 'bad.test');
  await site.setGuest({ allow: ['good.test', SERVER], deny: ['bad.test'] });
  const resolver = resolverOf();
  assert.deepEqual(await resolver.resolve4('good.test'), [SERVER, OTHER_SERVER]);
  assert.deepEqual(await resolver.resolve4('else.test'), [SERVER]);
  assert.equal(await codeOf(resolver.resolve4('bad.test')), 'ENOTFOUND');
  assert.equal(await codeOf(resolver.resolve4('to-bad.test')), 'ENOTFOUND');
  const told = (await site.blocked(2)) as { domain: string; reason: string }[];
  assert.deepEqual(
    told.map(({ domain, reason }) => `${domain} ${reason}`),
    ['bad.test denied_by_rule', 'to-bad.test denied_by_rule'],
  );
});

test('an unregistered guest gets a failure, so that it asks again', async () => {
  await using site = await EgressSite.open();
  site.names.set('good.test', [SERVER]);
  assert.equal(await codeOf(resolverOf(OTHER_GUEST).resolve4('good.test')), 'ESERVFAIL');
  assert.deepEqual(site.asked, []);
});

test('a connection is dialled with the DNS answer that the guest received', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => socket.end('here'));
  site.names.set('good.test', [SERVER]);
  await site.setGuest({ allow: ['good.test'] });
  await resolverOf().resolve4('good.test');
  site.names.set('good.test', [OTHER_SERVER]);
  const socket = site.connect(port);
  socket.write(httpGet('good.test'));
  assert.equal(await hearOut(socket), 'here');
  assert.deepEqual(site.asked, ['good.test']);
});

test('HTTP/2 without TLS, requests to a proxy and silence have no name and are refused for that reason', async () => {
  await using site = await EgressSite.open();
  await site.setGuest({ allow: ['good.test'] });
  const clear = site.connect(80);
  clear.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  assert.equal(await hearOut(clear), 'ECONNRESET');
  const proxy = site.connect(80);
  proxy.write('CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n');
  assert.equal(await hearOut(proxy), 'ECONNRESET');
  const mute = site.connect(22);
  assert.equal(await hearOut(mute), 'ECONNRESET');
  const reasons = (await site.blocked(2)) as { reason: string; count: number }[];
  assert.deepEqual(
    reasons.map(({ reason }) => reason),
    ['name_hidden', 'name_missing'],
  );
});

test('a new address of the host is also closed to open flows, and nothing else ends', async () => {
  await using site = await EgressSite.open();
  const echo = (socket: Socket): void => void socket.pipe(socket);
  const port = await site.serve(echo);
  await site.serve(echo, OTHER_SERVER, port);
  await site.setGuest({ allow: [SERVER, OTHER_SERVER] });
  const [here, there] = [SERVER, OTHER_SERVER].map((to) => site.connect(port, { to }));
  for (const socket of [here, there]) {
    socket?.write('first');
    assert.equal(await hearFirst(socket!), 'first');
  }
  await site.setHostAddresses(SERVER);
  assert.equal(await hearOut(here!), 'ECONNRESET');
  there?.write('second');
  assert.equal(await hearFirst(there!), 'second');
  assert.equal(await hearOut(site.connect(port)), 'ECONNRESET');
  await site.setGuest({ allow: [SERVER] }, OTHER_GUEST);
  assert.equal(await hearOut(site.connect(port, { from: OTHER_GUEST })), 'ECONNRESET', 'a later connection');
  for (const note of await site.blocked(2))
    assert.deepEqual(note, { ip: SERVER, port, reason: 'host_address', count: 1 });
  await site.setHostAddresses();
  const again = site.connect(port);
  again.write('third');
  assert.equal(await hearFirst(again), 'third');
});

test('notes continue when they are acknowledged, and those of a guest arrive before it is forgotten', async () => {
  await using site = await EgressSite.open();
  site.acknowledges = false;
  await site.setGuest({ allow: [OTHER_SERVER] });
  for (let index = 0; index < 3; index += 1) assert.equal(await hearOut(site.connect(81)), 'ECONNRESET');
  assert.equal((await site.blocked()).length, 1);
  await site.forget();
  assert.deepEqual(await site.blocked(2), [
    { ip: SERVER, port: 81, reason: 'not_allowed', count: 1 },
    { ip: SERVER, port: 81, reason: 'not_allowed', count: 2 },
  ]);
  assert.ok(site.unacknowledged.length > 0);
});

test('no order of broken connections ends the process or leaves a connection open', async () => {
  await using site = await EgressSite.open();
  const port = await site.serve((socket) => void socket.resume().on('end', () => socket.end()));
  site.names.set('good.test', [SERVER]);
  await site.setGuest({ allow: ['good.test', SERVER] });
  const words = ['', 'G', 'GET / HTTP/1.1\r\n', httpGet('good.test'), httpGet('bad.test'), '\x16\x03\x01'];
  for (let round = 0; round < 60; round += 1) {
    const socket = site.connect(port, { to: round % 2 === 0 ? SERVER : OTHER_SERVER });
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(words[round % words.length] ?? '');
    if (round % 3 === 0) socket.resetAndDestroy();
    else if (round % 3 === 1) socket.end();
    else setTimeout(() => socket.destroy(), round);
  }
  const alive = site.connect(port);
  alive.end(httpGet('good.test'));
  assert.equal(await hearFirst(alive), 'closed');
  await site.setGuest({ deny: ['0.0.0.0/0'] });
  await site.untilClosed();
});
