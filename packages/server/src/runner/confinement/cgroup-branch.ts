/** The part of one hierarchy that holds the VMs' groups: found or made when the runner starts. */
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Controller, Hierarchy } from './hierarchies.ts';
import { isOfService } from './service-processes.ts';

export interface Branch {
  version: 1 | 2;
  /** Holds a directory for each VM. */
  directory: string;
  controllers: readonly Controller[];
}

export interface OpenedBranches {
  branches: Branch[];
  /** Why some or all are missing. */
  problems: string[];
}

/** Controllers of version 2 that are of use; CPU time is counted there without one. */
const V2_CONTROLLERS: readonly Controller[] = ['cpu', 'memory', 'pids'];
/** All VMs together weigh as much as one process of the service, and in version 2 a fourth of all of it. */
const SERVICE_WEIGHT = 400;

export function openBranches(hierarchies: readonly Hierarchy[], name: string): OpenedBranches {
  const opened: OpenedBranches = { branches: [], problems: [] };
  for (const hierarchy of hierarchies) {
    try {
      const branch = hierarchy.version === 1 ? openV1(hierarchy, name) : openV2(hierarchy, name);
      if (branch !== undefined) opened.branches.push(branch);
    } catch (error) {
      opened.problems.push(
        `${hierarchy.ownDirectory}: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }
  return opened;
}

function openV1({ ownDirectory, controllers }: Hierarchy, name: string): Branch {
  const directory = join(ownDirectory, name);
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  return { version: 1, directory, controllers };
}

/** Undefined on a hybrid host, whose controllers are all in version 1. */
function openV2({ ownDirectory, mountPoint }: Hierarchy, name: string): Branch | undefined {
  const leaf = `${name}_service`;
  const home = basename(ownDirectory) === leaf ? dirname(ownDirectory) : ownDirectory;
  const offered = readFileSync(join(home, 'cgroup.controllers'), 'utf8').trim().split(' ');
  const controllers = V2_CONTROLLERS.filter((each) => offered.includes(each));
  if (controllers.length === 0) return undefined;
  try {
    return branchOf(home, { name, leaf, controllers });
  } catch (error) {
    // Started from a shell, whose group is not ours to divide. The top of the tree may hold groups and processes.
    if (home === mountPoint) throw error;
    return branchOf(mountPoint, { name, leaf, controllers });
  }
}

interface BranchNames {
  name: string;
  leaf: string;
  controllers: readonly Controller[];
}

function branchOf(home: string, { name, leaf, controllers }: BranchNames): Branch {
  const directory = join(home, name);
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  try {
    giveControllers(home, controllers, leaf);
    giveControllers(directory, controllers, undefined);
  } catch (error) {
    rmdirSync(directory);
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
  const missing = controllers.filter((each) => !readFileSync(path, 'utf8').trim().split(' ').includes(each));
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

/** A group of version 2 that gives controllers to its children may hold no processes. Only our own are moved. */
function moveService(home: string, leaf: string): void {
  const pids = readFileSync(join(home, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number);
  const foreign = pids.filter((pid) => !isOfService(pid));
  if (foreign.length > 0) {
    throw new Error(
      `the group is shared with other processes (${foreign.slice(0, 3).join(', ')}); start the service by systemd with Delegate=yes`,
    );
  }
  const directory = join(home, leaf);
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  for (const pid of pids) enter(directory, pid);
  const weightPath = join(directory, 'cpu.weight');
  try {
    writeFileSync(weightPath, String(SERVICE_WEIGHT), { flag: 'r+' });
  } catch {
    // The controller is given to the group only after the move; at the next start the file is there.
  }
}

function enter(directory: string, pid: number): void {
  try {
    writeFileSync(join(directory, 'cgroup.procs'), String(pid), { flag: 'r+' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
