/**
 * One control group for each VM, in a subtree of the service's own group, so that limits of the service also apply to
 * its VMs:
 *
 *   <own group>/coppice_<slug>/<unit>      QEMU of one VM
 *   <own group>/coppice_<slug>_service     version 2 only: the service itself, as a group that has children with
 *                                          limits may hold no processes
 *
 * If the subtree cannot be written (an ordinary user, an unprivileged container) or lacks a controller, VMs run without
 * those limits; {@link CgroupTree.status} says so.
 */
import { readdirSync, rmdirSync } from 'node:fs';
import { mkdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { listMissingLimits } from '../../lib/missing-limits.ts';
import type { CgroupStatus } from '../../lib/protocol/runner-protocol.ts';
import { openBranches, type Branch } from './cgroup-branch.ts';
import { buildCgroupStatus } from './cgroup-status.ts';
import { parseHierarchies, readProcTexts, type Controller } from './hierarchies.ts';
import type { UnitLimits } from './unit-limits.ts';

const REMOVE_TIMEOUT_MS = 5000;
const REMOVE_INTERVAL_MS = 10;
const QUOTA_PERIOD_US = 100_000;

export interface Enclosure {
  /** Directories of the groups. */
  cgroups: readonly string[];
  release: () => Promise<void>;
}

export interface CgroupTreeOptions {
  slug: string;
  log: Logger;
}

export class CgroupTree {
  readonly #branches: readonly Branch[];
  readonly #log: Logger;
  readonly status: CgroupStatus;

  private constructor(branches: readonly Branch[], status: CgroupStatus, log: Logger) {
    this.#branches = branches;
    this.status = status;
    this.#log = log;
  }

  static open({ slug, log }: CgroupTreeOptions): CgroupTree {
    const { branches, problems } = openBranches(parseHierarchies(readProcTexts()), `coppice_${slug}`);
    const status = buildCgroupStatus({
      controllers: branches.flatMap((branch) => branch.controllers),
      problems,
      complete: 'every VM has a group',
    });
    const missing = listMissingLimits(status);
    if (missing.length === 0) log.info({ cgroups: status }, 'VMs are limited by control groups');
    else log.warn({ cgroups: status, missing }, `VMs run without limits of: ${missing.join(', ')}`);
    return new CgroupTree(branches, status, log);
  }

  /** Returns the directories of a VM instance, whether they exist or not. They are recorded before they are created. */
  directoriesOf(unit: string): string[] {
    return this.#branches.map((branch) => join(branch.directory, unit));
  }

  /** Creates the groups of a VM instance. Returns their directories. */
  async create(unit: string, limits: UnitLimits): Promise<string[]> {
    for (const branch of this.#branches) {
      const directory = join(branch.directory, unit);
      await mkdir(directory, { mode: 0o755 });
      const files = buildLimitFiles(branch.version, limits).filter(({ controller }) =>
        branch.controllers.includes(controller),
      );
      for (const { file, value, isOptional } of files) {
        await writeFile(join(directory, file), value, { flag: 'r+' }).catch((error: unknown) => {
          if (!isOptional || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
        });
      }
    }
    return this.directoriesOf(unit);
  }

  /** Like {@link create}, for a VM without a record. First removes what an earlier VM of that name left. */
  async enclose(unit: string, limits: UnitLimits): Promise<Enclosure> {
    const directories = this.directoriesOf(unit);
    await this.remove(directories);
    const cgroups = await this.create(unit, limits);
    return { cgroups, release: () => this.remove(directories) };
  }

  /** Removes groups once their last process has left. Throws DeadlineError if the kernel still counts one after 5 s. */
  async remove(directories: readonly string[]): Promise<void> {
    for (const directory of directories) {
      await pollUntil(
        { step: `removing ${directory}`, timeoutMs: REMOVE_TIMEOUT_MS, intervalMs: REMOVE_INTERVAL_MS },
        () => tryRemove(directory),
      );
    }
  }

  /** Removes the groups that an earlier runner left, except those of `keptUnits` and those that hold a process. */
  sweep(keptUnits: ReadonlySet<string>): void {
    for (const { directory } of this.#branches) {
      for (const entry of readdirSync(directory, { withFileTypes: true })) {
        if (!entry.isDirectory() || keptUnits.has(entry.name)) continue;
        try {
          rmdirSync(join(directory, entry.name));
        } catch (error) {
          this.#log.warn({ err: error, unit: entry.name }, 'a control group without a record is in use');
        }
      }
    }
  }

  /** Removes the tree if it is empty. The groups of VMs that keep running also keep the tree. */
  close(): void {
    for (const { directory } of this.#branches) {
      try {
        rmdirSync(directory);
      } catch (error) {
        this.#log.debug({ err: error }, 'the control group tree was not removed');
      }
    }
  }
}

/** Returns undefined while the kernel still counts a process in the group. */
export async function tryRemove(directory: string): Promise<true | undefined> {
  try {
    await rmdir(directory);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT') return true;
    if (code === 'EBUSY') return undefined;
    throw error;
  }
}

interface LimitFile {
  controller: Controller;
  file: string;
  value: string;
  /** Whether kernels may lack the file. */
  isOptional: boolean;
}

/** Returns the files of the limits in a version of control groups. */
export function buildLimitFiles(version: 1 | 2, limits: UnitLimits): LimitFile[] {
  const quotaUs = (limits.cpuPercent * QUOTA_PERIOD_US) / 100;
  const required = (controller: Controller, file: string, value: number | string): LimitFile => ({
    controller,
    file,
    value: String(value),
    isOptional: false,
  });
  const optional = (controller: Controller, file: string, value: number | string): LimitFile => ({
    ...required(controller, file, value),
    isOptional: true,
  });
  if (version === 2) {
    return [
      required('memory', 'memory.max', limits.memBytes),
      required('cpu', 'cpu.weight', Math.min(10_000, limits.weight * 100)),
      optional('cpu', 'cpu.max', `${quotaUs} ${QUOTA_PERIOD_US}`),
      required('pids', 'pids.max', limits.tasks),
    ];
  }
  return [
    required('memory', 'memory.limit_in_bytes', limits.memBytes),
    required('cpu', 'cpu.shares', Math.min(262_144, limits.weight * 1024)),
    optional('cpu', 'cpu.cfs_period_us', QUOTA_PERIOD_US),
    optional('cpu', 'cpu.cfs_quota_us', quotaUs),
    required('pids', 'pids.max', limits.tasks),
  ];
}
