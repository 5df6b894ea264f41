/**
 * Finds the processes of one installation by properties that only they have. A pid is used right away and with its
 * start time, so that a reused pid is not taken for the process.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, readlinkSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { SetupError } from '../setup/setup-error.mjs';

const POLL_MS = 50;
/** The main program of a build, or the source that earlier versions ran. */
const SERVICE_PROGRAM = /\/packages\/server\/(?:dist\/[^/]+\/main\.mjs|src\/main\.ts)$/u;
/** The supervisor gives its roles 40 s. */
const STOP_TIMEOUT_MS = 60_000;
const KILL_TIMEOUT_MS = 10_000;

/**
 * @typedef {object} Process
 * @property {number} pid
 * @property {number} startTicks  field 22 of /proc/pid/stat: with the pid it identifies a process of this boot
 */

/**
 * @param {number} pid
 * @returns {{ state: string, parent: number, startTicks: number } | undefined}
 */
function findStat(pid) {
  const text = readOptional(`/proc/${pid}/stat`);
  if (text === '') return undefined;
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? 'X', parent: Number(fields[1]), startTicks: Number(fields[19]) };
}

/** @param {Process} target */
function isAlive({ pid, startTicks }) {
  const stat = findStat(pid);
  return stat !== undefined && stat.startTicks === startTicks && stat.state !== 'Z' && stat.state !== 'X';
}

/**
 * @param {number} pid
 * @returns {Process | undefined}
 */
function identify(pid) {
  const stat = findStat(pid);
  return stat === undefined ? undefined : { pid, startTicks: stat.startTicks };
}

/**
 * @typedef {{ supervisors: Process[], roles: Process[] }} ServiceProcesses
 *
 * Finds the supervisor and roles of the service in a data directory. Each role holds a name in the kernel's abstract
 * socket namespace, which is derived from its directory (packages/server/src/lib/process/instance-lock.ts): the process
 * that has that socket is the role.
 * @param {string} dataDir
 * @returns {ServiceProcesses}
 */
export function findService(dataDir) {
  const inodes = new Set(['control', 'runner'].flatMap((role) => findLockInode(role, join(dataDir, role))));
  if (inodes.size === 0) return { supervisors: [], roles: [] };
  const roles = listPids().filter((pid) => holdsSocket(pid, inodes));
  const parents = new Set(roles.map((pid) => findStat(pid)?.parent ?? 0).filter(isSupervisor));
  return { supervisors: identifyAll([...parents]), roles: identifyAll(roles) };
}

/**
 * Returns whether a runner has its sockets there. After the service of this installation has ended, that runner belongs
 * to another installation.
 * @param {string} runDir
 */
export function isRunDirectoryInUse(runDir) {
  return findLockInode('runner', runDir).length > 0;
}

/** @param {readonly number[]} pids */
function identifyAll(pids) {
  return pids.map(identify).filter((found) => found !== undefined);
}

/**
 * Finds the service's own PostgreSQL, which survives a killed control.
 * @param {string} dataDir
 * @returns {Process[]}
 */
export function findPostmaster(dataDir) {
  const directory = join(dataDir, 'control', 'postgres');
  const pid = Number(readOptional(join(directory, 'postmaster.pid')).split('\n')[0]);
  const isOurs = pid > 1 && readlinkOptional(`/proc/${pid}/cwd`) === directory;
  return isOurs ? identifyAll([pid]) : [];
}

/**
 * @param {string} role
 * @param {string} directory
 * @returns {string[]}
 */
function findLockInode(role, directory) {
  if (!existsSync(directory)) return [];
  const hash = createHash('sha256').update(realpathSync(directory)).digest('hex');
  const suffix = ` @coppice-${role}-${hash}`;
  return readFileSync('/proc/net/unix', 'latin1')
    .split('\n')
    .filter((line) => line.endsWith(suffix))
    .map((line) => line.trim().split(/\s+/u)[6] ?? '');
}

/**
 * @param {number} pid
 * @param {ReadonlySet<string>} inodes
 */
function holdsSocket(pid, inodes) {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((name) => {
      const target = /^socket:\[(\d+)\]$/u.exec(readlinkOptional(`/proc/${pid}/fd/${name}`))?.[1];
      return target !== undefined && inodes.has(target);
    });
  } catch {
    return false; // it has ended, or belongs to another user
  }
}

