/**
 * The runner's own note of one VM, in the VM's directory. It is written before anything it names is made
 * (that is how undoing is registered), and again when QEMU runs; a runner that starts finds here what to
 * adopt and what to take away.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeAtomically } from '../../lib/durable-file.ts';
import { VmEnd, VmInfo } from '../../lib/runner-protocol.ts';

const VmRecord = z.object({
  version: z.literal(1),
  info: VmInfo,
  image_digest: z.string(),
  template: z.string(),
  /** Network slot; also gives the uid. */
  slot: z.int().nonnegative(),
  uid: z.int().positive(),
  /** Directories of the control groups; where they are depends on how the runner was started. */
  cgroups: z.array(z.string()).default([]),
  host_boot_id: z.string(),
  process: z.object({ pid: z.int().positive(), startTicks: z.number() }).nullable(),
  /** Last generation used on the agent's ctl port. */
  generation: z.int().nonnegative(),
  /** Written before the VM is killed: a runner that dies in the middle of an end does not change its reason. */
  end: VmEnd.optional(),
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
