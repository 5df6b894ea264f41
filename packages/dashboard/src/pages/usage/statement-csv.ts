import { formatCents } from '../../../../contract/src/billing/cost.ts';
import type { Statement } from '../../../../sdk/src/index.ts';
import { writeCsv } from './csv.ts';
import type { CostLine } from './statement-costs.ts';

const COLUMNS = [
  'kind',
  'id',
  'name',
  'team',
  'image',
  'vcpus',
  'mem_mib',
  'billed_ms',
  'disk_gb_hours',
  'labels',
  'cost_cents',
];

/** Writes the lines of a statement: sandboxes, then disks. */
export function writeStatement({ disks }: Pick<Statement, 'disks'>, lines: readonly CostLine[]): string {
  return writeCsv([
    COLUMNS,
    ...lines.map(({ sandboxId, teamId, image, vcpus, memMiB, billedMs, units, life }) => [
      'sandbox',
      sandboxId,
      life?.name ?? '',
      teamId,
      image,
      vcpus,
      memMiB,
      billedMs,
      '',
      Object.entries(life?.labels ?? {})
        .map(([name, value]) => `${name}=${value}`)
        .join(' '),
      formatCents(units),
    ]),
    ...disks.map(({ disk, teamId, gbHours, costCents }) => [
      'disk',
      disk,
      '',
      teamId,
      '',
      '',
      '',
      '',
      gbHours,
      '',
      costCents.toFixed(12),
    ]),
  ]);
}
