/** The limits of an organization as fields of a form: an empty field stands for the setting of the service. */
import type { OrganizationLimits } from '../../../../contract/src/accounts/operator.ts';
import { formatBytes, formatMiB, formatNumber } from '../../ui/format.ts';

type LimitName = keyof OrganizationLimits;
export type LimitFields = Record<LimitName, string>;

export interface LimitField {
  name: LimitName;
  label: string;
  hint: string;
  /** In a list of limits. */
  short: string;
  show: (value: number) => string;
  /** Value of the limit for 1 in the field. Default: 1, and only whole numbers. */
  unit?: number;
  /** Default: 0 */
  min?: number;
}

const GIBIBYTE = 2 ** 30;

export const LIMIT_GROUPS: readonly { title: string; fields: readonly LimitField[] }[] = [
  {
    title: 'Compute',
    fields: [
      field('sandboxes', 'Sandboxes', 'That have not ended. 0: no limit', 'sandboxes'),
      field('vcpus', 'Virtual CPUs', 'Of running sandboxes. 0: no limit', 'vCPUs'),
      {
        ...field('mem_mib', 'Memory in MiB', 'Of running sandboxes. 0: no limit', 'memory'),
        show: unlimited(formatMiB),
      },
    ],
  },
  {
    title: 'Storage',
    fields: [
      field('disks', 'Persistent disks', '0: no limit', 'disks'),
      {
        ...field('disk_gb', 'Size of disks in GB', 'All together. 0: no limit', 'size of disks'),
        show: unlimited((value) => `${formatNumber(value)} GB`),
      },
      {
        ...field('snapshot_bytes', 'Size of snapshots in GiB', 'All together. 0: none', 'snapshots'),
        show: formatBytes,
        unit: GIBIBYTE,
      },
    ],
  },
  {
    title: 'Requests',
    fields: [
      field('rate_limit_rps', 'Requests a second', '0: no limit', 'requests a second'),
      {
        ...field(
          'rate_limit_burst',
          'Requests at once',
          'Before the rate holds. 1 or more',
          'requests at once',
        ),
        min: 1,
      },
      field('open_requests', 'Open requests', 'At a time. 0: no limit', 'open requests'),
      field('open_streams', 'Open streams', 'At a time. 0: no limit', 'open streams'),
    ],
  },
];

const FIELDS = LIMIT_GROUPS.flatMap(({ fields }) => fields);
const WHOLE = /^\d+$/u;
/** As JavaScript writes numbers: a size of few bytes is a small part of a unit. */
const DECIMAL = /^\d+(?:\.\d+)?(?:e-?\d+)?$/u;

function field(name: LimitName, label: string, hint: string, short: string): LimitField {
  return { name, label, hint, short, show: unlimited(formatNumber) };
}

function unlimited(show: (value: number) => string): (value: number) => string {
  return (value) => (value === 0 ? 'no limit' : show(value));
}

export function toFields(limits: OrganizationLimits): LimitFields {
  const entries = FIELDS.map(({ name, unit = 1 }) => {
    const value = limits[name];
    return [name, value === null ? '' : String(value / unit)];
  });
  return Object.fromEntries(entries) as LimitFields;
}

/** Says of each field that cannot be a limit what it has to be. The service knows how large each may be. */
export function findFaults(fields: LimitFields): Partial<LimitFields> {
  const faults: Partial<LimitFields> = {};
  for (const { name, label, unit, min = 0 } of FIELDS) {
    const text = fields[name].trim();
    if (text === '') continue;
    const isNumber =
      (unit === undefined ? WHOLE : DECIMAL).test(text) && Number(text) >= min && fits(text, unit);
    const kind = unit === undefined ? 'a whole number' : 'a number';
    if (!isNumber) faults[name] = `${label} must be ${kind}, ${min} or more; or empty.`;
  }
  return faults;
}

/** Returns only what differs, of fields without faults. */
export function toChange(fields: LimitFields, limits: OrganizationLimits): Partial<OrganizationLimits> {
  const values = FIELDS.map(({ name, unit = 1 }) => [name, toLimit(fields[name].trim(), unit)] as const);
  return Object.fromEntries(values.filter(([name, value]) => value !== limits[name]));
}

/** Returns whether the limit is exact, and 0 only where 0 is written. */
function fits(text: string, unit = 1): boolean {
  const value = Math.round(Number(text) * unit);
  return Number.isSafeInteger(value) && (value > 0 || Number(text) === 0);
}

function toLimit(text: string, unit: number): number | null {
  return text === '' ? null : Math.round(Number(text) * unit);
}

/** Lists the limits of its own that an organization has, for example `sandboxes 3, disks no limit`. */
export function describeLimits(limits: OrganizationLimits): string | undefined {
  const own = FIELDS.flatMap(({ name, short, show }) => {
    const value = limits[name];
    return value === null ? [] : [`${short} ${show(value)}`];
  });
  return own.length === 0 ? undefined : own.join(', ');
}
