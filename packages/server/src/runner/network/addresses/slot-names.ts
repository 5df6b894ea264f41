/** Names that this instance owns on the host. The slug keeps several instances on one machine apart. */
import { AppError } from '@coppice/contract';

/** An interface name has at most 15 bytes: prefix (7), dash, up to five digits. */
export interface InstanceNames {
  slug: string;
  /** Wildcard of all TAPs of this instance, as nft writes it. */
  tapPattern: string;
  table: string;
  /** Label of the resolver's address on `lo`; the kernel wants it to begin with the interface's name. */
  resolverLabel: string;
  /** Interface group of TAPs that are about to be deleted: a group goes in one kernel operation. */
  removalGroup: number;
}

/** The upper half says "co", so that no number an administrator would pick is hit. */
const REMOVAL_GROUPS = 0x63_6f_00_00;

export function buildInstanceNames(slug: string): InstanceNames {
  if (!/^[0-9a-f]{4}$/u.test(slug)) {
    throw new AppError('invalid_request', `slug: "${slug}" must be 4 lower-case hex characters`);
  }
  return {
    slug,
    tapPattern: `cop${slug}-*`,
    table: `coppice_${slug}`,
    resolverLabel: `lo:cop${slug}`,
    removalGroup: REMOVAL_GROUPS + Number.parseInt(slug, 16),
  };
}

export function buildTapName(names: InstanceNames, index: number): string {
  return `cop${names.slug}-${index}`;
}

/** The slot of one of this instance's TAPs; undefined for any other interface. */
export function findTapIndex(names: InstanceNames, interfaceName: string): number | undefined {
  const prefix = `cop${names.slug}-`;
  const digits = interfaceName.startsWith(prefix) ? interfaceName.slice(prefix.length) : '';
  return /^(?:0|[1-9]\d{0,4})$/u.test(digits) ? Number(digits) : undefined;
}

/** Mark on every connection of a slot: the instance above, the zone below. Flushing goes by it. */
export function buildConnectionMark(names: InstanceNames, zone: number): number {
  return ((Number.parseInt(names.slug, 16) << 16) | zone) >>> 0;
}
