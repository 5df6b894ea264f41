/**
 * A copy of QEMU, its libraries and the firmware of our machine type: all host software that a VM runs. It is a copy
 * because an upgrade of the host must change neither the files that a running VM has open nor the QEMU that continues a
 * saved VM. Files have the same paths as on the host.
 */
import { existsSync, readdirSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { runCommand } from '../../lib/process/run-command.ts';
import type { Mount } from './jail-plan.ts';
import { findLibraries } from './program-mounts.ts';

const TOOL_TIMEOUT_MS = 30_000;
const FIRMWARE_DIRECTORY = '/firmware';
/** Length of a process name in the kernel. */
const COMMAND_NAME_LENGTH = 15;
/** The firmware that the machine `microvm` may load. */
const FIRMWARE =
  /^(?:bios-microvm\.bin|qboot\.rom|kvmvapic\.bin|pvh\.bin|(?:linux|multi)boot(?:_dma)?\.bin)$/u;

/** One file of the host. Path, size and modification time identify its content, as packages replace whole files. */
export interface ClosureFile {
  source: string;
  target: string;
  size: number;
  mtimeMs: number;
}

export interface QemuFiles {
  /** Targets of QEMU and of its dynamic linker. */
  program: string;
  linker: string;
  files: ClosureFile[];
}

export interface QemuClosure {
  directory: string;
  /** Path of QEMU in the jail. */
  program: string;
  /** Path of its dynamic linker in the jail, which loads libraries from these directories. */
  linker: string;
  libraryDirectories: string[];
  /** Firmware directory in the jail. */
  firmwareDirectory: string;
  mounts: Mount[];
}

/** Returns the files that a copy of this QEMU would hold now. */
export async function surveyQemu(qemuPath: string): Promise<QemuFiles> {
  const libraries = await findLibraries(qemuPath);
  const linker = libraries.find((path) => basename(path).startsWith('ld-'));
  if (linker === undefined) throw new Error(`${qemuPath} has no dynamic linker`);
  const files = [qemuPath, ...libraries].map((path) => describe(path, path));
  return { program: qemuPath, linker, files: [...files, ...(await findFirmware(qemuPath))] };
}

async function findFirmware(qemuPath: string): Promise<ClosureFile[]> {
  const output = await runCommand(qemuPath, ['-L', 'help'], TOOL_TIMEOUT_MS);
  const found = new Map<string, string>();
  for (const directory of output.split('\n').filter((line) => existsSync(line))) {
    for (const name of readdirSync(directory)) {
      if (FIRMWARE.test(name) && !found.has(name)) found.set(name, join(directory, name));
    }
  }
  return Array.from(found, ([name, source]) => describe(source, `${FIRMWARE_DIRECTORY}/${name}`));
}

function describe(path: string, target: string): ClosureFile {
  const { size, mtimeMs } = statSync(path);
  return { source: realpathSync(path), target, size, mtimeMs };
}

/** Opens an existing copy. */
export function openClosure(directory: string, { program, linker, files }: QemuFiles): QemuClosure {
  const directories = new Set(files.map(({ target }) => dirname(target)));
  for (const other of [FIRMWARE_DIRECTORY, dirname(program)]) directories.delete(other);
  const mounts = readdirSync(directory).map((name) => ({
    source: join(directory, name),
    target: `/${name}`,
    executable: `/${name}` !== FIRMWARE_DIRECTORY,
  }));
  return {
    directory,
    program,
    linker,
    libraryDirectories: [...directories],
    firmwareDirectory: FIRMWARE_DIRECTORY,
    mounts,
  };
}

interface QemuCommand {
  program: string;
  args: string[];
}

/** Returns the command that starts the copy in a jail, where its files have the host's paths. */
export function commandInside({ program, firmwareDirectory }: QemuClosure): QemuCommand {
  return { program, args: ['-L', firmwareDirectory] };
}

/**
 * Returns the command that starts the copy outside a jail, where it sees the host's own files. It runs the copy's
 * dynamic linker, as the host's linker may stop fitting these libraries. The process then gets QEMU's name.
 */
export function commandOutside(closure: QemuClosure): QemuCommand {
  const inCopy = (path: string): string => join(closure.directory, path);
  const name = basename(closure.program).slice(0, COMMAND_NAME_LENGTH);
  return {
    program: inCopy(closure.linker),
    args: [
      ['--library-path', closure.libraryDirectories.map(inCopy).join(':'), inCopy(closure.program)],
      ['-L', inCopy(closure.firmwareDirectory), '-name', `process=${name}`],
    ].flat(),
  };
}

/**
 * Whether a VM may run from the copy in `directory`. In a jail its root directory is the copy, seen through its mounts;
 * outside it runs the copy's linker. A process that cannot be inspected may run from any copy.
 */
export function mayRunFrom(pid: number, directory: string): boolean {
  try {
    return hasForRoot(pid, directory) || readlinkSync(`/proc/${pid}/exe`).startsWith(`${directory}/`);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}

function hasForRoot(pid: number, directory: string): boolean {
  const [name] = readdirSync(directory);
  if (name === undefined) return false;
  const own = statSync(join(directory, name));
  const seen = statSync(`/proc/${pid}/root/${name}`, { throwIfNoEntry: false });
  return seen?.dev === own.dev && seen.ino === own.ino;
}
