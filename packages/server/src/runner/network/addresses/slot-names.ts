/** Names that an instance owns on the host. The slug distinguishes several instances on one machine. */
import { AppError } from '@coppice/contract';

/** The names of one instance. A TAP's name fits the 15 bytes of an interface: prefix (7), dash, up to five digits. */
export interface InstanceNames {
  slug: string;
  /** Wildcard of all TAPs of this instance, as nft writes it. */
  tapPattern: string;
  table: string;
  /** Label of the resolver's address on `lo`; the kernel requires the interface's name as its prefix. */
  resolverLabel: string;
  /** Interface group of TAPs that are about to be deleted: the kernel deletes a group in one operation. */
  removalGroup: number;
}

/** The upper half spells "co", so that the number does not match one that an administrator picks. */
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

/** Returns the slot of one of this instance's TAPs; undefined for any other interface. */
export function findTapIndex(names: InstanceNames, interfaceName: string): number | undefined {
  const prefix = `cop${names.slug}-`;
  const digits = interfaceName.startsWith(prefix) ? interfaceName.slice(prefix.length) : '';
  return /^(?:0|[1-9]\d{0,4})$/u.test(digits) ? Number(digits) : undefined;
}

/** The mark on every connection of a slot: slug in the upper half, zone in the lower. A flush selects by it. */
export function buildConnectionMark(names: InstanceNames, zone: number): number {
  return ((Number.parseInt(names.slug, 16) << 16) | zone) >>> 0;
}
