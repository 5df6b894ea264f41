/** The limits of an organization as fields of a form: an empty field stands for the setting of the service. */
import type { OrganizationLimits } from '../../../../contract/src/accounts/operator.ts';

export type LimitName = keyof OrganizationLimits;
export type LimitFields = Record<LimitName, string>;

/** Names with their labels and hints, in the order of the form. */
export const LIMIT_LABELS: readonly (readonly [name: LimitName, label: string, hint: string])[] = [
  ['sandboxes', 'Sandboxes', 'That have not ended. 0: no limit'],
  ['vcpus', 'Virtual CPUs', 'Of running sandboxes. 0: no limit'],
  ['mem_mib', 'Memory in MiB', 'Of running sandboxes. 0: no limit'],
  ['disks', 'Persistent disks', '0: no limit'],
  ['disk_gb', 'Size of disks in GB', 'All together. 0: no limit'],
  ['snapshot_bytes', 'Size of snapshots in bytes', 'All together. 0: none'],
  ['rate_limit_rps', 'Requests a second', '0: no limit'],
  ['rate_limit_burst', 'Requests at once', 'At least 1'],
  ['open_requests', 'Open requests', '0: no limit'],
  ['open_streams', 'Open streams', '0: no limit'],
];

export function toFields(limits: OrganizationLimits): LimitFields {
  const entries = LIMIT_LABELS.map(([name]) => [name, limits[name] === null ? '' : String(limits[name])]);
  return Object.fromEntries(entries) as LimitFields;
}

/** Returns only what differs. Text that is no number is sent as it is, so that the service names the field. */
export function toChange(
  fields: LimitFields,
  limits: OrganizationLimits,
): Partial<Record<LimitName, unknown>> {
  const before = toFields(limits);
  const changed = LIMIT_LABELS.filter(([name]) => fields[name].trim() !== before[name]);
  return Object.fromEntries(changed.map(([name]) => [name, toLimit(fields[name].trim())]));
}

function toLimit(text: string): unknown {
  if (text === '') return null;
  return Number.isNaN(Number(text)) ? text : Number(text);
}

export function countOwnLimits(limits: OrganizationLimits): string {
  const count = LIMIT_LABELS.filter(([name]) => limits[name] !== null).length;
  return count === 0 ? 'none' : String(count);
}
