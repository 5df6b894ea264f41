/** Checks whether an organization may have more sandboxes, vCPUs and memory. Pure. */
import { AppError } from '@coppice/contract';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import type { Limits } from './organization-limits.ts';

export type Shape = Pick<SandboxRow, 'vcpus' | 'mem_mib'>;

export interface QuotaUse {
  /** Creating, running or hibernated. */
  sandboxes: number;
  /** Those of them that hold vCPUs and memory, including one that is about to resume. */
  held: readonly Shape[];
  more: readonly Shape[];
}

/** Returns whether a sandbox holds vCPUs and memory. A hibernated one does only when it is about to run again. */
export function holdsMachine({
  row,
  isResuming,
}: {
  row: Pick<SandboxRow, 'status'>;
  isResuming: boolean;
}): boolean {
  return row.status !== 'hibernated' || isResuming;
}

/** Throws `capacity`, which names the limit, if `more` does not fit. */
export function checkQuota(limits: Limits, { sandboxes, held, more }: QuotaUse): void {
  // A resume adds no sandbox. It must not fail because the limit was lowered meanwhile.
  if (more.length > 0)
    check('live sandboxes', limits.sandboxes, { used: sandboxes, asked: more.length }, 'destroy some');
  const remedy = 'destroy or hibernate some';
  const sum = (shapes: readonly Shape[], name: keyof Shape) =>
    shapes.reduce((total, shape) => total + shape[name], 0);
  const asked = (name: keyof Shape) => ({ used: sum(held, name), asked: sum(more, name) });
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
