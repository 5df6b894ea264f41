/**
 * The runner's own note of one VM, in the VM's directory. It is written before anything it names is made
 * (that is how undoing is registered), and again when QEMU runs; a runner that starts finds here what to
 * adopt and what to take away.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CredentialEndpoint, NetworkPolicy } from '@coppice/contract';
import { z } from 'zod';
import { CredentialService } from '../../lib/credential-services/credential-service.ts';
import { writeAtomically } from '../../lib/files/durable-file.ts';
import { Accelerator, CaptureId, VmEnd, VmInfo, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import { Cpu } from './cpu.ts';

/** The image as a guest knows it. */
export const GuestImage = z.object({
  reference: z.string(),
  digest: z.string(),
  config: z.object({ env: z.record(z.string(), z.string()), user: z.string(), workdir: z.string() }),
});
export type GuestImage = z.infer<typeof GuestImage>;

export const TemplateShape = z.object({
  accelerator: Accelerator,
  /** Absent for those from before it was recorded. */
  cpu: Cpu.optional(),
  vcpus: z.int(),
  memMiB: z.int(),
  diskMiB: z.int(),
});

/** What the sandbox may send and is granted, without the secrets. */
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
  /** Key of the template that it was made from; null for one that goes on from a capture. */
  template: z.string().nullable(),
  /** Key of the machine that it runs on. */
  machine: z.string(),
  /** Network slot; also gives the uid. */
  slot: z.int().nonnegative(),
  uid: z.int().positive(),
  /** Directories of the control groups; where they are depends on how the runner was started. */
  cgroups: z.array(z.string()).default([]),
  /** Absent: anything, and nothing. */
  egress: EgressRecord.optional(),
  host_boot_id: z.string(),
  process: z.object({ pid: z.int().positive(), startTicks: z.number() }).nullable(),
  /** Last generation used on the agent's ctl port. */
  generation: z.int().nonnegative(),
  /** Number of the last resume that the agent was sent. */
  resume: z.int().nonnegative(),
  /** It stands still, or is about to, to be saved: a runner that finds this lets it go on. */
  capturing: z.boolean().default(false),
  /** … or ends it, if this hibernation is complete. */
  hibernating: CaptureId.optional(),
  /** Unit of the VM whose sandbox this one has taken over: that one is ended, and not reported. */
  replaces: z.string().optional(),
  /** Rollbacks of the sandbox that came to this VM, newest last: each is done once, however often it is asked for. */
  rollbacks: z.array(VmRollback).default([]),
  /** Written before the VM is killed: a runner that dies in the middle of an end does not change its reason. */
  end: VmEnd.optional(),
  /** Its end is not reported: the sandbox lives on elsewhere. */
  retired: z.boolean().default(false),
});
export type VmRecord = z.infer<typeof VmRecord>;

const FILE_NAME = 'vm.json';

export function writeVmRecord(directory: string, record: VmRecord): void {
  writeAtomically(join(directory, FILE_NAME), JSON.stringify(record));
}

/** Undefined when there is none, or none that can be read: then nothing of that VM can be kept. */
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
