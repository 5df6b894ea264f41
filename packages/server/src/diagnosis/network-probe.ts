/**
 * Forwards a connection through this host like a guest's: between two network namespaces, in through an interface with
 * Coppice's rules, out through another one, masqueraded. If a foreign rule drops the connection, the probe names it.
 *
 *     namespace "guest" ─ cop<4 hex>-0 │ host's forward hook, our rules under another name │ doc<pid> ─ namespace "outside"
 *
 * Everything ends with this process, except the table if the process is killed. Its rules then match nothing, and the
 * next probe removes it.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { Config } from '../config/config.ts';
import { withDeadline } from '../lib/waiting/deadline.ts';
import { runCommand } from '../lib/process/run-command.ts';
import {
  buildSlotAddresses,
  contains,
  formatIpv4,
  parseCidr,
  type AddressPlan,
} from '../runner/network/addresses/address-plan.ts';
import { writeTapSettings } from '../runner/network/host/host-settings.ts';
import { expectRanges } from '../runner/host-ranges/host-ranges.ts';
import { KernelTools } from '../runner/network/kernel/kernel-tools.ts';
import { findNetworkObstacle } from '../runner/network/host/requirements.ts';
import { buildRuleset, buildTableRemoval } from '../runner/network/firewall/ruleset.ts';
import {
  buildInstanceNames,
  buildTapName,
  type InstanceNames,
} from '../runner/network/addresses/slot-names.ts';
import { describeForeign, findForeignDrops, remedyFor, type ForeignChain } from './foreign-rules.ts';
import type { PeerCall } from './forward-peer.ts';
import { isProbeAlive } from './leftovers.ts';

/** Ranges for documentation (RFC 5737), which no host should use; the probe still checks. */
const GUESTS = '198.51.100.0/28';
const OUTSIDE = '203.0.113.0/30';
const PORT = 443;
const STEP_TIMEOUT_MS = 4000;
const CONNECT_TIMEOUT_MS = 2500;
const LIST_TIMEOUT_MS = 5000;
const PROBE_TABLE = /^table inet (coppice_doctor_(\d+))$/gmu;

export interface NetworkProbe {
  /** Why guests on this machine have no network at all. */
  obstacle?: string;
  /** Why forwarding was not tried. */
  untried?: string;
  forwarded?: boolean;
  /** Result of the connection if it was not forwarded. */
  outcome?: string;
  foreign?: { where: string; remedy: string; names_ours: boolean }[];
}

export async function probeNetwork({ runner }: Config, signal: AbortSignal): Promise<NetworkProbe> {
  const { slug, tools } = runner;
  const { guestCidr } = expectRanges(runner.installationDir, runner.ranges);
  const obstacle = await findNetworkObstacle({ slug, guestCidr, tools });
  if (obstacle !== undefined) return { obstacle };
  const taken = findAddressInUse();
  if (taken !== undefined) return { untried: `this host uses ${taken}, which the probe would need` };
  const kernel = new KernelTools(tools);
  await removeLeftTables(tools.nft, kernel);
  const outcome = await forward(kernel, signal);
  if (outcome === 'connected') return { forwarded: true };
  const foreign = await listForeign(tools.nft, slug);
  return {
    forwarded: false,
    outcome,
    foreign: foreign.map((chain) => ({
      where: describeForeign(chain),
      remedy: remedyFor(chain),
      names_ours: chain.namesOurs,
    })),
  };
}

function findAddressInUse(): string | undefined {
  const ranges = [GUESTS, OUTSIDE].map((range) => parseCidr('range', range));
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ family }) => family === 'IPv4')
    .map(({ address }) => address)
    .find((address) => ranges.some((range) => contains(range, parseCidr('address', `${address}/32`))));
}

async function removeLeftTables(nft: string, kernel: KernelTools): Promise<void> {
  const tables = await runCommand(nft, ['list', 'tables'], LIST_TIMEOUT_MS);
  for (const [, table = '', pid] of tables.matchAll(PROBE_TABLE)) {
    if (!isProbeAlive(Number(pid))) await kernel.nft(buildTableRemoval({ ...newNames(), table }));
  }
}

