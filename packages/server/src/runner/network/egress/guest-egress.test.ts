import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { pollUntil } from '../../../lib/waiting/deadline.ts';
import type { VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import { buildAddressPlan, buildSlotAddresses } from '../addresses/address-plan.ts';
import type { GuestNetwork, NetworkSlot } from '../guest-network.ts';
import { buildSlotElements } from '../firewall/ruleset.ts';
import { buildInstanceNames } from '../addresses/slot-names.ts';
import type { Machine } from '../testing/machine.ts';
import {
  HOST,
  INTERNET,
  OPTIONS,
  RESTRICTED,
  runIp,
  runNft,
  TestSite,
  UNRESTRICTED,
} from '../testing/test-site.ts';

const REFUSED_TIMEOUT_MS = 700;
const ANSWER_TIMEOUT_MS = 5000;
const CREDENTIALS = { host: '169.254.169.254', port: 8014 };
/** example.com A, id 0x1234 */
const QUERY_HEX = '123401000001000000000000076578616d706c6503636f6d0000010001';
const STREAMED_HEX = `001d${QUERY_HEX}`;
const ROUNDS = 20;
const PAYLOAD_BYTES = 1000;
const HELLO_HEX = Buffer.from('hello').toString('hex');

interface Setting {
  site: TestSite;
  network: GuestNetwork;
  slot: NetworkSlot;
  guest: Machine;
}

/** Starts a guest `run1` with its policy, and an internet that serves TCP 80, UDP 5000 and DNS. */
async function start(site: TestSite, egress: VmEgress): Promise<Setting> {
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [5000] });
  await site.internet.call('serveDns', { answer: 'answered' });
  const network = await site.openNetwork();
  const slot = await network.acquire('a');
  await network.setEgress('a', { vmId: 'run1', egress });
  return { site, network, slot, guest: await site.startGuest(slot) };
}

function get(machine: Machine, host: string, port: number, timeoutMs = ANSWER_TIMEOUT_MS): Promise<string> {
  return machine.call('connectTcp', { host, port, timeoutMs });
}

function sendUdp(
  guest: Machine,
  host: string,
  port: number,
  timeoutMs = REFUSED_TIMEOUT_MS,
): Promise<string> {
  return guest.call('sendUdp', { host, port, payloadHex: HELLO_HEX, timeoutMs });
}

function hold(guest: Machine): Promise<void> {
  return guest.call('holdTcp', { host: INTERNET, port: 53, timeoutMs: ANSWER_TIMEOUT_MS });
}

function useHeld(guest: Machine, timeoutMs = ANSWER_TIMEOUT_MS): Promise<string> {
  return guest.call('useHeldTcp', { payloadHex: STREAMED_HEX, timeoutMs });
}

/** Waits for notes of a destination and returns the sum of their counts. */
async function waitForNote(site: TestSite, wanted: Record<string, unknown>): Promise<number> {
  const options = { step: `note ${JSON.stringify(wanted)}`, timeoutMs: 8000, intervalMs: 20 };
  return pollUntil(options, () => {
    const counts = site.notes.flatMap(({ note }) => {
      if (note.event !== 'network.blocked') return [];
      const { count, ...data } = note.data;
      return JSON.stringify(data) === JSON.stringify(wanted) ? count : [];
    });
    return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count, 0);
  });
}

function listEgressPids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/u.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const [, parent] = /\) \S (\d+)/u.exec(readFileSync(`/proc/${pid}/stat`, 'latin1')) ?? [];
        const command = readFileSync(`/proc/${pid}/cmdline`, 'latin1');
        return Number(parent) === process.pid && command.includes('egress-program.ts');
      } catch {
        return false;
      }
    });
}

