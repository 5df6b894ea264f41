/**
 * A copy of QEMU, the libraries that it links to and the firmware that our machine uses: all of the host's software
 * that a VM runs. It is a copy because an upgrade of the host must not change what a running VM has open, nor what a
 * saved one is continued with. Files are at the same paths as on the host.
 */
import { existsSync, readdirSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { runCommand } from '../../lib/process/run-command.ts';
import type { Mount } from './jail-plan.ts';

const TOOL_TIMEOUT_MS = 30_000;
const FIRMWARE_DIRECTORY = '/firmware';
/** Of a process, as the kernel keeps it. */
const COMMAND_NAME_LENGTH = 15;
/** Of all that QEMU brings, what the machine `microvm` may load. */
const FIRMWARE =
  /^(?:bios-microvm\.bin|qboot\.rom|kvmvapic\.bin|pvh\.bin|(?:linux|multi)boot(?:_dma)?\.bin)$/u;

/** One file of the host; path, size and time stand for its content, as packages replace files whole. */
export interface ClosureFile {
  source: string;
  target: string;
  size: number;
  mtimeMs: number;
}

export interface QemuFiles {
  /** Targets of QEMU and of what loads its libraries. */
  program: string;
  linker: string;
  files: ClosureFile[];
}

export interface QemuClosure {
  directory: string;
  /** Path of QEMU in the jail. */
  program: string;
  /** … and of what loads its libraries, from these directories. */
  linker: string;
  libraryDirectories: string[];
  /** Where QEMU finds firmware in the jail. */
  firmwareDirectory: string;
  mounts: Mount[];
}

/** What a copy of this QEMU would hold now. */
export async function surveyQemu(qemuPath: string): Promise<QemuFiles> {
  const libraries = await findLibraries(qemuPath);
  const linker = libraries.find((path) => basename(path).startsWith('ld-'));
  if (linker === undefined) throw new Error(`${qemuPath} has no dynamic linker`);
  const files = [qemuPath, ...libraries].map((path) => describe(path, path));
  return { program: qemuPath, linker, files: [...files, ...(await findFirmware(qemuPath))] };
}

/** `name => /path (address)`, or `/path (address)` for the dynamic linker. */
async function findLibraries(program: string): Promise<string[]> {
  const output = await runCommand('ldd', [program], TOOL_TIMEOUT_MS);
  const missing = /^\s*(\S+) => not found/mu.exec(output)?.[1];
  if (missing !== undefined) throw new Error(`${program} needs ${missing}, which is not installed`);
  const paths = [...output.matchAll(/(\/\S+) \(0x/gu)].map(([, path]) => path ?? '');
  return [...new Set(paths)];
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

/** A copy that is there. */
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

/** How the copy is started where its files have the host's paths. */
export function commandInside({ program, firmwareDirectory }: QemuClosure): QemuCommand {
  return { program, args: ['-L', firmwareDirectory] };
}

/**
 * … and where it sees the host's own files: by its own dynamic linker, as the host's may come to fit other libraries.
 * Its process is then called as QEMU's is.
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
 * Whether a VM runs from the copy in `directory`. In a jail it has the copy for its root directory, seen through its
 * mounts; outside it runs the copy's linker. One that cannot be looked at may run from any.
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