/** Returns names like those of an installation, but with a random slug. */
function newNames(): InstanceNames {
  return { ...buildInstanceNames(randomBytes(2).toString('hex')), table: `coppice_doctor_${process.pid}` };
}

async function forward(kernel: KernelTools, signal: AbortSignal): Promise<string> {
  await using made = new AsyncDisposableStack();
  const guests = parseCidr('guests', GUESTS);
  const plan: AddressPlan = { guests, resolver: formatIpv4(guests.first + 1), capacity: 1 };
  const slot = buildSlotAddresses(plan, 0);
  const outside = parseCidr('outside', OUTSIDE).first;
  const names = newNames();
  const inward = buildTapName(names, 0);
  const outward = `doc${process.pid}`;
  const [guest, server] = [made.use(await Peer.start(signal)), made.use(await Peer.start(signal))];
  made.defer(() => kernel.nft(buildTableRemoval(names)));
  const ports = { dnsUdp: 1, dnsTcp: 2, proxy: 3, credentials: 4 };
  const slots = [{ ...slot, isOpen: true }];
  await kernel.nft(buildRuleset({ names, plan, openRanges: [], ports, slots }));
  made.defer(
    async () => void (await kernel.ipBatchForced([`link delete ${inward}`, `link delete ${outward}`])),
  );
  await kernel.ipBatch([
    `link add ${inward} type veth peer name eth0 netns ${guest.pid}`,
    `link add ${outward} type veth peer name eth0 netns ${server.pid}`,
    `address add ${slot.gateway}/30 dev ${inward}`,
    `address add ${formatIpv4(outside + 1)}/30 dev ${outward}`,
    `link set ${inward} up`,
    `link set ${outward} up`,
  ]);
  // Enables forwarding only on these two interfaces; the general setting of the host stays unchanged.
  for (const name of [inward, outward]) writeTapSettings(name);
  const host = formatIpv4(outside + 2);
  await server.configure([`address add ${host}/30 dev eth0`, 'link set eth0 up']);
  await guest.configure([
    `address add ${slot.guest}/30 dev eth0`,
    'link set eth0 up',
    `route add default via ${slot.gateway}`,
  ]);
  const listening = await server.call({ call: 'listen', port: PORT });
  if (listening !== 'listening') throw new Error(`the probe's server: ${listening}`);
  return await guest.call({ call: 'connect', host, port: PORT, timeoutMs: CONNECT_TIMEOUT_MS });
}

async function listForeign(nft: string, slug: string): Promise<ForeignChain[]> {
  return findForeignDrops(
    await runCommand(nft, ['--json', 'list', 'ruleset'], LIST_TIMEOUT_MS),
    `cop${slug}`,
  );
}

/** A process in its own network namespace. */
class Peer implements AsyncDisposable {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(signal: AbortSignal): Promise<Peer> {
    const program = fileURLToPath(new URL('forward-peer.ts', import.meta.url));
    const child = spawn('unshare', ['--net', process.execPath, program], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      signal,
    });
    const failed = once(child, 'error').then(([error]) => Promise.reject(error as Error));
    await withDeadline(
      'a network namespace',
      STEP_TIMEOUT_MS,
      Promise.race([once(child, 'message'), failed]),
    );
    return new Peer(child);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async configure(commands: readonly string[]): Promise<void> {
    for (const command of ['link set lo up', ...commands]) {
      const args = ['--target', String(this.pid), '--net', 'ip', ...command.split(' ')];
      await runCommand('nsenter', args, STEP_TIMEOUT_MS);
    }
  }

  async call(call: PeerCall): Promise<string> {
    const answer = once(this.#child, 'message');
    this.#child.send(call);
    const [text] = (await withDeadline(`the probe's ${call.call}`, STEP_TIMEOUT_MS, answer)) as [string];
    return text;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }
}
