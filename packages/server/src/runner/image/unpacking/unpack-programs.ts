/** Starts the two programs of a preparation in the launcher's jail. */
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { JailedProgram } from '../../confinement/jail.ts';
import { mountProgram } from '../../confinement/program-mounts.ts';
import { squashfsArguments } from '../layers/squashfs.ts';
import { FIRST_LAYER, type UnpackStart } from './unpack-messages.ts';
import { maxTasks, type UnpackPlace } from './unpack-places.ts';

/** Name of the image in the directory of a preparation. */
export const IMAGE_NAME = 'image';
const FIRST_PIPE = 3;
const OPEN_FILES = 1024;

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
  start: Omit<UnpackStart, 'paths'>,
): Promise<ChildProcess> {
  const names = [...start.maxBytes.keys()].map(String);
  const program = await confine(place, files, { program: place.node, names });
  const script = openSync(place.script, 'r');
  try {
    const pipes = FIRST_LAYER - FIRST_PIPE + start.maxBytes.length;
    const asked: UnpackStart = { ...start, paths: names.map((name) => pathIn(place, files, name)) };
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
  const program = await confine(place, files, { program: place.tar2sqfs, names: [IMAGE_NAME] });
  if (archive.destroyed)
    throw new AppError('internal', 'the unpacking process has closed the merged archive');
  try {
    return place.jail.start({
      ...program,
      args: squashfsArguments(pathIn(place, files, IMAGE_NAME)),
      stdio: ['ignore', 'pipe', archive],
      input: FIRST_PIPE,
    });
  } finally {
    // It would keep the archive from ending.
    archive.destroy();
  }
}

/** Starts the process that writes the content of an image to its standard output, as an archive. */
export async function startReading(
  place: UnpackPlace,
  files: UnpackFiles,
  imagePath: string,
): Promise<ChildProcess> {
  const program = await confine(place, files, { program: sqfs2tarBeside(place), names: [] });
  const path = place.jail.isReduced ? imagePath : '/layers/base';
  const mounts = place.jail.isReduced ? [] : [...program.mounts, { source: imagePath, target: path }];
  const nothing = openSync('/dev/null', 'r');
  try {
    return place.jail.start({
      ...program,
      mounts,
      // Without a name for it, sqfs2tar leaves out the owner and the mode of the root.
      args: ['--root-becomes', '.', path],
      stdio: ['pipe', 'pipe', nothing],
      input: FIRST_PIPE,
    });
  } finally {
    closeSync(nothing);
  }
}

/** Both programs come from one package. */
function sqfs2tarBeside({ tar2sqfs }: UnpackPlace): string {
  return join(dirname(tar2sqfs), 'sqfs2tar');
}

/** Path of a file as the programs see it. */
function pathIn({ jail }: UnpackPlace, { directory }: UnpackFiles, name: string): string {
  return jail.isReduced ? join(directory, name) : `/layers/${name}`;
}

/** Each file is mounted by itself: the program has no directory in which it could make or replace one. */
async function confine(
  place: UnpackPlace,
  files: UnpackFiles,
  { program, names }: { program: string; names: readonly string[] },
): Promise<Omit<JailedProgram, 'args' | 'stdio' | 'input'>> {
  const { jail, uid, cgroups } = place;
  const own = names.map((name) => ({
    source: join(files.directory, name),
    target: pathIn(place, files, name),
    writable: true,
  }));
  return {
    program,
    mounts: jail.isReduced ? [] : [...(await mountProgram(program)), ...own],
    ...(uid !== undefined && { uid }),
    cgroups,
    limits: {
      openFiles: OPEN_FILES,
      fileSizeBytes: files.maxFileBytes,
      ...(uid !== undefined && { tasks: maxTasks() }),
    },
  };
}
