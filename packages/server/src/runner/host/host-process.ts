/** Reads /proc for processes that may not be the runner's children: VMs outlive the runner that started them. */
import { readFileSync, readdirSync } from 'node:fs';
import { pollUntil } from '../../lib/waiting/deadline.ts';

const KILL_TIMEOUT_MS = 10_000;
const CLOCK_TICKS_PER_SECOND = 100;

export { hostBootId } from '../../lib/host-clock.ts';

/** A pid alone may be reused; pid and start time together identify one process of this boot. */
export interface ProcessIdentity {
  pid: number;
  /** Field 22 of /proc/pid/stat, clock ticks since boot. */
  startTicks: number;
}

export interface ProcessUsage {
  cpuMs: number;
  /** Resident memory now, and its peak. */
  memBytes: number;
  memPeakBytes: number;
}

interface ProcessStat {
  state: string;
  startTicks: number;
  cpuTicks: number;
  threads: number;
}

function findStat(pid: number): ProcessStat | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // The second field is the command in parentheses and may contain anything, so the fields are counted after it.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return {
    state: fields[0] ?? 'X',
    cpuTicks: Number(fields[11]) + Number(fields[12]),
    threads: Number(fields[17]),
    startTicks: Number(fields[19]),
  };
}

export function findIdentity(pid: number): ProcessIdentity | undefined {
  const stat = findStat(pid);
  return stat === undefined ? undefined : { pid, startTicks: stat.startTicks };
}

/**
 * Returns false for a zombie too, as it runs nothing and holds nothing. But a process is alive while only its first
 * thread is a zombie: as it ends, other threads may still hold its files.
 */
export function isAlive(identity: ProcessIdentity): boolean {
  const stat = findStat(identity.pid);
  if (stat === undefined || stat.startTicks !== identity.startTicks || stat.state === 'X') return false;
  return stat.state !== 'Z' || stat.threads > 1;
}

/**
 * CPU time (user and system) and resident memory; undefined when the process is gone. It is gone, too, when only its
 * memory is: the kernel frees that first, and closes the files that tell others of the end later.
 */
export function findUsage(identity: ProcessIdentity): ProcessUsage | undefined {
  const stat = findStat(identity.pid);
  if (stat === undefined || stat.startTicks !== identity.startTicks) return undefined;
  let status: string;
  try {
    status = readFileSync(`/proc/${identity.pid}/status`, 'latin1');
  } catch {
    return undefined;
  }
  const resident = /^VmRSS:\s+(\d+) kB$/mu.exec(status)?.[1];
  const peak = /^VmHWM:\s+(\d+) kB$/mu.exec(status)?.[1];
  if (resident === undefined || peak === undefined) return undefined;
  return {
    cpuMs: (stat.cpuTicks * 1000) / CLOCK_TICKS_PER_SECOND,
    memBytes: Number(resident) * 1024,
    memPeakBytes: Number(peak) * 1024,
  };
}

/** Sends SIGKILL, then waits until the process is gone: only then are its uid, TAP and files free. */
export async function killAndWait(identity: ProcessIdentity): Promise<void> {
  if (isAlive(identity)) {
    try {
      process.kill(identity.pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
  await pollUntil({ step: `end of process ${identity.pid}`, timeoutMs: KILL_TIMEOUT_MS, intervalMs: 2 }, () =>
    isAlive(identity) ? undefined : true,
  );
}

/** Processes whose real uid is in `[first, last]`. */
export function listProcessesOfUids(first: number, last: number): ProcessIdentity[] {
  const found: ProcessIdentity[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/u.test(name)) continue;
    const uid = findOwner(name);
    if (uid === undefined || uid < first || uid > last) continue;
    const identity = findIdentity(Number(name));
    if (identity !== undefined) found.push(identity);
  }
  return found;
}

/** The real user id, from `status`: the directory in /proc belongs to root for a process that may not be traced. */
function findOwner(pid: string): number | undefined {
  try {
    const uid = /^Uid:\s+(\d+)/mu.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
    return uid === undefined ? undefined : Number(uid);
  } catch {
    return undefined;
  }
}
