/**
 * What the launcher (`jail/`) is told, as JSON on its standard input: `jail/internal/plan` reads it. The launcher
 * becomes the program, in a jail that holds what is listed here and nothing else.
 */
import type { Confinement } from '../../lib/protocol/runner-protocol.ts';

const PLAN_VERSION = 1;
/** Part of util-linux, on every system. A Go program has threads before it could make a user namespace itself. */
const UNSHARE_PATH = '/usr/bin/unshare';

export interface Mount {
  /** On the host. */
  source: string;
  /** In the jail. */
  target: string;
  writable?: boolean;
  executable?: boolean;
  device?: boolean;
}

export interface JailLimits {
  openFiles: number;
  /** Absent: as much as the runner itself may write. */
  fileSizeBytes?: number;
  /** Of the user id, threads included. Absent where the VM has no user id of its own. */
  tasks?: number;
}

export interface JailPlan {
  /** cgroup.procs files to enter, in this order, before all else. */
  cgroups: readonly string[];
  /** Empty where there are no namespaces: then paths are the host's. */
  mounts: readonly Mount[];
  /** User and group id to take; absent for a service that is an ordinary user. */
  uid?: number;
  limits: JailLimits;
  /** Kept besides 0, 1 and 2. */
  descriptors: readonly number[];
  program: string;
  args: readonly string[];
}

export const DEV_NULL: Mount = { source: '/dev/null', target: '/dev/null', writable: true, device: true };

export function encodePlan(kind: Confinement, plan: JailPlan): string {
  const { uid, limits } = plan;
  return JSON.stringify({
    version: PLAN_VERSION,
    cgroups: plan.cgroups,
    namespaces: kind !== 'reduced',
    mounts: plan.mounts.map(({ source, target, writable = false, executable = false, device = false }) => ({
      source,
      target,
      writable,
      executable,
      device,
    })),
    identity: uid === undefined ? null : { uid, gid: uid },
    limits: {
      open_files: limits.openFiles,
      file_size_bytes: limits.fileSizeBytes ?? 0,
      tasks: limits.tasks ?? 0,
    },
    descriptors: plan.descriptors,
    program: plan.program,
    arguments: plan.args,
  });
}

/** How the launcher is started; `unshare` executes it in its own place, so that the process stays the same. */
export function launcherCommand(
  kind: Confinement,
  launcherPath: string,
): { command: string; args: string[] } {
  if (kind !== 'user-namespace') return { command: launcherPath, args: [] };
  return { command: UNSHARE_PATH, args: ['--user', '--map-root-user', '--', launcherPath] };
}
