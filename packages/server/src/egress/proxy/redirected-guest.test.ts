/** Tests with a guest and the internet in separate namespaces, connected by virtual wires, so that packets are real. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { pino } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { enterHostNamespace } from '../../runner/network/testing/host-namespace.ts';
import { Machine } from '../../runner/network/testing/machine.ts';
import { NameServer } from '../dns/testing/name-server.ts';
import type { EgressMessage } from '../../lib/protocol/egress-messages.ts';
import { openEgressService, type EgressService } from '../egress-service.ts';
import { buildEgress, type Rules } from '../testing/egress-site.ts';
import { startDestinations } from '../testing/own-destinations.ts';
import { httpGet } from '../testing/first-words.ts';

const RESOLVER = '10.202.255.1';
const GATEWAY = '10.202.0.1';
const GUEST = '10.202.0.2';
const HOST = '203.0.113.2';
const SERVER = '203.0.113.1';
const OTHER_SERVER = '198.51.100.7';
const NAME_SERVER = '203.0.113.2';
const PORT = 8000;
const TIMEOUT_MS = 3000;
const ZONE = 77;

function ip(...commands: string[]): void {
  execFileSync('ip', ['-batch', '-'], { input: commands.join('\n') });
}

class Wires implements AsyncDisposable {
  readonly #resources: AsyncDisposableStack;
  readonly guest: Machine;
  readonly names = new NameServer();
  readonly heard: EgressMessage[] = [];
  #service: EgressService | undefined;

  private constructor(resources: AsyncDisposableStack, guest: Machine) {
    this.#resources = resources;
    this.guest = guest;
  }

  static async open(): Promise<Wires> {
    await using resources = new AsyncDisposableStack();
    resources.use(enterHostNamespace());
    const internet = resources.use(await Machine.start());
    const guest = resources.use(await Machine.start());
    ip(
      `link add up0 type veth peer name eth0 netns ${internet.pid}`,
      `link add gu0 type veth peer name eth0 netns ${guest.pid}`,
      `address add ${HOST}/24 dev up0`,
      `address add ${RESOLVER}/32 dev lo`,
      `address add ${GATEWAY}/24 dev gu0`,
      'link set up0 up',
      'link set gu0 up',
      `route add default via ${SERVER}`,
    );
    await internet.call('ip', [
      `address add ${SERVER}/24 dev eth0`,
      `address add ${OTHER_SERVER}/32 dev lo`,
      'link set eth0 up',
    ]);
    await guest.call('ip', [
      `address add ${GUEST}/24 dev eth0`,
      'link set eth0 up',
      `route add default via ${GATEWAY}`,
    ]);
    await internet.call('serve', { tcpPorts: [PORT], udpPorts: [PORT] });
    const wires = new Wires(resources.move(), guest);
    await wires.#serve();
    return wires;
  }

  async allow(rules: Rules): Promise<void> {
    const guest = { type: 'guest', address: GUEST, vmId: 'vm', egress: buildEgress(rules) } as const;
    this.#service?.hear({ ...guest, id: 1 });
  }

  /** Returns the answer of the internet's server: the address of its client. */
  async request(host: string, payload?: string): Promise<string> {
    const exchange = { host, port: PORT, timeoutMs: TIMEOUT_MS };
    if (payload === undefined) return this.guest.call('connectTcp', exchange);
    const payloadHex = Buffer.from(payload).toString('hex');
    const answer = await this.guest.call('connectTcp', { ...exchange, payloadHex });
    return /^[0-9a-f]+$/u.test(answer) ? Buffer.from(answer, 'hex').toString() : answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync();
  }

  async #serve(): Promise<void> {
    this.#resources.use(this.names);
    await this.names.listen(NAME_SERVER);
    const { destinations } = this.#resources.use(startDestinations());
    const service = await openEgressService({
      start: {
        type: 'start',
        resolver: RESOLVER,
        resolvers: [NAME_SERVER],
        closed: { openPrivateRanges: [], own: ['10.202.0.0/16', HOST] },
      },
      send: (message) => void this.heard.push(message),
      openCredentials: async () => ({ port: 1, [Symbol.asyncDispose]: async () => undefined }),
      maxFlows: 1000,
      destinations,
      log: pino({ level: 'silent' }),
    });
    this.#service = this.#resources.use(service);
    execFileSync('nft', ['-f', '-'], { input: buildRules(service.ports.proxy) });
  }
}

/** Builds rules as in the runner's table: a zone in the original direction, translation, nothing forwarded. */
function buildRules(port: number): string {
  return `table inet site {
  chain raw {
    type filter hook prerouting priority raw;
    iifname "gu0" ct original zone set ${ZONE}
  }
  chain lead {
    type nat hook prerouting priority -110;
    iifname "gu0" meta l4proto tcp dnat ip to ${RESOLVER}:${port}
  }
  chain input {
    type filter hook input priority filter;
    iifname "gu0" ct status dnat accept
    iifname "gu0" drop
  }
  chain forward { type filter hook forward priority filter; policy drop; }
}
`;
}

test('a guest is redirected to the proxy, which finds the original destination and dials from the host', async () => {
  await using wires = await Wires.open();
  wires.names.names.set('good.test', [SERVER]);
  await wires.allow({ allow: [SERVER, 'good.test'] });
  assert.equal(await wires.request(SERVER), HOST);
  assert.equal(await wires.request(OTHER_SERVER, httpGet('good.test')), HOST);
  assert.equal(await wires.request(OTHER_SERVER, httpGet('bad.test')), 'ECONNRESET');
  assert.equal(await wires.request(GATEWAY), 'ECONNRESET');
  assert.equal(await wires.request(HOST), 'ECONNRESET');
  await pollUntil({ step: 'notes', timeoutMs: TIMEOUT_MS, intervalMs: 10 }, () =>
    wires.heard.filter(({ type }) => type === 'notes').length >= 3 ? true : undefined,
  );
  const reasons = wires.heard.flatMap((message) =>
    message.type === 'notes' ? message.notes.map(({ note }) => note.data) : [],
  );
  assert.deepEqual(reasons, [
    { domain: 'bad.test', port: PORT, reason: 'not_allowed', count: 1 },
    { ip: GATEWAY, port: PORT, reason: 'host_address', count: 1 },
    { ip: HOST, port: PORT, reason: 'host_address', count: 1 },
  ]);
});
