/** The files of a capture, as they are stored and fetched. */
import { closeSync, mkdirSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { VmDirectory } from '../disk/vm-directory.ts';
import { DEVICES_NAME } from '../vm/vm-files.ts';

export const IMAGE_NAME = 'image.squashfs';
const BASE_NAME = 'base.ext4';
const RAM_NAME = 'ram';
const OVERLAY = /^disk\/(?:0|[1-9]\d{0,3})\.qcow2$/u;
/** Longer chains of overlays are flattened. */
const MAX_FILES = 64;

export const StoredFile = z.object({ name: z.string(), size_bytes: z.int().nonnegative() });
export type StoredFile = z.infer<typeof StoredFile>;

/** Lists all files that a restore needs, in any order, without the manifest. */
export function listCaptureFiles(path: string): string[] {
  const overlays = readdirSync(new VmDirectory(path).overlays).map((name) => join('disk', name));
  return [RAM_NAME, DEVICES_NAME, ...overlays, IMAGE_NAME, BASE_NAME];
}

/** Throws `snapshot_unusable` unless the files are those of a capture: their names become paths. */
export function assertCaptureFiles(names: readonly string[], captureId: string): void {
  const overlays = names.filter((name) => OVERLAY.test(name));
  const required = [RAM_NAME, DEVICES_NAME, IMAGE_NAME, BASE_NAME];
  const expected = new Set([...required, ...overlays.map((_, number) => `disk/${number}.qcow2`)]);
  const isExact =
    names.length === expected.size &&
    new Set(names).size === names.length &&
    names.every((name) => expected.has(name));
  if (isExact && names.length <= MAX_FILES) return;
  throw new AppError(
    'snapshot_unusable',
    `the snapshot ${captureId} is damaged in the object store: its files are not those of a snapshot`,
  );
}

/** Opens the files of a capture for reading. */
export function openFiles(
  path: string,
  names: readonly string[],
  stack: DisposableStack,
): Map<string, number> {
  return new Map(names.map((name) => [name, openIn(stack, join(path, name), 'r')]));
}

/** Creates the files of a capture, empty. */
export function makeFiles(
  path: string,
  names: readonly string[],
  stack: DisposableStack,
): Map<string, number> {
  mkdirSync(new VmDirectory(path).overlays, { mode: 0o711 });
  return new Map(names.map((name) => [name, openIn(stack, join(path, name), 'wx')]));
}

export function openIn(stack: DisposableStack, path: string, flags: 'r' | 'wx'): number {
  const descriptor = openSync(path, flags, 0o600);
  stack.defer(() => closeSync(descriptor));
  return descriptor;
}
