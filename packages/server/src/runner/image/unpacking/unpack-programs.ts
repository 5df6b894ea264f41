/** Starts the two programs of a preparation in the launcher's jail. */
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Socket } from 'node:net';
import { cpus } from 'node:os';
import { join } from 'node:path';
import type { JailedProgram } from '../../confinement/jail.ts';
import { mountProgram } from '../../confinement/program-mounts.ts';
import { squashfsArguments } from '../layers/squashfs.ts';
import { FIRST_LAYER, type UnpackStart } from './unpack-messages.ts';
import type { UnpackPlace } from './unpack-places.ts';

/** Name of the image in the directory of a preparation. */
export const IMAGE_NAME = 'image';
const INSIDE = '/layers';
const FIRST_PIPE = 3;
const OPEN_FILES = 1024;
/** Threads of Node.js, beside those of tar2sqfs, which has some for each CPU. */
const THREADS = 128;

/** The files that the programs work on. */
export interface UnpackFiles {
  directory: string;
  /** The largest size of each file, in bytes. */
  maxFileBytes: number;
}

/** Starts the process that unpacks and merges. It has a control pipe, one for the merged archive, and one for each layer. */
export async function startUnpacking(
  place: UnpackPlace,
  files: UnpackFiles,
  start: Omit<UnpackStart, 'directory'>,
): Promise<ChildProcess> {
  const program = await confine(place, files, place.node);
  const script = openSync(place.script, 'r');
  try {
    const pipes = FIRST_LAYER - FIRST_PIPE + start.maxBytes.length;
    const asked: UnpackStart = { ...start, directory: directoryIn(place, files) };
    return place.jail.start({
      ...program,
      args: ['--input-type=module', '-', JSON.stringify(asked)],
      stdio: ['ignore', 'pipe', ...Array.from({ length: pipes }, () => 'pipe' as const), script],
      // The script comes by standard input: the user of the process may not be able to reach its file.
      input: FIRST_PIPE + pipes,
    });
  } finally {
    closeSync(script);
  }
}

/** Starts the process that packs the archive which the other one writes to `archive`. */
export async function startPacking(
  place: UnpackPlace,
  files: UnpackFiles,
  archive: Socket,
): Promise<ChildProcess> {
  const program = await confine(place, files, place.tar2sqfs);
  try {
    return place.jail.start({
      ...program,
      args: squashfsArguments(join(directoryIn(place, files), IMAGE_NAME)),
      stdio: ['ignore', 'pipe', archive],
      input: FIRST_PIPE,
    });
  } finally {
    // It would keep the archive from ending.
    archive.destroy();
  }
}

/** Path of the directory as the programs see it. */
function directoryIn({ jail }: UnpackPlace, { directory }: UnpackFiles): string {
  return jail.isReduced ? directory : INSIDE;
}

async function confine(
  place: UnpackPlace,
  files: UnpackFiles,
  program: string,
): Promise<Omit<JailedProgram, 'args' | 'stdio' | 'input'>> {
  const { jail, uid, cgroups } = place;
  const own = { source: files.directory, target: INSIDE, writable: true };
  return {
    program,
    mounts: jail.isReduced ? [] : [...(await mountProgram(program)), own],
    ...(uid !== undefined && { uid }),
    cgroups,
    limits: {
      openFiles: OPEN_FILES,
      fileSizeBytes: files.maxFileBytes,
      ...(uid !== undefined && { tasks: THREADS + 2 * cpus().length }),
    },
  };
}
