/**
 * POSIX ACLs in layers. Squashfs has none, so they are left out. But in a file with an ACL the group bits of the mode
 * are the ACL's mask. Unchanged, they would give the owning group the permissions of other users and groups in the ACL.
 */
import { LayerError, quoteName } from './layer-error.ts';

/**
 * Names of ACLs as extended attributes (linux/posix_acl_xattr.h) and as text of star and GNU tar:
 * `user::rw-,group::r--,…`.
 */
const ACCESS_XATTR = 'system.posix_acl_access';
const DEFAULT_XATTR = 'system.posix_acl_default';
const ACCESS_RECORD = 'SCHILY.acl.access';
const DEFAULT_RECORD = 'SCHILY.acl.default';

/** Keys of the PAX records that {@link findAcl} reads. */
export const ACL_RECORDS: readonly string[] = [
  `SCHILY.xattr.${ACCESS_XATTR}`,
  `SCHILY.xattr.${DEFAULT_XATTR}`,
  ACCESS_RECORD,
  DEFAULT_RECORD,
];

const XATTR_VERSION = 2;
const HEADER_BYTES = 4;
const ENTRY_BYTES = 8;
const GROUP_OBJECT = 0x04;
const GROUP_MASK = 0o070;

export interface EntryAcl {
  /** Permissions of the owning group, 0 to 7; undefined if the entry has only a default ACL, for new files. */
  group: number | undefined;
}

/** Finds the ACL in an entry's PAX records; undefined without one. Throws {@link LayerError} if it is malformed. */
export function findAcl(name: string, pax: ReadonlyMap<string, Buffer>): EntryAcl | undefined {
  const xattr = pax.get(`SCHILY.xattr.${ACCESS_XATTR}`);
  if (xattr !== undefined) return { group: parseXattr(name, xattr) };
  const record = pax.get(ACCESS_RECORD);
  if (record !== undefined) return { group: parseText(name, record.toString('latin1')) };
  const hasDefault = pax.has(`SCHILY.xattr.${DEFAULT_XATTR}`) || pax.has(DEFAULT_RECORD);
  return hasDefault ? { group: undefined } : undefined;
}

/** Returns the mode of the file without its ACL; the group never gets more than with it. */
export function modeWithoutAcl(mode: number, { group }: EntryAcl): number {
  if (group === undefined) return mode;
  return (mode & ~GROUP_MASK) | (mode & (group << 3));
}

function parseXattr(name: string, value: Buffer): number {
  const isSound =
    value.length >= HEADER_BYTES &&
    value.readUInt32LE() === XATTR_VERSION &&
    (value.length - HEADER_BYTES) % ENTRY_BYTES === 0;
  if (!isSound) throw malformed(name);
  for (let at = HEADER_BYTES; at < value.length; at += ENTRY_BYTES) {
    if (value.readUInt16LE(at) === GROUP_OBJECT) return value.readUInt16LE(at + 2) & 7;
  }
  throw malformed(name);
}

function parseText(name: string, text: string): number {
  const found = /(?:^|[,\n])\s*(?:group|g)::([r-])([w-])([x-])/u.exec(text);
  if (found === null) throw malformed(name);
  return found.slice(1).reduce((bits, letter) => bits * 2 + (letter === '-' ? 0 : 1), 0);
}

function malformed(name: string): LayerError {
  return new LayerError(`${quoteName(name)} has a malformed access control list`);
}
