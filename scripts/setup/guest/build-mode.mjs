import { readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { findExecutable, isRoot } from '../paths.mjs';
import { PREREQUISITES, remedyFor } from '../prerequisites.mjs';
import { run } from '../run-command.mjs';
import { describeError, SetupError } from '../setup-error.mjs';

const NAMESPACE_TIMEOUT_MS = 5_000;
const CAP_SYS_ADMIN = 21n;
const PRIVATE_MOUNTS = ['unshare', '--mount', '--propagation', 'private'];

/**
 * Chooses how mmdebstrap makes files of other owners: as root, or with the user ids that /etc/subuid gives to an
 * ordinary user. Throws SetupError if neither works.
 * @typedef {{ name: 'root' | 'unshare', wrapper: string[] }} BuildMode
 * @returns {Promise<BuildMode>}
 */
export async function findBuildMode() {
  // mmdebstrap bind-mounts /dev and /sys into the tree. In a mount namespace of its own these mounts always end with
  // it, so removing a half-made tree can never reach the host's own /dev. Root of a container may not mount: mmdebstrap
  // then builds without mounts.
  if (isRoot()) return { name: 'root', wrapper: mayMount() ? PRIVATE_MOUNTS : [] };
  assertTool('mmdebstrap');
  const fault = await findNamespaceFault();
  if (fault === undefined) return { name: 'unshare', wrapper: [] };
  throw new SetupError(`an ordinary user cannot build the base image here:\n  ${fault}`, {
    remedy: `run npm run setup once as root (all users can use the result). Or, as root: apt-get install uidmap, and add a line such as ${userInfo().username}:100000:65536 to /etc/subuid and to /etc/subgid`,
  });
}

/** @param {string} [status] text of /proc/self/status */
export function mayMount(status = readFileSync('/proc/self/status', 'latin1')) {
  const effective = BigInt(`0x${/^CapEff:\s+([0-9a-f]+)$/mu.exec(status)?.[1] ?? '0'}`);
  return ((effective >> CAP_SYS_ADMIN) & 1n) === 1n;
}

/** @returns {Promise<string | undefined>} why user namespaces do not work here; undefined if they do */
async function findNamespaceFault() {
  try {
    const trial = await run('unshare', ['--map-auto', '--map-root-user', 'true'], {
      step: 'making a user namespace',
      timeoutMs: NAMESPACE_TIMEOUT_MS, // some versions of unshare do not end when they fail
      allowFailure: true,
    });
    return trial.exitCode === 0 ? undefined : trial.output.trim();
  } catch (error) {
    return describeError(error);
  }
}

/** @param {string} name */
function assertTool(name) {
  const prerequisite = PREREQUISITES.find((entry) => entry.name === name);
  if (prerequisite === undefined || findExecutable(name) !== undefined) return;
  throw new SetupError(`${name} (${prerequisite.purpose}) is not installed`, {
    remedy: remedyFor(prerequisite),
  });
}
