import { randomBytes } from 'node:crypto';
import { nowUnixNs } from './guest-clock.ts';
import type { ImageConfig } from '../image/store/image-store.types.ts';

const MIB = 1024 * 1024;

export interface GuestAddresses {
  /** With prefix. */
  address: string;
  gateway: string;
  resolver: string;
  mtu: number;
}

export interface ResumeInput {
  vmId: string;
  generation: number;
  image: ImageConfig;
  network: GuestAddresses | undefined;
  /** Lies under the image's own variables. */
  placeholders?: Readonly<Record<string, string>>;
  /** What the guest's monotonic clock shows now, in nanoseconds; if unknown its wall clock lags by the way there. */
  monotonicNs?: bigint | undefined;
  /** Of a disk that has grown since the guest was saved. */
  diskMiB?: number | undefined;
}

/** Body of the agent's `POST /resume`: all by which one copy of a template differs from the others. */
export function buildResumeRequest(input: ResumeInput): Record<string, unknown> {
  return {
    generation: input.generation,
    entropy: randomBytes(64).toString('base64'),
    clock_unix_ns: nowUnixNs(),
    ...(input.monotonicNs === undefined ? {} : { clock_monotonic_ns: String(input.monotonicNs) }),
    hostname: input.vmId,
    machine_id: input.vmId.replace(/^run/u, '').padEnd(32, '0').slice(0, 32),
    network: input.network === undefined ? null : toWire(input.network),
    env: { ...input.placeholders, ...input.image.env },
    user: input.image.user,
    workdir: input.image.workdir,
    dns_search: [],
    ...(input.diskMiB === undefined ? {} : { disk_bytes: input.diskMiB * MIB }),
  };
}

function toWire({ address, gateway, resolver, mtu }: GuestAddresses): Record<string, unknown> {
  return { interface: 'eth0', address, gateway, resolver, mtu };
}
