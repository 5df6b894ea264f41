/** Finds or creates the part of each hierarchy that holds the control groups of VMs, when the runner starts. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { Controller, Hierarchy } from './hierarchies.ts';
import { isOfService } from './service-processes.ts';

export interface Branch {
  version: 1 | 2;
  /** Parent of one directory per VM. */
  directory: string;
  controllers: readonly Controller[];
}

export interface OpenedBranches {
  branches: Branch[];
  /** Reasons why some or all branches are missing. */
  problems: string[];
}

/** The useful controllers of version 2; it counts CPU time without a controller. */
const V2_CONTROLLERS: readonly Controller[] = ['cpu', 'memory', 'pids'];
/**
 * The subgroup in which the systemd unit runs its processes (`DelegateSubgroup=`), next to the groups of VMs. While VMs
 * run, their parent group may hold no process, and systemd could not restart the service in it.
 */
export const UNIT_LEAF = 'coppice_unit';
const UNIT_SUFFIX = '.service';
/** All VMs together weigh as much as one process of the service, and in version 2 a fourth of the whole service. */
const SERVICE_WEIGHT = 400;

export function openBranches(hierarchies: readonly Hierarchy[], name: string): OpenedBranches {
  const opened: OpenedBranches = { branches: [], problems: [] };
  for (const hierarchy of hierarchies) {
    try {
      const branch = hierarchy.version === 1 ? openV1(hierarchy, name) : openV2(hierarchy, name);
      if (branch !== undefined) opened.branches.push(branch);
    } catch (error) {
      opened.problems.push(describe(error));
    }
  }
  return opened;
}

function openV1({ ownDirectory, controllers }: Hierarchy, name: string): Branch {
  const directory = join(ownDirectory, name);
  try {
    mkdirSync(directory, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw new Error(`${ownDirectory}: ${describe(error)}`, { cause: error });
  }
  return { version: 1, directory, controllers };
}

/** A version 2 group below which the groups of VMs may be created. */
export interface Home {
  directory: string;
  /** The useful controllers that this group can enable for its children: a deeper group may have fewer. */
  controllers: readonly Controller[];
}

/**
 * Lists candidate parents for the groups of VMs, best first.
 *
 * The service's own group comes first. The group of a login session holds foreign processes and cannot be divided; the
 * top of the tree may hold both groups and processes. The top comes first if a systemd before 254 started the service
 * in the unit's own group: if that group were divided, systemd could not restart the service in it.
 */
export function listHomes({ ownDirectory, mountPoint }: Hierarchy, leaf?: string): Home[] {
  const isInLeaf = [leaf, UNIT_LEAF].includes(basename(ownDirectory));
  const own = isInLeaf ? dirname(ownDirectory) : resolve(ownDirectory);
  const homes = [own, resolve(mountPoint)];
  if (!isInLeaf && own.endsWith(UNIT_SUFFIX)) homes.reverse();
  return [...new Set(homes)].flatMap((directory) => {
    const controllers = readOffered(directory);
    return controllers.length === 0 ? [] : [{ directory, controllers }];
  });
}

function readOffered(directory: string): Controller[] {
  const path = join(directory, 'cgroup.controllers');
  const offered = existsSync(path) ? readFileSync(path, 'utf8').trim().split(' ') : [];
  return V2_CONTROLLERS.filter((each) => offered.includes(each));
}

/** Returns undefined on a hybrid host, whose controllers are all in version 1. */
function openV2(hierarchy: Hierarchy, name: string): Branch | undefined {
  const leaf = `${name}_service`;
  const homes = listHomes(hierarchy, leaf);
  const refusals: string[] = [];
  for (const home of homes) {
    try {
      return branchOf(home, { name, leaf });
    } catch (error) {
      refusals.push(`${home.directory}: ${describe(error)}`);
    }
  }
  if (refusals.length > 0) throw new Error(refusals.join('; '));
  return undefined;
}

function branchOf(home: Home, { name, leaf }: { name: string; leaf: string }): Branch {
  const { controllers } = home;
  const directory = join(home.directory, name);
  const isNew = mkdirSync(directory, { recursive: true, mode: 0o755 }) !== undefined;
  try {
    giveControllers(home.directory, controllers, leaf);
    giveControllers(directory, controllers, undefined);
    for (const each of [leaf, UNIT_LEAF]) weighService(join(home.directory, each));
  } catch (error) {
    // A directory that existed before holds the groups of running VMs.
    if (isNew) rmdirSync(directory);
    throw error;
  }
  return { version: 2, directory, controllers };
}

function giveControllers(
  directory: string,
  controllers: readonly Controller[],
  leaf: string | undefined,
): void {
  const path = join(directory, 'cgroup.subtree_control');
  const missing = listUngiven(directory, controllers);
  if (missing.length === 0) return;
  const value = missing.map((each) => `+${each}`).join(' ');
  try {
    writeFileSync(path, value, { flag: 'r+' });
  } catch (error) {
    if (leaf === undefined || (error as NodeJS.ErrnoException).code !== 'EBUSY') throw error;
    moveService(directory, leaf);
    writeFileSync(path, value, { flag: 'r+' });
  }
}

/** Returns those of `controllers` that are not yet enabled for the group's children. */
export function listUngiven(directory: string, controllers: readonly Controller[]): Controller[] {
  const given = readFileSync(join(directory, 'cgroup.subtree_control'), 'utf8').trim().split(' ');
  return controllers.filter((each) => !given.includes(each));
}

/** Whether the group holds processes that are not the service's own, which may not be moved. */
export function isShared(directory: string): boolean {
  return readPids(directory).some((pid) => !isOfService(pid));
}

function readPids(directory: string): number[] {
  return readFileSync(join(directory, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number);
}

/**
 * Moves the service to its own subgroup: a version 2 group that enables controllers for its children may hold no
 * processes. Throws if the group holds other processes, which are not moved.
 */
function moveService(home: string, leaf: string): void {
  const pids = readPids(home);
  const foreign = pids.filter((pid) => !isOfService(pid));
  if (foreign.length > 0) {
    throw new Error(
      `the group is shared with other processes (${foreign.slice(0, 3).join(', ')}); start the service by systemd with Delegate=yes`,
    );
  }
  const directory = join(home, leaf);
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  for (const pid of pids) enter(directory, pid);
}

/** Sets the CPU weight of the service's group, if its parent enables the controller. */
function weighService(directory: string): void {
  const path = join(directory, 'cpu.weight');
  if (existsSync(path)) writeFileSync(path, String(SERVICE_WEIGHT), { flag: 'r+' });
}

function enter(directory: string, pid: number): void {
  try {
    writeFileSync(join(directory, 'cgroup.procs'), String(pid), { flag: 'r+' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
