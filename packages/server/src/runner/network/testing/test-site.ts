/** The site of the component tests: a host, the internet behind it, and guests at the ends of real TAPs. */
import { execFileSync } from 'node:child_process';
import { closeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { NetworkPolicy } from '@coppice/contract';
import { pino } from 'pino';
import type { VmNote } from '../../../lib/protocol/egress-messages.ts';
import type { VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import { GuestNetwork, type GuestNetworkOptions, type NetworkSlot } from '../guest-network.ts';
import { HOSTCTL } from '../../../config/testing/hostctl.ts';
import { enterHostNamespace } from './host-namespace.ts';
import { Machine } from './machine.ts';
import { openTapDevice } from './tap-device.ts';

export const INTERNET = '203.0.113.1';
export const HOST = '203.0.113.2';

export const OPTIONS: GuestNetworkOptions = {
  slug: '7e57',
  guestCidr: '10.202.0.0/16',
  tools: { nft: 'nft', ip: 'ip', hostctl: HOSTCTL },
  poolSize: 2,
  openPrivateRanges: [],
  upstreamResolvers: [INTERNET],
  egressProgram: {
    path: fileURLToPath(new URL('egress-program.ts', import.meta.url)),
    args: [],
    hostctl: HOSTCTL,
    mustBeUnprivileged: false,
  },
  onNotes: async () => undefined,
  log: pino({ level: process.env['COPPICE_TEST_LOG'] ?? 'silent' }),
};

const ANYTHING: NetworkPolicy = { version: 1, profile: null, default: 'allow', allow: [], deny: [] };
export const UNRESTRICTED: VmEgress = { network: ANYTHING, grants: [] };
export const RESTRICTED: VmEgress = { network: { ...ANYTHING, default: 'deny' }, grants: [] };

export class TestSite implements AsyncDisposable {
  readonly #resources: AsyncDisposableStack;
  readonly internet: Machine;
  /** The notes that the networks of this site sent about their guests. */
  readonly notes: VmNote[] = [];

  private constructor(resources: AsyncDisposableStack, internet: Machine) {
    this.#resources = resources;
    this.internet = internet;
  }

  /** Builds a site. `addresses` are further ones of the internet's machine, reached by the host's default route. */
  static async build(addresses: readonly string[] = []): Promise<TestSite> {
    await using resources = new AsyncDisposableStack();
    resources.use(enterHostNamespace());
    const internet = resources.use(await Machine.start());
    runIp(`link add up0 type veth peer name eth0 netns ${internet.pid}`);
    runIp(`address add ${HOST}/24 dev up0`, 'link set up0 up', `route add default via ${INTERNET}`);
    const further = addresses.map((address) => `address add ${address}/32 dev lo`);
    await internet.call('ip', [`address add ${INTERNET}/24 dev eth0`, 'link set eth0 up', ...further]);
    return new TestSite(resources.move(), internet);
  }

  /** Opens a network; disposing the site destroys it. */
  async openNetwork(options: Partial<GuestNetworkOptions> = {}): Promise<GuestNetwork> {
    const network = await GuestNetwork.open({
      ...OPTIONS,
      onNotes: async (notes) => void this.notes.push(...notes),
      ...options,
    });
    this.#resources.defer(() => network.destroy());
    return network;
  }

  async startGuest(slot: NetworkSlot): Promise<Machine> {
    const fd = openTapDevice(slot.tap);
    try {
      const guest = this.#resources.use(await Machine.start(fd));
      await guest.call('plugTap', { mac: slot.mac, mtu: slot.mtu });
      await guest.call('ip', [
        `address add ${slot.address} dev eth0`,
        `route add default via ${slot.gateway}`,
      ]);
      return guest;
    } finally {
      closeSync(fd);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync();
  }
}

export function runIp(...commands: string[]): void {
  execFileSync('ip', ['-batch', '-'], { input: commands.join('\n') });
}

export function runNft(script: string): string {
  return execFileSync('nft', ['-f', '-'], { input: script, encoding: 'utf8' });
}

export function listInterfaceNames(): string[] {
  const text = execFileSync('ip', ['-json', 'link'], { encoding: 'utf8' });
  return (JSON.parse(text) as { ifname: string }[]).map((link) => link.ifname);
}
