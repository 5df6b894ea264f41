/**
 * Which accelerator works here, found by booting. /dev/kvm opening, and even VM and vCPU creation succeeding,
 * prove nothing: on some hosts the guest then aborts or hangs. The answer holds for one boot of the host and
 * one QEMU.
 */
import { accessSync, constants, existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import { writeAtomically } from '../../lib/durable-file.ts';
import { withDeadline } from '../../lib/deadline.ts';
import { Accelerator } from '../../lib/runner-protocol.ts';
import { AgentSession } from '../agent-client/agent-session.ts';
import type { Machine } from '../machine/machine-store.ts';
import { makeBootFiles } from './boot-files.ts';
import { hostBootId, isAlive } from './host-process.ts';
import type { Vmm } from './vmm.ts';

/** A KVM guest answers in half a second; one that hangs never does. */
const PROBE_TIMEOUT_MS = 10_000;
const PROBE_MEM_MIB = 256;

const ProbeResult = z.object({
  accelerator: Accelerator,
  reason: z.string(),
  boot_id: z.string(),
  binding: z.string(),
});

export interface AcceleratorChoice {
  accelerator: Accelerator;
  /** Why, in words for an operator. */
  reason: string;
}

export interface ProbeOptions {
  vmm: Vmm;
  machine: Machine;
  /** Where the answer is kept: `accelerator.json`, which `coppice doctor` reads too. */
  cachePath: string;
  /** RAM file and sockets of the probe; removed afterwards. */
  directory: string;
  uid: number;
  /** Changes with the machine. */
  binding: string;
  log: Logger;
}

export async function chooseAccelerator(options: ProbeOptions): Promise<AcceleratorChoice> {
  const bootId = hostBootId();
  const cached = readCached(options.cachePath);
  if (cached?.boot_id === bootId && cached.binding === options.binding) return cached;
  const choice = await probe(options);
  const result = { ...choice, boot_id: bootId, binding: options.binding };
  writeAtomically(options.cachePath, `${JSON.stringify(result)}\n`);
  return choice;
}

function readCached(path: string): z.infer<typeof ProbeResult> | undefined {
  if (!existsSync(path)) return undefined;
  try {
    return ProbeResult.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    return undefined;
  }
}

async function probe(options: ProbeOptions): Promise<AcceleratorChoice> {
  const obstacle = findKvmObstacle();
  if (obstacle !== undefined) return { accelerator: 'tcg', reason: obstacle };
  try {
    await bootOnce({ ...options, accelerator: 'kvm', timeoutMs: PROBE_TIMEOUT_MS });
    return { accelerator: 'kvm', reason: 'a kernel booted with KVM' };
  } catch (error) {
    const reason = `/dev/kvm is there, but no kernel boots with it: ${firstLine(error)}`;
    options.log.info({ err: error }, 'KVM probe failed, using emulation');
    return { accelerator: 'tcg', reason };
  }
}

/** Why it is of no use to try; undefined when a boot has to show. */
export function findKvmObstacle(): string | undefined {
  if (!existsSync('/dev/kvm')) return 'there is no /dev/kvm on this host';
  try {
    accessSync('/dev/kvm', constants.R_OK | constants.W_OK);
    return undefined;
  } catch {
    return '/dev/kvm is there, but this user may not open it: add the user to the group that owns it';
  }
}

export interface BootOptions extends Pick<ProbeOptions, 'vmm' | 'machine' | 'directory' | 'uid'> {
  accelerator: Accelerator;
  timeoutMs: number;
  /** Ends the attempt, and with it the VM. */
  signal?: AbortSignal;
}

/** Boots the guest kernel without any disk until the agent answers, and ends it. */
export async function bootOnce(options: BootOptions): Promise<void> {
  const { directory, uid, vmm, machine, accelerator, timeoutMs, signal } = options;
  const ramPath = join(directory, 'ram');
  makeBootFiles({ socketDirectory: directory, ramPath, memMiB: PROBE_MEM_MIB, uid });
  const shape = { accelerator, vcpus: 1, memMiB: PROBE_MEM_MIB };
  try {
    const launch = {
      id: 'probe',
      machine,
      shape,
      uid,
      socketDirectory: directory,
      disks: undefined,
      openTap: undefined,
      cgroupProcs: [],
    };
    const vm = await vmm.boot(launch, ramPath);
    try {
      const answered = Promise.race([
        ping(directory, timeoutMs, () => isAlive(vm.identity)),
        whenAborted(signal),
      ]);
      await withDeadline(`booting a kernel with ${accelerator.toUpperCase()}`, timeoutMs, answered);
    } finally {
      await vm.kill();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function whenAborted(signal: AbortSignal | undefined): Promise<never> {
  const aborted = Promise.withResolvers<never>();
  signal?.addEventListener('abort', () => aborted.reject(signal.reason), { once: true });
  return aborted.promise;
}

async function ping(socketDirectory: string, timeoutMs: number, alive: () => boolean): Promise<void> {
  const session = await AgentSession.open({
    socketDirectory,
    generation: 1,
    timeoutMs,
    assertAlive: () => {
      if (!alive()) throw new Error('QEMU ended');
    },
  });
  await session.call('GET', '/ping');
  session.close();
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0]?.slice(0, 200) ?? '';
}
