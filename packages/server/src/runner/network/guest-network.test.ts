import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { execFileSync } from 'node:child_process';
import { withDeadline, pollUntil } from '../../lib/waiting/deadline.ts';
import { GuestNetwork } from './guest-network.ts';
import {
  HOST,
  INTERNET,
  listInterfaceNames,
  OPTIONS,
  runNft,
  TestSite,
  UNRESTRICTED,
} from './testing/test-site.ts';
import { openTapDevice } from './testing/tap-device.ts';
import type { Machine } from './testing/machine.ts';
import { addressesOf } from './vm-network.ts';

const REFUSED_TIMEOUT_MS = 700;
const ANSWER_TIMEOUT_MS = 5000;
const TEXT_HEX = Buffer.from('hello').toString('hex');
/** example.com A, id 0x1234 */
const QUERY_HEX = '123401000001000000000000076578616d706c6503636f6d0000010001';

function get(machine: Machine, host: string, port: number, timeoutMs = ANSWER_TIMEOUT_MS): Promise<string> {
  return machine.call('connectTcp', { host, port, timeoutMs });
}

/** Listens on all addresses of the host, as the API does with a careless configuration. */
async function listenOnHost(): Promise<{ port: number; connections: () => number } & Disposable> {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => socket.destroy());
    socket.end('host');
  });
  server.listen(0);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { port, connections: () => connections, [Symbol.dispose]: () => void server.close() };
}

async function waitForDatagram(machine: Machine, text: string): Promise<void> {
  await pollUntil({ step: `datagram "${text}"`, timeoutMs: 3000, intervalMs: 10 }, async () =>
    (await machine.call('seen', null)).datagrams.find((datagram) => datagram.text === text),
  );
}

function listTables(): string {
  return execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' });
}

/** Connects, and waits until the server has answered and closed. */
async function connectFromHost(host: string, port: number): Promise<void> {
  const socket = connect({ host, port });
  try {
    await withDeadline(`connection to ${host}`, REFUSED_TIMEOUT_MS, once(socket.resume(), 'close'));
  } finally {
    socket.destroy();
  }
}

const PRIVATE = ['10.9.9.9', '172.16.5.5', '192.168.77.7', '100.100.100.200', '192.0.0.192', '198.18.0.1'];
const NEVER = ['169.254.169.254', '240.0.0.1'];

async function refusals(guest: Machine, targets: readonly (readonly [string, number])[]): Promise<string[]> {
  return await Promise.all(targets.map(([host, port]) => get(guest, host, port, REFUSED_TIMEOUT_MS)));
}

test('a guest reaches the internet with the address of the host, and resolves names', async () => {
  await using site = await TestSite.build(['198.51.100.1']);
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [5000] });
  await site.internet.call('serveDns', { answer: 'answered' });
  const network = await site.openNetwork();
  const slot = await network.acquire('a');
  const guest = await site.startGuest(slot);
  assert.equal(await get(guest, INTERNET, 80), HOST);
  assert.equal(await get(guest, '198.51.100.1', 80), HOST);
  const udp = { host: INTERNET, port: 5000, payloadHex: TEXT_HEX, timeoutMs: ANSWER_TIMEOUT_MS };
  assert.match(Buffer.from(await guest.call('sendUdp', udp), 'hex').toString(), /^203\.0\.113\.2:/u);
  const answerHex = QUERY_HEX.replace('12340100', '12348100') + Buffer.from('answered').toString('hex');
  const dns = { host: slot.resolver, port: 53, timeoutMs: ANSWER_TIMEOUT_MS };
  assert.equal(await guest.call('sendUdp', { ...dns, payloadHex: QUERY_HEX }), answerHex);
  const streamed = { ...dns, payloadHex: `001d${QUERY_HEX}` };
  assert.equal(await guest.call('connectTcp', streamed), `0025${answerHex}`);
});

test('a guest reaches no private, link-local or reserved address, even if the host reaches it', async () => {
  await using site = await TestSite.build([...PRIVATE, ...NEVER]);
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [] });
  const network = await site.openNetwork({ openPrivateRanges: ['192.168.77.0/24'] });
  const guest = await site.startGuest(await network.acquire('a'));
  for (const address of [...PRIVATE, ...NEVER]) await connectFromHost(address, 80);
  const before = (await site.internet.call('seen', null)).connections;
  const closed = [...PRIVATE, ...NEVER].filter((address) => address !== '192.168.77.7');
  const answers = await refusals(
    guest,
    closed.map((address) => [address, 80]),
  );
  assert.deepEqual(
    answers,
    closed.map(() => 'timeout'),
  );
  assert.equal((await site.internet.call('seen', null)).connections, before);
  assert.equal(await get(guest, '192.168.77.7', 80), HOST, 'the range that the operator opened');
});