/**
 * Returns whether a role's parent is the supervisor. It is a shell or systemd if the role was started alone.
 * @param {number} pid
 */
function isSupervisor(pid) {
  const words = readOptional(`/proc/${pid}/cmdline`).split('\0').filter(Boolean);
  return pid > 1 && SERVICE_PROGRAM.test(words.at(-1) ?? '');
}

/**
 * Finds the QEMU processes in the runner's records, and those that work in the run directory but have no record yet.
 * @param {{ dataDir: string, runDir: string | undefined }} directories  no `runDir` if another service uses it
 * @returns {Process[]}
 */
export function findVmProcesses({ dataDir, runDir }) {
  const recorded = listNames(join(dataDir, 'runner', 'vms')).flatMap((name) =>
    parseRecordedProcess(readOptional(join(dataDir, 'runner', 'vms', name, 'vm.json'))),
  );
  const working = runDir === undefined ? [] : identifyAll(listPids().filter((pid) => isVmIn(pid, runDir)));
  const byPid = new Map([...recorded.filter(isAlive), ...working].map((found) => [found.pid, found]));
  return [...byPid.values()];
}

/**
 * @param {string} text of a vm.json, which may be incomplete or of another version
 * @returns {Process[]}
 */
function parseRecordedProcess(text) {
  if (!text.includes('"process"')) return [];
  try {
    const { process: recorded, host_boot_id: bootId } = JSON.parse(text);
    const isOfThisBoot = bootId === readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
    return isOfThisBoot && Number.isInteger(recorded?.pid) && recorded.pid > 1 ? [recorded] : [];
  } catch {
    return [];
  }
}

/**
 * @param {number} pid
 * @param {string} runDir
 */
function isVmIn(pid, runDir) {
  const [program = '', ...args] = readOptional(`/proc/${pid}/cmdline`).split('\0');
  if (!program.includes('qemu')) return false;
  const directory = readlinkOptional(`/proc/${pid}/cwd`);
  return directory.startsWith(`${runDir}/`) || args.some((word) => word.includes(`${runDir}/`));
}

/**
 * Sends SIGTERM to the service, and kills the processes that have not ended within a minute.
 * @param {ServiceProcesses} service
 */
export async function stopService({ supervisors, roles }) {
  const all = [...supervisors, ...roles];
  // The supervisor stops its roles in their order.
  for (const { pid } of supervisors.length > 0 ? supervisors : roles) signal(pid, 'SIGTERM');
  if (!(await waitForEnd(all, STOP_TIMEOUT_MS))) await killAll(all);
}

/** @param {readonly Process[]} postmasters */
export async function stopPostmaster(postmasters) {
  for (const { pid } of postmasters) signal(pid, 'SIGINT'); // fast shutdown
  if (!(await waitForEnd(postmasters, STOP_TIMEOUT_MS))) await killAll(postmasters);
}

/** @param {readonly Process[]} processes */
export async function killAll(processes) {
  for (const { pid } of processes.filter(isAlive)) signal(pid, 'SIGKILL');
  if (await waitForEnd(processes, KILL_TIMEOUT_MS)) return;
  const left = processes.filter(isAlive).map(({ pid }) => pid);
  throw new SetupError(`these processes do not end: ${left.join(', ')}`, {
    remedy: 'find out why (ps -fp), then run this again',
  });
}

/**
 * @param {readonly Process[]} processes
 * @param {number} timeoutMs
 */
async function waitForEnd(processes, timeoutMs) {
  const end = performance.now() + timeoutMs;
  while (processes.some(isAlive)) {
    if (performance.now() > end) return false;
    await delay(POLL_MS);
  }
  return true;
}

/**
 * @param {number} pid
 * @param {NodeJS.Signals} name
 */
function signal(pid, name) {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ESRCH') throw error;
  }
}

function listPids() {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/u.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid);
}

/** @param {string} directory */
function listNames(directory) {
  return existsSync(directory) ? readdirSync(directory) : [];
}

/**
 * @param {string} path
 * @returns {string} empty for a file that is gone or not readable: both mean "not this process"
 */
function readOptional(path) {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

/** @param {string} path */
function readlinkOptional(path) {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
