/** All attempts of a hostile root to get out, under each kind of policy, against real servers. */
import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { before, describe, it } from 'node:test';
import type { EgressCase, Surroundings } from '../fixtures/egress/egress-case.ts';
import { listCaseGroups } from '../fixtures/egress/egress-cases.ts';
import { http as plain, https, quic, raw, udp } from '../fixtures/egress/egress-attempt.ts';
import { EgressGuest } from '../fixtures/egress/egress-guest.ts';
import { useEgress, type Egress } from '../fixtures/egress/egress-shared.ts';
import { assertGroup, assertNoStray, findFaults } from '../fixtures/egress/egress-verdict.ts';
import { PLACES, PORTS } from '../fixtures/internet/zone.ts';

const { allowed, foreign, collector, resolver: publicResolver } = PLACES;
const TITLES = [
  'a list of allowed names',
  'names and an address',
  'a list of denied names',
  'addresses alone',
  'the profile of a vendor',
  'the profile that locks down',
];

const OWN_ADDRESS = "ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1";
const GATEWAY = "ip route show default | awk '{print $3}'";
const RESOLVER = "awk '/^nameserver/ {print $2}' /etc/resolv.conf";

/** Returns the forms in which programs write an IPv4 address. */
function numericForms(address: string): string[] {
  const octets = address.split('.').map(Number);
  const value = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  const octal = octets.map((octet) => `0${octet.toString(8)}`).join('.');
  return [String(value), octal, `0x${value.toString(16)}`, `[::ffff:${address}]`];
}

describe('a hostile root under a network policy', () => {
  const resources = new AsyncDisposableStack();
  const egress = useEgress(resources);
  const hostServer = http.createServer((_request, response) => response.end('host'));
  let all: Egress;
  let guest: EgressGuest;
  let sibling: EgressGuest;
  let around: Surroundings;

  before(async () => {
    all = await egress();
    const { api } = all;
    hostServer.listen(0, '0.0.0.0');
    await once(hostServer, 'listening');
    resources.defer(() => void hostServer.close());
    const policy = listCaseGroups(placeholders()).find(({ title }) => title === TITLES[0])?.body;
    const created = await Promise.all([
      EgressGuest.create(api, { ...policy }),
      EgressGuest.create(api, { network_profile: 'unrestricted' }),
    ]);
    for (const one of created) resources.use(one);
    [guest, sibling] = created;
    around = {
      resolver: await guest.read(RESOLVER),
      gateway: await guest.read(GATEWAY),
      sibling: await sibling.read(OWN_ADDRESS),
      hostPort: (hostServer.address() as AddressInfo).port,
      apiPort: Number(new URL(api.service.address).port),
    };
    await sibling.read('cd / && (setsid python3 -m http.server 7000 >/dev/null 2>&1 </dev/null &)');
  });

  it('gets through by the same attempts without a policy', async () => {
    const open: EgressCase[] = [
      { attempt: https('a name', allowed, 'allowed.example'), reaches: 'allowed' },
      { attempt: https('a foreign server', foreign, 'allowed.example'), reaches: 'foreign' },
      { attempt: https('no name', foreign, ''), reaches: 'foreign' },
      { attempt: plain('an address', foreign, foreign), reaches: 'foreign' },
      { attempt: raw('a server that speaks first', `${foreign}:${PORTS.ssh}`, []), reaches: 'foreign' },
      { attempt: udp('a datagram', `${foreign}:${PORTS.echo}`), reaches: 'foreign' },
      { attempt: quic('QUIC', foreign), reaches: 'foreign' },
      { attempt: { name: 'ping', kind: 'icmp', address: foreign }, reaches: 'foreign' },
    ];
    const results = await sibling.attempt(open.map(({ attempt }) => attempt));
    assert.deepEqual(findFaults(open, results), []);
  });

  for (const [index, title] of TITLES.entries()) {
    it(`gets past no rule of ${title}, and each refusal is logged`, { timeout: 180_000 }, async () => {
      const group = listCaseGroups(around).find((each) => each.title === title)!;
      // The create set the first policy.
      if (index > 0) await guest.putNetwork(group.body);
      await assertGroup(guest, all.internet, group);
    });
  }

  it('reaches no denied address by another spelling', async () => {
    await all.internet.forget();
    const urls = numericForms(foreign).map((form) => `http://${form}/`);
    const commands = urls.map((url) => `curl -s -g -m 8 -o /dev/null '${url}' && echo '${url}'`);
    const found = await guest.read(`${commands.join('; ')}; true`);
    assert.equal(found, '');
    const arrived = (await all.internet.seen()).filter(({ at }) => at === foreign);
    assert.deepEqual(arrived, []);
  });

  it('reaches no service of the host at 0.0.0.0, the metadata address, or the metadata paths of clouds', async () => {
    const targets = [
      `http://0.0.0.0:${around.hostPort}/`,
      `http://0.0.0.0:${around.apiPort}/healthz`,
      'http://169.254.169.254/latest/meta-data/',
      'http://169.254.169.254:8014/latest/meta-data/',
      'http://169.254.169.254:8014/proxy/openai/v1/models',
      `http://[fe80::1%25eth0]:${around.apiPort}/healthz`,
    ];
    const commands = targets.map(
      (target) => `curl -s -g -m 8 -o /dev/null -w '%{http_code} ${target}\\n' '${target}'`,
    );
    const answers = (await guest.read(`${commands.join('; ')}; true`)).split('\n');
    assert.deepEqual(
      answers.filter((answer) => /^[123]\d\d /u.test(answer) && !answer.startsWith('000')),
      [],
    );
  });

  it('gains nothing by reconfiguring its own network', { timeout: 120_000 }, async () => {
    await all.internet.forget();
    const neighbour = around.sibling;
    await guest.read(
      [
        'ip route flush cache',
        'ip link set dev eth0 down',
        'ip link set dev eth0 address 02:00:00:12:34:56',
        'ip addr flush dev eth0',
        'ip link set dev eth0 up',
        `ip addr add ${neighbour}/16 dev eth0`,
        'ip addr add 10.99.78.77/24 dev eth0',
        `ip route replace default dev eth0 onlink via ${around.gateway}`,
        'echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6',
        'ip -6 route replace default dev eth0',
      ].join(' && '),
    );
    const attempts = [
      https('a name', allowed, 'allowed.example'),
      plain('an address', foreign, foreign),
      raw('a server that speaks first', `${allowed}:${PORTS.ssh}`, []),
      raw('another guest', `${neighbour}:7000`, [{ text: 'GET / HTTP/1.0\r\n\r\n' }]),
      udp('a datagram', `${foreign}:${PORTS.echo}`),
      udp('a question to a public resolver', `${publicResolver}:${PORTS.dns}`),
      udp('a question to a resolver of its own', `${collector}:${PORTS.dns}`),
    ];
    for (const attempt of attempts) attempt.timeout_ms = 4000;
    const results = await guest.attempt(attempts);
    // The guest now has the neighbour's address itself: any answer from there comes from its own network stack.
    assert.deepEqual(
      results.filter(({ outcome }) => outcome === 'answered'),
      [],
    );
    assert.deepEqual(await all.internet.seen(), []);
    assertNoStray(all.internet);
    assert.match(await sibling.read(`curl -s -m 5 http://${allowed}/`), /^reached /u);
  });
});

function placeholders(): Surroundings {
  return { resolver: '', gateway: '', sibling: '', hostPort: 0, apiPort: 0 };
}
