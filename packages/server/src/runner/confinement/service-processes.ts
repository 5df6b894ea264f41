/** Identifies the service's own processes: the runner, the supervisor that started it, and their descendants. */
import { readFileSync } from 'node:fs';

const MAX_DEPTH = 16;

function findParent(pid: number): number | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}

/** Whether a process belongs to the service. The init process of a machine or container never does. */
export function isOfService(pid: number): boolean {
  const heads = new Set([process.pid, process.ppid].filter((head) => head > 1));
  let current: number | undefined = pid;
  for (let depth = 0; depth < MAX_DEPTH && current !== undefined && current > 1; depth += 1) {
    if (heads.has(current)) return true;
    current = findParent(current);
  }
  return false;
}