test('a guest reaches no address of the host, not even a port that the host forwards elsewhere', async () => {
  await using site = await TestSite.build(['10.9.9.9']);
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [] });
  const network = await site.openNetwork();
  const slot = await network.acquire('a');
  const guest = await site.startGuest(slot);
  using api = await listenOnHost();
  // Publishes a port as a container engine does.
  runNft(`table ip published { chain c { type nat hook prerouting priority dstnat;
    fib daddr type local tcp dport 8088 dnat to 10.9.9.9:80
  }
 }`);
  const targets: [string, number][] = [HOST, slot.gateway, slot.resolver].map((host) => [host, api.port]);
  const forwarderPort = /udp \. (?:53|domain) : 10\.202\.0\.1 \. (\d+)/u.exec(
    execFileSync('nft', ['list', 'ruleset'], { encoding: 'utf8' }),
  )?.[1];
  targets.push([slot.resolver, Number(forwarderPort)], [HOST, 8088], [slot.gateway, 8088]);
  assert.deepEqual(
    await refusals(guest, targets),
    targets.map(() => 'timeout'),
  );
  assert.equal(api.connections(), 0);
  await connectFromHost(HOST, api.port);
  assert.equal((await site.internet.call('seen', null)).connections, 0);
});

test('guests cannot reach each other, and no other machine can connect to a guest', async () => {
  await using site = await TestSite.build();
  const network = await site.openNetwork();
  const [slotA, slotB] = await Promise.all([network.acquire('a'), network.acquire('b')]);
  const [a, b] = await Promise.all([site.startGuest(slotA), site.startGuest(slotB)]);
  await b.call('serve', { tcpPorts: [80], udpPorts: [] });
  const addressB = slotB.address.replace('/30', '');
  assert.notEqual(slotA.address, slotB.address);
  await site.internet.call('ip', [`route add 10.202.0.0/16 via ${HOST}`]);
  const answers = await Promise.all(
    [a, site.internet].map((machine) => get(machine, addressB, 80, REFUSED_TIMEOUT_MS)),
  );
  assert.deepEqual(answers, ['timeout', 'timeout']);
  await assert.rejects(connectFromHost(addressB, 80));
  assert.equal((await b.call('seen', null)).connections, 0);
});

test('packets with a source address that is not the guest’s, and IPv6, are dropped', async () => {
  await using site = await TestSite.build();
  await site.internet.call('serve', { tcpPorts: [], udpPorts: [5000] });
  const network = await site.openNetwork();
  const [slotA, slotB] = await Promise.all([network.acquire('a'), network.acquire('b')]);
  const guest = await site.startGuest(slotA);
  await site.startGuest(slotB);
  const forged = ['203.0.113.77', slotB.address.replace('/30', ''), HOST, '10.202.0.4'];
  await guest.call(
    'ip',
    forged.map((address) => `address add ${address}/32 dev eth0`),
  );
  const udp = { host: INTERNET, port: 5000, timeoutMs: REFUSED_TIMEOUT_MS };
  const send = (text: string, localAddress?: string) =>
    guest.call('sendUdp', {
      ...udp,
      payloadHex: Buffer.from(text).toString('hex'),
      ...(localAddress && { localAddress }),
    });
  const answers = await Promise.all(forged.map((address) => send(`from ${address}`, address)));
  assert.deepEqual(
    answers,
    forged.map(() => 'timeout'),
  );
  await send('honest');
  const { datagrams } = await site.internet.call('seen', null);
  assert.deepEqual(datagrams, [{ from: HOST, text: 'honest' }]);

  using api = await listenOnHost();
  await guest.call('ip', [
    'address add fd00:7e57::2/64 dev eth0 nodad',
    'neighbour add fe80::1 lladdr 06:00:00:00:00:02 dev eth0',
    'route add fd00:77::/64 via fe80::1 dev eth0',
  ]);
  execFileSync('ip', ['-6', 'address', 'add', 'fd00:77::1/128', 'dev', 'lo']);
  const v6: [string, number][] = [
    ['fd00:77::1', api.port],
    ['fe80::400:ff:fe00:2%eth0', api.port],
  ];
  for (const answer of await refusals(guest, v6)) assert.match(answer, /timeout|EHOSTUNREACH/u);
  assert.equal(api.connections(), 0);
});

