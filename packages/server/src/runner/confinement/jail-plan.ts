/**
 * The plan that the launcher (`jail/`) reads as JSON from its standard input (`jail/internal/plan`). The launcher
 * becomes the program, in a jail that holds only what the plan lists.
 */
import type { Confinement } from '../../lib/protocol/runner-protocol.ts';

const PLAN_VERSION = 4;
/** Part of util-linux, so on every system. A Go program cannot create a user namespace: it already has threads. */
const UNSHARE_PATH = '/usr/bin/unshare';

export interface Mount {
  /** Path on the host. */
  source: string;
  /** Path in the jail. */
  target: string;
  writable?: boolean;
  executable?: boolean;
  device?: boolean;
}

export interface JailLimits {
  openFiles: number;
  /** Absent: the runner's own limit applies. */
  fileSizeBytes?: number;
  /** To what the runner may raise it. Absent: nothing above it. */
  fileSizeMaxBytes?: number;
  /** Limit on the tasks of the user id, including threads. Absent if the VM has no user id of its own. */
  tasks?: number;
}

export interface JailPlan {
  /** The cgroup.procs files to enter, in this order, before all else. */
  cgroups: readonly string[];
  /** Empty without namespaces: paths are then the host's. */
  mounts: readonly Mount[];
  /** User and group id to switch to; absent if the service runs as an ordinary user. */
  uid?: number;
  limits: JailLimits;
  /** TAP that the launcher opens, and the descriptor at which the program finds it; absent without a network. */
  tap?: { name: string; descriptor: number };
  /** Descriptors to keep in addition to 0, 1 and 2. */
  descriptors: readonly number[];
  /** Descriptor that becomes standard input; absent if standard input is empty. */
  input?: number;
  /** Whether the program ends with the runner, and whether it is refused fallocate; default false. */
  endWithParent?: boolean;
  noFallocate?: boolean;
  /** Whether it may connect to the Unix sockets that it can reach; default false. */
  mayConnect?: boolean;
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
      file_size_max_bytes: limits.fileSizeMaxBytes ?? 0,
      tasks: limits.tasks ?? 0,
    },
    tap: plan.tap ?? null,
    descriptors: plan.descriptors,
    input: plan.input ?? null,
    end_with_parent: plan.endWithParent ?? false,
    no_fallocate: plan.noFallocate ?? false,
    may_connect: plan.mayConnect ?? false,
    program: plan.program,
    arguments: plan.args,
  });
}

/** Returns the command that starts the launcher. `unshare` executes it in its own place: the process stays the same. */
export function launcherCommand(
  kind: Confinement,
  launcherPath: string,
): { command: string; args: string[] } {
  if (kind !== 'user-namespace') return { command: launcherPath, args: [] };
  return { command: UNSHARE_PATH, args: ['--user', '--map-root-user', '--', launcherPath] };
}
