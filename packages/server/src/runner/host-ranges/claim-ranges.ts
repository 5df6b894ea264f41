/**
 * Gives an installation its addresses and user ids. The runner records them before it uses them, under a lock that all
 * installations of the machine share. Two installations that start at once get different ranges, and VMs that outlive
 * the service keep theirs.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { lockDirectory } from '../../lib/files/directory-lock.ts';
import { findAddressUse, hasHeldTap, type HostNetwork } from '../network/host/host-survey.ts';
import { KernelTools, type ToolPaths } from '../network/kernel/kernel-tools.ts';
import { buildInstanceNames } from '../network/addresses/slot-names.ts';
import type { RunnerConfig } from '../runner-config.ts';
import { listProcessesOfUids } from '../host/host-process.ts';
import { idsOverlap, listAccountIds, type IdRange } from './account-ids.ts';
import { chooseRanges } from './choose-ranges.ts';
import { FIRST_RANGES, findRecordedRanges, recordRanges, type HostRanges } from './host-ranges.ts';
import { enterInstallation, listOtherInstallations } from './installations.ts';

/** Longer than listing the host's interfaces may take. */
const LOCK_TIMEOUT_MS = 60_000;

export type ClaimOptions = Pick<RunnerConfig, 'installationDir' | 'installationsDir' | 'slug' | 'ranges'> & {
  tools: ToolPaths;
};

/**
 * Claims and records the ranges of an installation. An ordinary user's installation has neither addresses nor user ids
 * of its own, and is not listed. Throws `invalid_request` with the name of the setting to change.
 */
export async function claimRanges(options: ClaimOptions, log: Logger): Promise<HostRanges> {
  const { installationDir: dataDir, installationsDir: directory, slug, ranges: set } = options;
  if (process.getuid?.() !== 0) return { ...FIRST_RANGES, ...set };
  using _lock = await lockDirectory(directory, LOCK_TIMEOUT_MS);
  const recorded = findRecordedRanges(dataDir);
  const names = buildInstanceNames(slug);
  const host = await readHost(options.tools, log);
  const ranges = chooseRanges({
    set,
    recorded,
    others: listOtherInstallations(slug, directory, log),
    hasConnectedVm: hasHeldTap(host, names),
    isInUse: (range) => findAddressUse(host, names, range) !== undefined,
    areIdsInUse,
  });
  enterInstallation(slug, dataDir, directory);
  recordRanges(dataDir, ranges);
  const { guestCidr, uidBase } = ranges;
  log.info({ guest_cidr: guestCidr, uid_base: uidBase, data_dir: dataDir }, 'guest addresses and user ids');
  return ranges;
}

/** Returns nothing for a host whose interfaces cannot be listed: guests get no network there (see requirements.ts). */
async function readHost(tools: ToolPaths, log: Logger): Promise<HostNetwork> {
  const kernel = new KernelTools(tools);
  try {
    const [interfaces, routes] = await Promise.all([kernel.listInterfaces(), kernel.listRoutes()]);
    return { interfaces, routes };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.debug({ err: error }, 'the interfaces of the host cannot be listed');
    return { interfaces: [], routes: [] };
  }
}

function areIdsInUse(range: IdRange): boolean {
  return (
    listAccountIds().some((other) => idsOverlap(range, other)) ||
    listProcessesOfUids(range.first, range.last).length > 0
  );
}
