/**
 * A copy of QEMU, the libraries that it links to and the firmware that our machine uses: all of the host's software
 * that is in a jail. It is a copy because an upgrade of the host must not change what a running VM has open. One
 * directory for each version, under the same paths as on the host, complete when it has its name.
 */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { syncDirectory } from '../../lib/durable-file.ts';
import { runCommand } from '../../lib/run-command.ts';
import type { Mount } from './jail-plan.ts';

/** Part of the name: raise when the content is chosen or laid out in another way. */
const FORMAT = 1;
const TOOL_TIMEOUT_MS = 30_000;
const BUILDING = '.building';
const FIRMWARE_DIRECTORY = '/firmware';
/** Of a process, as the kernel keeps it. */
const COMMAND_NAME_LENGTH = 15;
/** Of all that QEMU brings, what the machine `microvm` may load. */
const FIRMWARE =
  /^(?:bios-microvm\.bin|qboot\.rom|kvmvapic\.bin|pvh\.bin|(?:linux|multi)boot(?:_dma)?\.bin)$/u;
/**
 * A program that its own user may not read cannot be traced, whoever asks, nor does it leave a core file. An ordinary
 * user's runner is that same user: it could no longer see which of the processes are its own VMs.
 */
const PROGRAM_MODE = process.getuid?.() === 0 ? 0o111 : 0o555;
const LIBRARY_MODE = 0o555;

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

interface ClosureFile {
  source: string;
  target: string;
  mode: number;
}

/** Makes the copy unless it is there. `directory` holds those of all versions. */
export async function ensureQemuClosure(directory: string, qemuPath: string): Promise<QemuClosure> {
  mkdirSync(directory, { recursive: true, mode: 0o711 });
  const files = [
    { source: qemuPath, target: qemuPath, mode: PROGRAM_MODE },
    ...(await findLibraries(qemuPath)),
    ...(await findFirmware(qemuPath)),
  ];
  const closure = join(directory, keyOf(files));
  const libraries = files.filter(({ mode }) => mode === LIBRARY_MODE).map(({ target }) => target);
  const linker = libraries.find((path) => basename(path).startsWith('ld-')) ?? '';
  if (!existsSync(closure)) build(closure, files);
  const mounts = readdirSync(closure).map((name) => ({
    source: join(closure, name),
    target: `/${name}`,
    executable: `/${name}` !== FIRMWARE_DIRECTORY,
  }));
  return {
    directory: closure,
    program: qemuPath,
    linker,
    libraryDirectories: [...new Set(libraries.map((path) => dirname(path)))],
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

/** `name => /path (address)`, or `/path (address)` for the dynamic linker. */
async function findLibraries(program: string): Promise<ClosureFile[]> {
  const output = await runCommand('ldd', [program], TOOL_TIMEOUT_MS);
  const missing = /^\s*(\S+) => not found/mu.exec(output)?.[1];
  if (missing !== undefined) throw new Error(`${program} needs ${missing}, which is not installed`);
  const paths = [...output.matchAll(/(\/\S+) \(0x/gu)].map(([, path]) => path ?? '');
  return [...new Set(paths)].map((path) => ({ source: path, target: path, mode: LIBRARY_MODE }));
}

async function findFirmware(qemuPath: string): Promise<ClosureFile[]> {
  const output = await runCommand(qemuPath, ['-L', 'help'], TOOL_TIMEOUT_MS);
  const found = new Map<string, string>();
  for (const directory of output.split('\n').filter((line) => existsSync(line))) {
    for (const name of readdirSync(directory)) {
      if (FIRMWARE.test(name) && !found.has(name)) found.set(name, join(directory, name));
    }
  }
  return [...found].map(([name, source]) => ({
    source,
    target: `${FIRMWARE_DIRECTORY}/${name}`,
    mode: 0o444,
  }));
}

/** Path, size and time stand for the content: packages replace files whole. */
function keyOf(files: readonly ClosureFile[]): string {
  const parts = files.map(({ source, target, mode }) => {
    const { size, mtimeMs } = statSync(source);
    return [realpathSync(source), target, mode, size, mtimeMs];
  });
  return createHash('sha256')
    .update(JSON.stringify([FORMAT, parts]))
    .digest('hex')
    .slice(0, 32);
}

function build(closure: string, files: readonly ClosureFile[]): void {
  const building = `${closure}${BUILDING}`;
  rmSync(building, { recursive: true, force: true });
  for (const { source, target, mode } of files) {
    const copy = join(building, target);
    mkdirSync(dirname(copy), { recursive: true, mode: 0o755 });
    copyFileSync(source, copy);
    syncFile(copy);
    chmodSync(copy, mode);
  }
  chmodSync(building, 0o711);
  renameSync(building, closure);
  syncDirectory(dirname(closure));
}

function syncFile(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Removes the copies that neither `current` nor a live VM uses, and unfinished ones. A VM's root directory says which
 * copy it has: it is the same directory, seen through its mounts. If one cannot be looked at, all stay.
 */
export function sweepQemuClosures(current: QemuClosure, pids: readonly number[]): string[] {
  const parent = dirname(current.directory);
  const removable = readdirSync(parent)
    .map((name) => join(parent, name))
    .filter((directory) => directory !== current.directory);
  const swept = removable.filter(
    (directory) => directory.endsWith(BUILDING) || !pids.some((pid) => mayUse(pid, directory)),
  );
  for (const directory of swept) rmSync(directory, { recursive: true, force: true });
  return swept;
}

function mayUse(pid: number, closure: string): boolean {
  const [name] = readdirSync(closure);
  if (name === undefined) return false;
  const own = statSync(join(closure, name));
  try {
    const seen = statSync(`/proc/${pid}/root/${name}`);
    return seen.dev === own.dev && seen.ino === own.ino;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}
