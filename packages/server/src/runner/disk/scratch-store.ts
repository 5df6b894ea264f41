/**
 * Scratch disks. For each size there is one immutable base (an empty ext4 file system, sparse) and one empty
 * overlay over it. A template is made with a copy of that overlay mounted, and every sandbox gets a copy of the
 * template's, a few MiB, so that no tool runs on the create path.
 */
import {
  chmodSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../../lib/run-command.ts';
import { SingleFlight } from '../../lib/single-flight.ts';
import { giveTo, takeBack } from '../vmm/vm-accounts.ts';

/** Part of the directory name: raise when the way a base is made changes. */
const FORMAT = 'v1';
const FORMAT_OPTIONS = 'lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0';

export interface ScratchTools {
  mke2fs: string;
  qemuImg: string;
}

export interface ScratchBase {
  /** Read-only ext4 file, 0444. */
  basePath: string;
  /** Empty qcow2 of the same virtual size. */
  overlayPath: string;
}

export class ScratchStore {
  readonly #directory: string;
  readonly #tools: ScratchTools;
  readonly #flights = new SingleFlight<ScratchBase>();

  private constructor(directory: string, tools: ScratchTools) {
    this.#directory = directory;
    this.#tools = tools;
  }

  static open(directory: string, tools: ScratchTools): ScratchStore {
    mkdirSync(directory, { recursive: true, mode: 0o711 });
    return new ScratchStore(directory, tools);
  }

  async ensureBase(diskMiB: number): Promise<ScratchBase> {
    const directory = join(this.#directory, `${FORMAT}-${diskMiB}`);
    const base = { basePath: join(directory, 'base.ext4'), overlayPath: join(directory, 'overlay.qcow2') };
    if (existsSync(directory)) return base;
    return this.#flights.run(directory, async () => {
      await this.#make(directory, diskMiB);
      return base;
    });
  }

  async #make(directory: string, diskMiB: number): Promise<void> {
    if (existsSync(directory)) return;
    const building = `${directory}.building`;
    rmSync(building, { recursive: true, force: true });
    mkdirSync(building, { mode: 0o711 });
    const basePath = join(building, 'base.ext4');
    writeFileSync(basePath, '', { mode: 0o644 });
    truncateSync(basePath, diskMiB * 1024 * 1024);
    await runCommand(this.#tools.mke2fs, [
      '-t',
      'ext4',
      '-F',
      '-q',
      '-m',
      '0',
      '-E',
      FORMAT_OPTIONS,
      basePath,
    ]);
    const overlayPath = join(building, 'overlay.qcow2');
    await runCommand(this.#tools.qemuImg, ['create', '-q', '-f', 'qcow2', overlayPath, `${diskMiB}M`]);
    chmodSync(basePath, 0o444);
    chmodSync(overlayPath, 0o400);
    renameSync(building, directory);
  }
}

/** Gives one VM an overlay of its own, with the content of `source`; owned by `uid` when it returns. */
export function copyOverlay(source: string, path: string, uid: number): void {
  copyFileSync(source, path, constants.COPYFILE_FICLONE);
  giveTo(path, uid);
  chmodSync(path, 0o600);
}

/** Owned by whoever runs the service (root, if VMs are to be kept from it) and read-only for all others. */
export function freezeFile(path: string): void {
  takeBack(path);
  chmodSync(path, 0o444);
}
