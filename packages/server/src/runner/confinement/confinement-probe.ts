/**
 * Finds out which jail this host allows by creating it and checking it from inside. Kernels, container runtimes and
 * administrators refuse parts of it, each in another way; no setting says so reliably.
 *
 *   full            root: every VM has its own user, and its own mount, network, IPC and UTS namespace
 *   user-namespace  an ordinary user: the same namespaces, below a user namespace; VMs share the service's user
 *   reduced         no namespaces: QEMU sees the host's files that its user may read; the rest of the jail holds
 */
import type { Confinement } from '../../lib/protocol/runner-protocol.ts';
import { ProcessError, runProcess } from '../host/run-process.ts';
import { DEV_NULL, encodePlan, launcherCommand, type JailPlan } from './jail-plan.ts';

const PROBE_TIMEOUT_MS = 10_000;
const MAX_OUTPUT_BYTES = 4096;
const INSIDE_PROBE = '/probe';
const PROBE_LIMITS = { openFiles: 64 };

export interface ConfinementChoice {
  kind: Confinement;
  /** The reason for the choice, for an operator. */
  reason: string;
}

export interface ConfinementProbe {
  launcherPath: string;
  isRoot: boolean;
  /** User id of the probe, used if the runner is root. */
  uid: number;
}

const MEANING: Record<Confinement, string> = {
  full: 'QEMU runs as a user of its own and sees only its own files and no network',
  'user-namespace': "QEMU sees only its own files and no network, and runs as the service's user",
  reduced: "QEMU sees the host's files that its user may read",
};

/** Chooses the strongest confinement that works. Throws if even the weakest does not: no VM starts unconfined. */
export async function chooseConfinement(probe: ConfinementProbe): Promise<ConfinementChoice> {
  const refusals: string[] = [];
  const kinds: readonly Confinement[] = probe.isRoot ? ['full', 'reduced'] : ['user-namespace', 'reduced'];
  for (const kind of kinds) {
    const refusal = await findRefusal(kind, probe);
    if (refusal === undefined) return { kind, reason: [MEANING[kind], ...refusals].join('; ') };
    refusals.push(`"${kind}" is not available: ${refusal}`);
  }
  throw new Error(`QEMU cannot be confined on this host: ${refusals.join('; ')}`);
}

/** Returns why this kind is not available, or undefined if it is. */
async function findRefusal(kind: Confinement, probe: ConfinementProbe): Promise<string | undefined> {
  const { command, args } = launcherCommand(kind, probe.launcherPath);
  const plan = encodePlan(kind, buildProbePlan(kind, probe));
  try {
    await runProcess({
      command,
      args,
      timeoutMs: PROBE_TIMEOUT_MS,
      maxStdoutBytes: MAX_OUTPUT_BYTES,
      feed: async (stdin) => void stdin.end(plan),
    });
    return undefined;
  } catch (error) {
    if (!(error instanceof ProcessError)) throw error;
    return (error.stderr.trim() || error.message).split('\n').at(-1);
  }
}

function buildProbePlan(kind: Confinement, { launcherPath, isRoot, uid }: ConfinementProbe): JailPlan {
  const isReduced = kind === 'reduced';
  const mounts = [{ source: launcherPath, target: INSIDE_PROBE, executable: true }, DEV_NULL];
  return {
    cgroups: [],
    mounts: isReduced ? [] : mounts,
    ...(isRoot ? { uid } : {}),
    limits: PROBE_LIMITS,
    descriptors: [],
    program: isReduced ? launcherPath : INSIDE_PROBE,
    args: ['--probe'],
  };
}
