/** The manifest of a capture. It carries its own digest, so that a damaged one is refused. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { writeDurablyLater } from '../../lib/files/durable-file.ts';
import { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import { GuestImage, TemplateShape } from '../vm/vm-record.ts';

export const MANIFEST_NAME = 'manifest.json';

const FileSum = z.object({ sizeBytes: z.int().nonnegative(), digest: z.string().regex(/^[0-9a-f]{64}$/u) });

export const CaptureManifest = z.object({
  version: z.literal(1),
  info: CaptureInfo,
  image: GuestImage,
  shape: TemplateShape,
  /** Key of the QEMU, kernel and agent that saved it. */
  machine: z.string(),
  /** Version of the devices and their order. */
  machine_version: z.int(),
  /** Whether the guest has a network device. */
  has_network: z.boolean(),
  /** Rate of the host's time stamp counter, kHz: the guest has measured it. */
  tsc_khz: z.int().positive(),
  /** Network slot that the saved VM had; its copies get another one. */
  slot: z.int().nonnegative(),
  counters: z.object({ session: z.int(), resume: z.int() }),
  /** Size and digest of each file, by path in the capture's directory. */
  files: z.record(z.string(), FileSum),
});
export type CaptureManifest = z.infer<typeof CaptureManifest>;

const Sealed = z.object({ digest: z.string(), manifest: z.unknown() });

/** Writes the manifest. Durable when it resolves, including the names in the directory. */
export function writeManifest(directory: string, manifest: CaptureManifest): Promise<void> {
  return writeDurablyLater(join(directory, MANIFEST_NAME), sealManifest(manifest));
}

/** Returns the text of a manifest with its digest. */
export function sealManifest(manifest: CaptureManifest): string {
  return `${JSON.stringify({ digest: digestOf(manifest), manifest }, undefined, 2)}\n`;
}

/** Reads and checks a manifest. Throws `snapshot_unusable`. */
export function readManifest(directory: string): CaptureManifest {
  return openManifest(() => readFileSync(join(directory, MANIFEST_NAME), 'utf8'));
}

/** As {@link readManifest}, of the text that {@link sealManifest} returned. */
export function openManifest(read: () => string): CaptureManifest {
  try {
    const sealed = Sealed.parse(JSON.parse(read()));
    if (digestOf(sealed.manifest) !== sealed.digest) throw new Error('its digest differs');
    return CaptureManifest.parse(sealed.manifest);
  } catch (error) {
    throw new AppError('snapshot_unusable', 'the snapshot is damaged: its manifest cannot be read', {
      cause: error,
    });
  }
}

function digestOf(manifest: unknown): string {
  return createHash('sha256').update(JSON.stringify(manifest)).digest('hex');
}
