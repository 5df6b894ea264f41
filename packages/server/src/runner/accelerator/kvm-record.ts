import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from '../../lib/files/durable-file.ts';
import { hostBootId } from '../host/host-process.ts';
import { KvmCpus } from './boot-with-kvm.ts';

/**
 * What boots with KVM have shown since the host booted. `works` is not asked again. `unanswered` is no verdict: it keeps
 * later starts from waiting for the same again, while KVM is tried in the background.
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

/** `binding` changes with QEMU, kernel, agent and the CPU that is set: a finding holds for one of each, and one boot of the host. */
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

/** A file of an earlier version, or a damaged one, says nothing. */
function read(path: string): z.infer<typeof Stored> | undefined {
  if (!existsSync(path)) return undefined;
  try {
    return Stored.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    return undefined;
  }
}
