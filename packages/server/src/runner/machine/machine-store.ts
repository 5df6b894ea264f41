/** What VMs are started with: a QEMU, a kernel and an initramfs that belong together, kept as long as one of them is needed. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { ConfinementChoice } from '../confinement/confinement-probe.ts';
import { ensureQemuClosure, type QemuClosure } from '../confinement/qemu-closure.ts';
import type { RunnerTools } from '../runner-config.ts';

export interface Machine {
  /** Names it for as long as saved state needs it. */
  key: string;
  closure: QemuClosure;
  kernelPath: string;
  initramfsPath: string;
  /** For people. */
  versions: Record<'qemu' | 'kernel' | 'agent', string>;
}

export interface MachineStoreOptions {
  /** Holds one directory for each machine. */
  directory: string;
  tools: Pick<RunnerTools, 'qemu' | 'kernel' | 'initramfs'>;
  confinement: ConfinementChoice['kind'];
  log: Logger;
}

export class MachineStore {
  /** What new templates are made with. */
  readonly current: Machine;

  private constructor(current: Machine) {
    this.current = current;
  }

  static async open(options: MachineStoreOptions): Promise<MachineStore> {
    const { directory } = options;
    const { qemu: qemuPath, kernel: kernelPath, initramfs: initramfsPath } = options.tools;
    const closure = await ensureQemuClosure(join(directory, 'qemu'), qemuPath);
    const digest = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');
    const content = { qemu: closure.directory, kernel: digest(kernelPath), agent: digest(initramfsPath) };
    const key = createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 32);
    return new MachineStore({ key, closure, kernelPath, initramfsPath, versions: content });
  }

  find(key: string): Machine | undefined {
    return key === this.current.key ? this.current : undefined;
  }

  /** Removes the machines that are neither current nor kept nor run one of the VMs. */
  sweep(_keptKeys: ReadonlySet<string>, _livePids: readonly number[]): void {
    // With one machine there is nothing to remove.
  }
}
