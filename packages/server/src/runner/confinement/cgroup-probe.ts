import { accessSync, constants, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CgroupStatus } from '../../lib/runner-protocol.ts';
import {
  CONTROLLERS,
  parseHierarchies,
  readProcTexts,
  type Controller,
  type Hierarchy,
} from './hierarchies.ts';

/** What {@link CgroupTree} would find if it were opened by this process, without making anything: for `coppice doctor`. */
export function probeCgroups(): CgroupStatus {
  const problems: string[] = [];
  const controllers = parseHierarchies(readProcTexts()).flatMap((hierarchy) => {
    try {
      return writableControllers(hierarchy);
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
      return [];
    }
  });
  const missing = (['cpu', 'memory', 'pids'] as const).filter((each) => !controllers.includes(each));
  if (missing.length > 0) problems.push(`not to be had here: ${missing.join(', ')}`);
  return {
    controllers: [...new Set(controllers)].toSorted(),
    reason: problems.length === 0 ? 'every VM can have a group' : problems.join('; '),
  };
}

function writableControllers({ version, controllers, ownDirectory }: Hierarchy): readonly Controller[] {
  accessSync(ownDirectory, constants.W_OK);
  if (version === 1) return controllers;
  accessSync(join(ownDirectory, 'cgroup.subtree_control'), constants.W_OK);
  const offered = readFileSync(join(ownDirectory, 'cgroup.controllers'), 'utf8').trim().split(' ');
  return CONTROLLERS.filter((each) => offered.includes(each));
}
