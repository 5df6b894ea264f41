import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from '../../lib/files/durable-file.ts';
import { hostBootId } from '../host/host-process.ts';
import { KvmCpus } from './boot-with-kvm.ts';

/**
 * The result of KVM probes since the host booted. After `works` KVM is not probed again. `unanswered` is not a verdict:
 * it saves later starts the same wait, while KVM is retried in the background.
 */
const Known = z.discriminatedUnion('kvm', [
  z.object({ kvm: z.literal('works'), cpus: KvmCpus }),
  z.object({ kvm: z.literal('unanswered') }),
]);
export type Known = z.infer<typeof Known>;

const Stored = z.object({ known: Known, boot_id: z.string(), binding: z.string() });

export interface KvmRecord {
  find(): Known | undefined;
  write(known: Known): void;
}

/**
 * Opens the record at `path`. A finding is valid for one `binding` and one boot of the host. `binding` changes with
 * QEMU, the kernel, the agent and the configured CPU.
 */
export function openKvmRecord(path: string, binding: string): KvmRecord {
  const bootId = hostBootId();
  return {
    find() {
      const stored = read(path);
      return stored?.boot_id === bootId && stored.binding === binding ? stored.known : undefined;
    },
    write(known) {
      writeAtomically(path, `${JSON.stringify({ known, boot_id: bootId, binding })}\n`);
    },
  };
}

/** A damaged file, or a file of an earlier version, is ignored. */
function read(path: string): z.infer<typeof Stored> | undefined {
  if (!existsSync(path)) return undefined;
  try {
    return Stored.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    return undefined;
  }
}
