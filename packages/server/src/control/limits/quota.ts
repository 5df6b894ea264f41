/** Checks whether an organization may have more sandboxes, vCPUs and memory. Pure. */
import { AppError } from '@coppice/contract';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import type { Limits } from './organization-limits.ts';

export type Shape = Pick<SandboxRow, 'vcpus' | 'mem_mib'>;

/** The live sandboxes of an organization. */
export interface Held extends Shape {
  /** Creating, running or hibernated. The shape is the sum of those that run, or are about to. */
  sandboxes: number;
}

/** Throws `capacity`, which names the limit, if `more` does not fit. */
export function checkQuota(limits: Limits, held: Held, more: readonly Shape[]): void {
  // A resume adds no sandbox. It must not fail because the limit was lowered meanwhile.
  if (more.length > 0)
    check('live sandboxes', limits.sandboxes, { used: held.sandboxes, asked: more.length }, 'destroy some');
  checkShapes(limits, held, more);
}

/** Throws `capacity` if a sandbox that is hibernated may not run again. */
export function checkResume(limits: Limits, held: Held, shape: Shape): void {
  const { vcpus, mem_mib } = held;
  checkShapes(limits, { vcpus: vcpus + shape.vcpus, mem_mib: mem_mib + shape.mem_mib }, []);
}

function checkShapes(limits: Limits, held: Shape, more: readonly Shape[]): void {
  const remedy = 'destroy or hibernate some';
  const asked = (name: keyof Shape) => ({
    used: held[name],
    asked: more.reduce((total, shape) => total + shape[name], 0),
  });
  check('vCPUs in use', limits.vcpus, asked('vcpus'), remedy);
  check('MiB of memory in use', limits.memMiB, asked('mem_mib'), remedy);
}

function check(
  what: string,
  limit: number,
  { used, asked }: { used: number; asked: number },
  remedy: string,
): void {
  if (used + asked <= limit) return;
  const request = asked === 0 ? '' : ` and asks for ${asked} more`;
  throw new AppError(
    'capacity',
    `the organization has ${used} ${what}${request}, the limit is ${limit}; ${remedy}`,
  );
}
