/**
 * The runner's record of one VM, in the VM's directory. The runner writes it before it creates anything that the record
 * names: this registers the undo. It writes the record again when the VMM runs. A starting runner reads from it what to
 * adopt and what to remove.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CredentialEndpoint, NetworkPolicy } from '@coppice/contract';
import { z } from 'zod';
import { CredentialService } from '../../lib/credential-services/credential-service.ts';
import { writeAtomically } from '../../lib/files/durable-file.ts';
import { Accelerator, CaptureId, VmEnd, VmInfo, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import { Cpu } from './cpu.ts';

/** The image as the guest sees it. */
export const GuestImage = z.object({
  reference: z.string(),
  digest: z.string(),
  config: z.object({ env: z.record(z.string(), z.string()), user: z.string(), workdir: z.string() }),
});
export type GuestImage = z.infer<typeof GuestImage>;

export const TemplateShape = z.object({
  accelerator: Accelerator,
  /** Absent in records from before the CPU was recorded. */
  cpu: Cpu.optional(),
  vcpus: z.int(),
  memMiB: z.int(),
  diskMiB: z.int(),
});

/** The network policy and the grants of the sandbox, without the secrets. */
export const EgressRecord = z.object({
  network: NetworkPolicy,
  grants: z.array(
    z.object({ service: CredentialService, endpoints: z.array(CredentialEndpoint).nullable() }),
  ),
});
export type EgressRecord = z.infer<typeof EgressRecord>;

const VmRecord = z.object({
  version: z.literal(2),
  info: VmInfo,
  image: GuestImage,
  shape: TemplateShape,
  /** Key of the VM's template; null for a VM that continues from a capture. */
  template: z.string().nullable(),
  /** Key of the machine that the VM runs on. */
  machine: z.string(),
  /** Network slot; also gives the uid. */
  slot: z.int().nonnegative(),
  uid: z.int().positive(),
  /** Directories of the control groups. Their place depends on how the runner was started. */
  cgroups: z.array(z.string()).default([]),
  /** Absent: no rules and no grants. */
  egress: EgressRecord.optional(),
  host_boot_id: z.string(),
  process: z.object({ pid: z.int().positive(), startTicks: z.number() }).nullable(),
  /** Last generation used on the agent's ctl port. */
  generation: z.int().nonnegative(),
  /** Number of the last resume sent to the agent. */
  resume: z.int().nonnegative(),
  /** The VM is stopped, or about to be, for a capture. A starting runner that finds this continues it. */
  capturing: z.boolean().default(false),
  /** A starting runner ends the VM instead if this hibernation is complete. */
  hibernating: CaptureId.optional(),
  /** Name of the VM instance whose sandbox this VM has taken over. That one is ended without a report. */
  replaces: z.string().optional(),
  /** Rollbacks of the sandbox up to this VM, newest last: each is done once, however often it is requested. */
  rollbacks: z.array(VmRollback).default([]),
  /** Written before the VM is killed, so that a runner that dies during an end does not change its reason. */
  end: VmEnd.optional(),
  /** The VM's end is not reported: its sandbox lives on elsewhere. */
  retired: z.boolean().default(false),
});
export type VmRecord = z.infer<typeof VmRecord>;

const FILE_NAME = 'vm.json';

export function writeVmRecord(directory: string, record: VmRecord): void {
  writeAtomically(join(directory, FILE_NAME), JSON.stringify(record));
}

/** Returns undefined if there is no readable record: then nothing of that VM can be kept. */
export function findVmRecord(directory: string): VmRecord | undefined {
  let text: string;
  try {
    text = readFileSync(join(directory, FILE_NAME), 'utf8');
  } catch {
    return undefined;
  }
  const parsed = VmRecord.safeParse(parseJson(text));
  return parsed.success ? parsed.data : undefined;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
