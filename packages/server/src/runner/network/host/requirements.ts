/**
 * Checks what a guest network needs of this machine, without leaving anything behind: the right to change networking,
 * TAPs, the rules in this kernel, connection tracking that can be flushed, and writable kernel settings. If anything is
 * missing, guests get no network device: never an unfiltered one.
 */
import { AppError } from '@coppice/contract';
import { accessSync, constants, readFileSync } from 'node:fs';
import { buildAddressPlan, buildSlotAddresses } from '../addresses/address-plan.ts';
import { RefusedRequestError } from '../../../lib/streams/json-line-client.ts';
import { HostControl } from '../kernel/host-control.ts';
import { KernelTools, wasCutOff, type HostPrograms } from '../kernel/kernel-tools.ts';
import { buildRuleset } from '../firewall/ruleset.ts';
import { buildConnectionMark, buildInstanceNames, type InstanceNames } from '../addresses/slot-names.ts';

/** From linux/capability.h. */
const CAP_NET_ADMIN = 12;
const IP_FORWARD = '/proc/sys/net/ipv4/ip_forward';
const MESSAGE_LIMIT = 300;

export interface RequirementsOptions {
  slug: string;
  guestCidr: string;
  tools: HostPrograms;
}

/**
 * Returns the missing requirement and its remedy in one line; undefined when nothing is missing. Throws when that
 * cannot be determined, and for a `guestCidr` that no machine can use.
 */
export async function findNetworkObstacle(options: RequirementsOptions): Promise<string | undefined> {
  const names = buildInstanceNames(options.slug);
  const tools = new KernelTools(options.tools);
  using hostControl = new HostControl(options.tools.hostctl);
  return (
    findRightsObstacle(readFileSync('/proc/self/status', 'latin1')) ??
    (await findTapObstacle(hostControl, names)) ??
    (await findToolObstacle(tools, names, options.guestCidr)) ??
    (await findFlushObstacle(hostControl, names)) ??
    findSettingsObstacle()
  );
}

/** `status` is the text of /proc/self/status. */
export function findRightsObstacle(status: string): string | undefined {
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/mu.exec(status)?.[1] ?? '0'}`);
  if (((effective >> BigInt(CAP_NET_ADMIN)) & 1n) === 1n) return undefined;
  const isRoot = /^Uid:\s+\d+\s+0\s/mu.test(status);
  return isRoot
    ? 'root has no right to change networking here (a container without CAP_NET_ADMIN); start the container with it'
    : 'the service runs as an ordinary user; run it as root';
}

async function findTapObstacle(hostControl: HostControl, names: InstanceNames): Promise<string | undefined> {
  try {
    await hostControl.checkTap(`cop${names.slug}p`);
    return undefined;
  } catch (error) {
    if (!(error instanceof RefusedRequestError)) throw error;
    return `no TAP can be made (${firstLine(error)}); load the kernel module tun, and let a container see /dev/net/tun`;
  }
}

/** Has the kernel check the instance's table without keeping it, and runs `ip`. */
async function findToolObstacle(
  tools: KernelTools,
  names: InstanceNames,
  guestCidr: string,
): Promise<string | undefined> {
  const plan = buildAddressPlan(guestCidr);
  const slots = [{ ...buildSlotAddresses(plan, 0), isOpen: true }];
  const ports = { dnsUdp: 1, dnsTcp: 2, proxy: 3, credentials: 4 };
  const ruleset = buildRuleset({ names, plan, openRanges: [], ports, slots });
  try {
    await tools.checkNft(ruleset);
    await tools.listInterfaces();
    return undefined;
  } catch (error) {
    if (!(error instanceof AppError) || wasCutOff(error)) throw error;
    return `${firstLine(error)}; install nftables and iproute2, and a kernel with nf_tables and nft_socket`;
  }
}

/** Flushes zone 0, which belongs to no slot, to check that the kernel can flush. */
async function findFlushObstacle(
  hostControl: HostControl,
  names: InstanceNames,
): Promise<string | undefined> {
  try {
    await hostControl.flushConnections(buildConnectionMark(names, 0));
    return undefined;
  } catch (error) {
    if (!(error instanceof RefusedRequestError)) throw error;
    return `connections cannot be flushed (${firstLine(error)}); load the kernel module nf_conntrack_netlink`;
  }
}

function findSettingsObstacle(): string | undefined {
  try {
    accessSync(IP_FORWARD, constants.W_OK);
    return undefined;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    return `${IP_FORWARD} cannot be written (${code}); mount /proc/sys/net writable`;
  }
}

function firstLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return (text.split('\n')[0] ?? '').slice(0, MESSAGE_LIMIT);
}