function countRules(): number {
  const text = execFileSync('nft', ['--handle', 'list', 'table', 'inet', 'coppice_7e57'], {
    encoding: 'utf8',
  });
  return [...text.matchAll(/# handle \d+/gu)].length;
}

test('all TCP of a guest with rules goes to the egress process, for any destination', async () => {
  await using site = await TestSite.build(['10.9.9.9']);
  const { network, guest, slot } = await start(site, RESTRICTED);
  const other = await network.acquire('b');
  const closed = [
    '10.9.9.9',
    HOST,
    slot.gateway,
    other.address.replace('/30', ''),
    '169.254.169.254',
    '127.8.8.8',
  ];
  for (const host of [INTERNET, ...closed]) {
    assert.equal(await get(guest, host, 80), host === '127.8.8.8' ? 'ECONNREFUSED' : 'proxy run1 0', host);
  }
  assert.equal((await site.internet.call('seen', null)).connections, 0);
  await waitForNote(site, { domain: 'proxy', reason: 'not_allowed' });
  assert.equal((await network.readEgress('a')).names_resolved, 7);
});

test('other packets of a guest with rules reach only the resolver, and each refusal is noted', async () => {
  await using site = await TestSite.build(['10.9.9.9']);
  const { network, guest, slot } = await start(site, RESTRICTED);
  for (let round = 0; round < 3; round += 1)
    assert.equal(await sendUdp(guest, INTERNET, 5000, 100), 'timeout');
  assert.equal(await sendUdp(guest, '10.9.9.9', 53), 'timeout');
  await guest.call('sendRaw', { host: INTERNET, protocol: 1 });
  assert.deepEqual((await site.internet.call('seen', null)).datagrams, []);
  const dns = { host: slot.resolver, port: 53, timeoutMs: ANSWER_TIMEOUT_MS };
  assert.match(await guest.call('sendUdp', { ...dns, payloadHex: QUERY_HEX }), /^12348100/u);
  assert.match(await guest.call('connectTcp', { ...dns, payloadHex: STREAMED_HEX }), /^\w{4}12348100/u);
  await waitForNote(site, { ip: INTERNET, port: 5000, reason: 'protocol_not_allowed' });
  await waitForNote(site, { ip: '10.9.9.9', port: 53, reason: 'private_address' });
  assert.equal(await waitForNote(site, { ip: INTERNET, reason: 'protocol_not_allowed' }), 1);
  assert.equal((await network.readEgress('a')).connections_blocked, 5);
  await network.endEgress('a');
  assert.equal(await waitForNote(site, { ip: INTERNET, port: 5000, reason: 'protocol_not_allowed' }), 3);
  assert.ok(site.notes.every(({ vmId }) => vmId === 'run1'));
});

test('refusals of a guest without rules are noted with the reason why the address is closed', async () => {
  await using site = await TestSite.build(['10.9.9.9']);
  const { guest, slot } = await start(site, UNRESTRICTED);
  assert.equal(await get(guest, INTERNET, 80), HOST);
  assert.equal(await get(guest, '10.9.9.9', 80, REFUSED_TIMEOUT_MS), 'timeout');
  assert.equal(await sendUdp(guest, '240.0.0.1', 9), 'timeout');
  assert.equal(await sendUdp(guest, HOST, 9), 'timeout');
  await waitForNote(site, { ip: '10.9.9.9', port: 80, reason: 'private_address' });
  await waitForNote(site, { ip: '240.0.0.1', port: 9, reason: 'reserved_address' });
  await waitForNote(site, { ip: HOST, port: 9, reason: 'host_address' });
  await guest.call('ip', ['address add 198.51.100.9/32 dev eth0']);
  const udp = { host: INTERNET, port: 5000, payloadHex: HELLO_HEX, timeoutMs: REFUSED_TIMEOUT_MS };
  await guest.call('sendUdp', { ...udp, localAddress: '198.51.100.9' });
  await waitForNote(site, { reason: 'source_not_own' });
  assert.notEqual(slot.gateway, INTERNET);
});

test('only the credential port of its address leads every guest to the egress process', async () => {
  await using site = await TestSite.build();
  const { network, guest } = await start(site, UNRESTRICTED);
  const other = await site.startGuest(await network.acquire('b'));
  assert.equal(await get(guest, CREDENTIALS.host, CREDENTIALS.port), 'credentials run1 0');
  assert.equal(await get(guest, CREDENTIALS.host, 80, REFUSED_TIMEOUT_MS), 'timeout');
  assert.equal(await get(other, CREDENTIALS.host, CREDENTIALS.port), 'ECONNRESET', 'its policy was not set');
});

test('a new policy ends flows that the kernel forwards, and its removal lets the kernel forward again', async () => {
  await using site = await TestSite.build();
  const { network, guest } = await start(site, UNRESTRICTED);
  const udp = { localPort: 7000, host: INTERNET, port: 5000 };
  await guest.call('sendUdpFrom', { ...udp, text: 'open' });
  await hold(guest);
  assert.match(await useHeld(guest), /12348100/u);
  await network.setEgress('a', { vmId: 'run1', egress: RESTRICTED });
  assert.match(await useHeld(guest), /ECONNRESET|EPIPE/u);
  await guest.call('sendUdpFrom', { ...udp, text: 'closed' });
  assert.equal(await get(guest, INTERNET, 80), 'proxy run1 0');
  await network.setEgress('a', { vmId: 'run1', egress: UNRESTRICTED });
  assert.equal(await get(guest, INTERNET, 80), HOST);
  await guest.call('sendUdpFrom', { ...udp, text: 'open again' });
  assert.match(await sendUdp(guest, INTERNET, 5000, ANSWER_TIMEOUT_MS), /^3230332e/u);
  const { datagrams } = await site.internet.call('seen', null);
  assert.deepEqual(
    datagrams.map(({ text }) => text),
    ['open', 'open again', 'hello'],
  );
});

test('while the egress process is down connections are refused, and the next process knows every guest', async () => {
  await using site = await TestSite.build();
  const { network, guest } = await start(site, RESTRICTED);
  const [pid] = listEgressPids();
  process.kill(pid!, 'SIGKILL');
  assert.match(await get(guest, INTERNET, 80), /ECONN/u);
  const changing = network.setEgress('a', { vmId: 'run1', egress: RESTRICTED });
  await pollUntil({ step: 'the next egress process', timeoutMs: 10_000, intervalMs: 50 }, async () =>
    (await get(guest, INTERNET, 80)) === 'proxy run1 0' ? true : undefined,
  );
  await changing;
  assert.equal(await get(guest, CREDENTIALS.host, CREDENTIALS.port), 'credentials run1 0');
  assert.notEqual(listEgressPids()[0], pid);
});

test('the egress process receives a new address of the host and keeps running', async () => {
  await using site = await TestSite.build();
  const { network } = await start(site, RESTRICTED);
  const [pid] = listEgressPids();
  const before = (await network.readEgress('a')).names_refused;
  runIp('address add 198.51.100.7/32 dev lo', 'address add 10.9.9.9/32 dev lo');
  await pollUntil({ step: 'the new addresses', timeoutMs: 10_000, intervalMs: 50 }, async () =>
    (await network.readEgress('a')).names_refused === before + 2 ? true : undefined,
  );
  assert.deepEqual(listEgressPids(), [pid]);
});

test('a policy that the egress process refuses or does not answer leaves the guest closed', async () => {
  await using site = await TestSite.build();
  const { network, guest } = await start(site, UNRESTRICTED);
  const named = (profile: string): VmEgress => ({
    ...RESTRICTED,
    network: { ...RESTRICTED.network, profile },
  });
  await assert.rejects(
    network.setEgress('a', { vmId: 'run1', egress: named('refused') }),
    /the policy is refused/u,
  );
  assert.equal((await site.internet.call('seen', null)).connections, 0);
  const [pid] = listEgressPids();
  await assert.rejects(network.setEgress('a', { vmId: 'run1', egress: named('unanswered') }), /longer than/u);
  await pollUntil({ step: 'its end', timeoutMs: 5_000, intervalMs: 20 }, async () =>
    listEgressPids().includes(pid!) ? undefined : true,
  );
  assert.match(await get(guest, INTERNET, 80), /ECONN|proxy/u);
  assert.equal((await site.internet.call('seen', null)).connections, 0);
});

test('a restarted runner opens no closed slot and breaks no flow of an open one', async () => {
  await using site = await TestSite.build();
  const { network, guest: open, slot } = await start(site, UNRESTRICTED);
  const closedSlot = await network.acquire('b');
  await network.setEgress('b', { vmId: 'run2', egress: RESTRICTED });
  const closed = await site.startGuest(closedSlot);
  await hold(open);
  assert.match(await useHeld(open), /12348100/u);
  await network.close();
  assert.match(await get(closed, INTERNET, 80), /ECONN/u);
  assert.match(await useHeld(open), /12348100/u);
  const next = await site.openNetwork();
  assert.match(await get(closed, INTERNET, 80), /ECONN/u, 'its policy is not set yet');
  assert.match(await useHeld(open), /12348100/u);
  await next.adopt('a', slot.index, { vmId: 'run1', egress: UNRESTRICTED });
  await next.adopt('b', closedSlot.index, { vmId: 'run2', egress: RESTRICTED });
  await pollUntil({ step: 'the policy of the guest', timeoutMs: 5000, intervalMs: 20 }, async () =>
    (await get(closed, INTERNET, 80)) === 'proxy run2 0' ? true : undefined,
  );
  assert.match(await useHeld(open), /12348100/u);
  assert.deepEqual((await site.internet.call('seen', null)).datagrams, []);
});

test('traffic of a guest is counted under any policy, and across a restart of the runner', async () => {
  await using site = await TestSite.build();
  const { network, guest, slot } = await start(site, UNRESTRICTED);
  await site.startGuest(await network.acquire('b'));
  await network.setEgress('b', { vmId: 'run2', egress: UNRESTRICTED });
  const send = { host: INTERNET, port: 5000, timeoutMs: ANSWER_TIMEOUT_MS };
  for (let round = 0; round < ROUNDS; round += 1)
    await guest.call('sendUdp', { ...send, payloadHex: '00'.repeat(PAYLOAD_BYTES) });
  const open = await network.readEgress('a');
  const sent = ROUNDS * PAYLOAD_BYTES;
  assert.ok(open.bytes_sent > sent && open.bytes_sent < 2 * sent, JSON.stringify(open));
  assert.ok(open.bytes_received > ROUNDS && open.bytes_received < sent, JSON.stringify(open));
  assert.deepEqual([open.connections_open, open.connections_allowed], [null, null]);
  assert.ok((await network.readEgress('b')).bytes_sent < PAYLOAD_BYTES, "not another guest's");
  await network.setEgress('a', { vmId: 'run1', egress: RESTRICTED });
  assert.equal(await get(guest, INTERNET, 80), 'proxy run1 0');
  const judged = await network.readEgress('a');
  assert.deepEqual([judged.connections_open, judged.connections_allowed], [0, 0]);
  assert.ok(judged.bytes_sent > open.bytes_sent && judged.bytes_received > open.bytes_received);
  await network.close();
  const next = await site.openNetwork();
  await next.adopt('a', slot.index, { vmId: 'run1', egress: UNRESTRICTED });
  assert.equal(await get(guest, INTERNET, 80), HOST);
  const adopted = await next.readEgress('a');
  assert.ok(adopted.bytes_sent > judged.bytes_sent && adopted.bytes_received > judged.bytes_received);
  await next.release('a');
  await assert.rejects(next.readEgress('a'), { code: 'not_found' });
});

test('a program that takes a former port of the egress process on all addresses gets no guest traffic', async () => {
  await using site = await TestSite.build();
  const { network, guest } = await start(site, RESTRICTED);
  const [, port = ''] = /proxy \{.* \. (\d+) \}/su.exec(runNft('list map inet coppice_7e57 proxy')) ?? [];
  await network.close();
  const server = createServer((socket) => socket.end('of the host')).listen(Number(port), '0.0.0.0');
  await once(server, 'listening');
  const heard = await get(guest, INTERNET, 80, REFUSED_TIMEOUT_MS);
  server.close();
  assert.equal(heard, 'timeout');
  assert.match(await get(guest, INTERNET, 80), /ECONN/u);
});

test('the table has as many rules with five hundred guests as with one', async () => {
  await using site = await TestSite.build();
  await start(site, RESTRICTED);
  const before = countRules();
  const names = buildInstanceNames(OPTIONS.slug);
  const plan = buildAddressPlan(OPTIONS.guestCidr);
  const slots = Array.from({ length: 500 }, (_, at) => ({
    ...buildSlotAddresses(plan, 1000 + at),
    isOpen: at % 2 === 0,
  }));
  runNft(buildSlotElements('add', names, slots));
  assert.ok(before > 20);
  assert.equal(countRules(), before);
});
