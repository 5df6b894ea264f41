/**
 * POSIX ACLs in layers. Squashfs has none, so they are left out; but while a file has one, the group bits of its mode are
 * the ACL's mask. Left as they are they would give the owning group what only others named in the ACL were to have.
 */
import { LayerError, quoteName } from './layer-error.ts';

/** As an extended attribute, linux/posix_acl_xattr.h, and as star and GNU tar write it: `user::rw-,group::r--,mask::rw-,…`. */
const ACCESS_XATTR = 'system.posix_acl_access';
const DEFAULT_XATTR = 'system.posix_acl_default';
const ACCESS_RECORD = 'SCHILY.acl.access';
const DEFAULT_RECORD = 'SCHILY.acl.default';

const XATTR_VERSION = 2;
const HEADER_BYTES = 4;
const ENTRY_BYTES = 8;
const GROUP_OBJECT = 0x04;
const GROUP_MASK = 0o070;

export interface EntryAcl {
  /** Permissions of the owning group, 0 to 7; undefined if only new files would inherit an ACL. */
  group: number | undefined;
}

/** Of an entry's PAX records; undefined without an ACL. */
export function findAcl(name: string, pax: ReadonlyMap<string, Buffer>): EntryAcl | undefined {
  const xattr = pax.get(`SCHILY.xattr.${ACCESS_XATTR}`);
  if (xattr !== undefined) return { group: parseXattr(name, xattr) };
  const record = pax.get(ACCESS_RECORD);
  if (record !== undefined) return { group: parseText(name, record.toString('latin1')) };
  const hasDefault = pax.has(`SCHILY.xattr.${DEFAULT_XATTR}`) || pax.has(DEFAULT_RECORD);
  return hasDefault ? { group: undefined } : undefined;
}

/** The mode that the file has without its ACL: never more for the group than with it. */
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
