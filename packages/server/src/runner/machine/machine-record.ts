/** The record of a machine, in its directory. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';

/** Part of a machine's key; raise it when the choice or the layout of a machine's files changes. */
export const MACHINE_FORMAT = 1;

const FILE_NAME = 'machine.json';

const MachineRecord = z.object({
  format: z.literal(MACHINE_FORMAT),
  qemu: z.object({
    program: z.string(),
    linker: z.string(),
    files: z.array(
      z.object({ source: z.string(), target: z.string(), size: z.number(), mtimeMs: z.number() }),
    ),
  }),
  /** SHA-256 of each file's content, in hex. */
  digests: z.object({ kernel: z.string(), initramfs: z.string() }),
  versions: z.object({ qemu: z.string(), kernel: z.string(), agent: z.string() }),
});
export type MachineRecord = z.infer<typeof MachineRecord>;

export const machineRecordPath = (directory: string): string => join(directory, FILE_NAME);

/** Returns undefined when there is no readable record. */
export function findMachineRecord(directory: string): MachineRecord | undefined {
  try {
    return MachineRecord.parse(JSON.parse(readFileSync(machineRecordPath(directory), 'utf8')));
  } catch {
    return undefined;
  }
}