test('a released slot is removed at once, is reused after a pause, and inherits no connection', async () => {
  await using site = await TestSite.build();
  await site.internet.call('serve', { tcpPorts: [], udpPorts: [5000] });
  const network = await site
    .openNetwork({ guestCidr: '10.202.0.0/29', poolSize: 0 })
    .catch((error: unknown) => error);
  assert.match(String(network), /guestCidr: "10\.202\.0\.0\/29" must have a prefix/u);
  const small = await site.openNetwork({ guestCidr: '10.202.0.0/28', poolSize: 0 });
  const slots = await Promise.all(['a', 'b', 'c'].map((vm) => small.acquire(vm)));
  await assert.rejects(small.acquire('d'), { code: 'capacity' });
  assert.equal((await small.acquire('a')).index, slots[0]?.index, 'the same slot for the same VM');

  const former = await site.startGuest(slots[0]!);
  await former.call('serve', { tcpPorts: [], udpPorts: [7000] });
  const host = INTERNET;
  await former.call('sendUdpFrom', { localPort: 7000, host, port: 5000, text: 'hello' });
  await waitForDatagram(site.internet, 'hello');
  await site.internet.call('sendUdpFrom', { localPort: 5000, host: HOST, port: 7000, text: 'to the former' });
  await waitForDatagram(former, 'to the former');
  const releasedAtMs = performance.now();
  await small.release('a');
  await small.release('a');
  assert.ok(!listInterfaceNames().includes(slots[0]!.tap));
  assert.throws(() => openTapDevice(slots[0]!.tap), { code: 'internal' });

  const again = await small.acquire('d');
  assert.ok(performance.now() - releasedAtMs >= 3000);
  assert.equal(again.address, slots[0]?.address);
  const heir = await site.startGuest(again);
  await heir.call('serve', { tcpPorts: [], udpPorts: [7000] });
  await site.internet.call('sendUdpFrom', { localPort: 5000, host: HOST, port: 7000, text: 'to the former' });
  await heir.call('sendUdp', { host, port: 5000, payloadHex: TEXT_HEX, timeoutMs: ANSWER_TIMEOUT_MS });
  assert.deepEqual((await heir.call('seen', null)).datagrams, []);
});

test('guests keep their network while the runner is down, and the next runner adopts or removes it', async () => {
  await using site = await TestSite.build();
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [] });
  await site.internet.call('serveDns', { answer: 'answered' });
  const first = await GuestNetwork.open(OPTIONS);
  const slot = await first.acquire('kept');
  const lost = await first.acquire('lost');
  const guest = await site.startGuest(slot);
  await first.close();
  assert.equal(await get(guest, INTERNET, 80), HOST);
  await assert.rejects(first.acquire('late'), { code: 'unavailable' });

  const second = await site.openNetwork();
  const known = { vmId: 'run7', egress: UNRESTRICTED };
  const adopted = addressesOf(await second.adopt('kept', slot.index, known));
  assert.deepEqual([adopted?.address, adopted?.tap], [slot.address, slot.tap]);
  await assert.rejects(second.adopt('other', slot.index, known), { code: 'internal' });
  await assert.rejects(second.adopt('absent', 999, known), { code: 'internal' });
  second.sweepUnadopted();
  await pollUntil({ step: 'removal of the unadopted', timeoutMs: 5000, intervalMs: 20 }, () =>
    listInterfaceNames().includes(lost.tap) ? undefined : true,
  );
  assert.equal(await get(guest, INTERNET, 80), HOST);
  const dns = { host: slot.resolver, port: 53, timeoutMs: ANSWER_TIMEOUT_MS };
  assert.match(await guest.call('sendUdp', { ...dns, payloadHex: QUERY_HEX }), /^12348100/u);
  assert.notEqual((await second.acquire('new')).index, slot.index);
});

test('a TAP can be opened again when its former holder is gone', async () => {
  await using site = await TestSite.build();
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [] });
  const network = await site.openNetwork();
  const slot = await network.acquire('a');
  const first = await site.startGuest(slot);
  assert.throws(() => openTapDevice(slot.tap), /another process holds it/u);
  await first[Symbol.asyncDispose]();
  const second = await site.startGuest(slot);
  assert.equal(await get(second, INTERNET, 80), HOST);
});

test('the table is restored when another program flushes all rules', async () => {
  await using site = await TestSite.build(['10.9.9.9']);
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [] });
  const network = await site.openNetwork();
  const guest = await site.startGuest(await network.acquire('a'));
  execFileSync('nft', ['flush', 'ruleset']);
  await pollUntil({ step: 'return of the table', timeoutMs: 3000, intervalMs: 5 }, () =>
    listTables().includes('coppice_7e57') ? true : undefined,
  );
  assert.equal(await get(guest, INTERNET, 80), HOST);
  assert.equal(await get(guest, '10.9.9.9', 80, REFUSED_TIMEOUT_MS), 'timeout');
});

test('destroy removes everything of the network and leaves other tables alone', async () => {
  await using site = await TestSite.build();
  runNft('add table inet other');
  const network = await GuestNetwork.open(OPTIONS);
  await site.startGuest(await network.acquire('a'));
  await network.destroy();
  assert.deepEqual(
    listInterfaceNames().filter((name) => name.startsWith('cop')),
    [],
  );
  assert.equal(listTables(), 'table inet other\n');
  assert.doesNotMatch(execFileSync('ip', ['address'], { encoding: 'utf8' }), /10\.202\./u);
});

test('the error for a range that the host already uses names the interface', async () => {
  await using site = await TestSite.build();
  execFileSync('ip', ['address', 'add', '10.202.7.1/24', 'dev', 'up0']);
  await assert.rejects(
    site.openNetwork(),
    /guestCidr: 10\.202\.0\.0\/16 is in use on this host \(10\.202\.7\.1 on up0\)/u,
  );
});
