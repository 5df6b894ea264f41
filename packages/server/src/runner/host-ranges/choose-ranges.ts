/**
 * Chooses the addresses and user ids of an installation:
 *
 *     set      ──► as set; user ids only if no other installation has them (each runner kills QEMUs it does not know)
 *     recorded ──► as recorded, unless others use them by now and no VM of this installation is connected
 *     neither  ──► the first free ones
 */
import { AppError } from '@coppice/contract';
import { buildAddressPlan, overlaps, parseCidr, type Cidr } from '../network/addresses/address-plan.ts';
import { UIDS_OF_INSTALLATION } from '../confinement/vm-accounts.ts';
import { idsOverlap, type IdRange } from './account-ids.ts';
import { FIRST_RANGES, type HostRanges, type SetRanges } from './host-ranges.ts';
import type { Installation } from './installations.ts';

/** More ids than one installation needs, so that the numbers are round. */
const UID_STEP = 20_000;
const UID_CHOICES = 1000;
const NETWORKS = 256;

export interface RangeFindings {
  set: SetRanges;
  recorded: HostRanges | undefined;
  others: readonly Installation[];
  /** Whether a VM of this installation is connected; if so, the addresses cannot change. */
  hasConnectedVm: boolean;
  /** Whether an interface or a route of the host, other than this installation's, is in the range. */
  isInUse: (range: Cidr) => boolean;
  /** Whether an account or a process has one of the ids. */
  areIdsInUse: (range: IdRange) => boolean;
}

/** Throws `invalid_request` with the name of the setting to change. */
export function chooseRanges(findings: RangeFindings): HostRanges {
  return { guestCidr: chooseGuestCidr(findings), uidBase: chooseUidBase(findings) };
}

function chooseGuestCidr({ set, recorded, others, hasConnectedVm, isInUse }: RangeFindings): string {
  if (set.guestCidr !== undefined) return buildAddressPlan(set.guestCidr).guests.text;
  const taken = others.map((other) => parseCidr('guestCidr', other.guestCidr));
  const isFree = (text: string): boolean => {
    const range = parseCidr('guestCidr', text);
    return !isInUse(range) && !taken.some((other) => overlaps(range, other));
  };
  if (recorded !== undefined && (hasConnectedVm || isFree(recorded.guestCidr))) return recorded.guestCidr;
  const found = listNetworks().find(isFree);
  if (found !== undefined) return found;
  throw new AppError(
    'invalid_request',
    'guestCidr: every /16 of 10.0.0.0/8 is in use on this host; set it to a private range that is free',
  );
}

/** The /16 networks of 10.0.0.0/8 as CIDRs, from the default one upwards and wrapping around. */
function listNetworks(): string[] {
  const [, first = 0] = FIRST_RANGES.guestCidr.split('.').map(Number);
  return Array.from({ length: NETWORKS }, (_, index) => `10.${(first + index) % NETWORKS}.0.0/16`);
}

function chooseUidBase({ set, recorded, others, areIdsInUse }: RangeFindings): number {
  const findOwner = (base: number): Installation | undefined =>
    others.find(({ uidBase }) => idsOverlap(idsFrom(base), idsFrom(uidBase)));
  if (set.uidBase !== undefined) {
    const owner = findOwner(set.uidBase);
    if (owner === undefined) return set.uidBase;
    throw new AppError('invalid_request', describeOverlap(set.uidBase, owner));
  }
  if (recorded !== undefined && findOwner(recorded.uidBase) === undefined) return recorded.uidBase;
  const choices = Array.from({ length: UID_CHOICES }, (_, index) => FIRST_RANGES.uidBase + index * UID_STEP);
  const found = choices.find((base) => findOwner(base) === undefined && !areIdsInUse(idsFrom(base)));
  if (found !== undefined) return found;
  throw new AppError(
    'invalid_request',
    `uidBase: no ${UIDS_OF_INSTALLATION} user ids in a row are free from ${FIRST_RANGES.uidBase} on; set it`,
  );
}

/** The user ids of an installation's VMs, which are also their group ids. */
export function idsFrom(base: number): IdRange {
  return { first: base, last: base + UIDS_OF_INSTALLATION - 1 };
}

function describeOverlap(base: number, { dataDir, uidBase }: Installation): string {
  const text = ({ first, last }: IdRange): string => `${first} to ${last}`;
  return (
    `uidBase: user ids ${text(idsFrom(base))} overlap those of the installation in ${dataDir} ` +
    `(${text(idsFrom(uidBase))}); choose another, or leave it unset`
  );
}
