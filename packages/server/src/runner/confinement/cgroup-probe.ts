import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import type { CgroupStatus } from '../../lib/protocol/runner-protocol.ts';
import { isShared, listHomes, listUngiven, type Home } from './cgroup-branch.ts';
import { buildCgroupStatus } from './cgroup-status.ts';
import { parseHierarchies, readProcTexts, type Controller, type Hierarchy } from './hierarchies.ts';

/**
 * Returns the limits that VMs would have if this process started the service. Creates nothing. Used by `coppice
 * doctor`.
 */
export function probeCgroups(hierarchies = parseHierarchies(readProcTexts())): CgroupStatus {
  const problems: string[] = [];
  const controllers = hierarchies.flatMap((hierarchy) => {
    try {
      return findControllers(hierarchy);
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
      return [];
    }
  });
  return buildCgroupStatus({ controllers, problems, complete: 'every VM can have a group' });
}

function findControllers(hierarchy: Hierarchy): readonly Controller[] {
  if (hierarchy.version === 1) {
    accessSync(hierarchy.ownDirectory, constants.W_OK);
    return hierarchy.controllers;
  }
  const refusals: string[] = [];
  for (const home of listHomes(hierarchy)) {
    try {
      assertDivisible(home, hierarchy);
      return home.controllers;
    } catch (error) {
      refusals.push(error instanceof Error ? error.message : String(error));
    }
  }
  if (refusals.length > 0) throw new Error(refusals.join('; '));
  return [];
}

/** Throws if the group cannot enable its controllers for children. Only the top of the tree may also hold processes. */
function assertDivisible({ directory, controllers }: Home, { mountPoint }: Hierarchy): void {
  accessSync(directory, constants.W_OK);
  accessSync(join(directory, 'cgroup.subtree_control'), constants.W_OK);
  if (directory === mountPoint || listUngiven(directory, controllers).length === 0) return;
  if (isShared(directory)) throw new Error(`${directory}: is shared with other processes`);
}
