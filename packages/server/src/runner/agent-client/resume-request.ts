import { randomBytes } from 'node:crypto';
import { nowUnixNs } from './guest-clock.ts';
import type { ImageConfig } from '../image/store/image-store.types.ts';

const MIB = 1024 * 1024;

export interface GuestAddresses {
  /** IP address with prefix length. */
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
  /** The image's own variables override these. */
  placeholders?: Readonly<Record<string, string>>;
  /**
   * The guest's current monotonic time in nanoseconds. If it is unknown, the guest's wall clock lags by the request's
   * latency.
   */
  monotonicNs?: bigint | undefined;
  /** Size of a disk that has grown since the guest was saved. */
  diskMiB?: number | undefined;
  /** Size of the persistent disk that is mounted at `/workspace`; absent without one, and if it is mounted already. */
  workspaceBytes?: number | undefined;
}

/** Builds the body of the agent's `POST /resume`: everything in which a copy of a template differs from the others. */
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
    ...(input.workspaceBytes === undefined ? {} : { workspace: { size_bytes: input.workspaceBytes } }),
  };
}

function toWire({ address, gateway, resolver, mtu }: GuestAddresses): Record<string, unknown> {
  return { interface: 'eth0', address, gateway, resolver, mtu };
}
