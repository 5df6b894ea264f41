import { LayerError, quoteName } from './layer-error.ts';
import { MAX_PATH_BYTES } from './layer-path.ts';
import { NO_XATTRS, type TarEntry, type Xattrs } from './tar-reader.ts';

export type InodeType = Exclude<TarEntry['type'], 'hardlink'>;

export interface Inode {
  type: InodeType;
  mode: number;
  uid: number;
  gid: number;
  mtimeSeconds: number;
  xattrs: Xattrs;
  /** Layer and offset of the content, for a file. */
  layer: number;
  dataOffset: number;
  sizeBytes: number;
  /** Target, for a symbolic link. */
  target: string;
  deviceMajor: number;
  deviceMinor: number;
}

const DIRECTORY_MODE = 0o755;
const MAX_ID = 0xffff_ffff;
/** Squashfs stores 32 bits. */
const MAX_MTIME_SECONDS = 0xffff_ffff;
const MAX_DEVICE_MAJOR = 0xfff;
const MAX_DEVICE_MINOR = 0xf_ffff;
const XATTR_NAMES = /^(?:user|trusted|security)\../u;

/** Makes the inode of a directory that no entry describes. */
export function implicitDirectory(): Inode {
  return {
    type: 'directory',
    mode: DIRECTORY_MODE,
    uid: 0,
    gid: 0,
    mtimeSeconds: 0,
    xattrs: NO_XATTRS,
    layer: 0,
    dataOffset: 0,
    sizeBytes: 0,
    target: '',
    deviceMajor: 0,
    deviceMinor: 0,
  };
}

/** Makes the inode of an entry. Throws {@link LayerError} on numbers and targets that squashfs cannot hold. */
export function buildInode(entry: TarEntry, type: InodeType, layer: number): Inode {
  checkNumber(entry, 'owner', entry.uid, MAX_ID);
  checkNumber(entry, 'group', entry.gid, MAX_ID);
  const isDevice = type === 'character' || type === 'block';
  if (isDevice) {
    checkNumber(entry, 'device major', entry.deviceMajor, MAX_DEVICE_MAJOR);
    checkNumber(entry, 'device minor', entry.deviceMinor, MAX_DEVICE_MINOR);
  }
  if (type === 'symlink') checkTarget(entry);
  return {
    type,
    mode: entry.mode,
    uid: entry.uid,
    gid: entry.gid,
    mtimeSeconds: Math.min(Math.max(entry.mtimeSeconds, 0), MAX_MTIME_SECONDS),
    xattrs: keepXattrs(entry.xattrs),
    layer,
    dataOffset: entry.dataOffset,
    sizeBytes: entry.sizeBytes,
    target: type === 'symlink' ? entry.linkName : '',
    deviceMajor: isDevice ? entry.deviceMajor : 0,
    deviceMinor: isDevice ? entry.deviceMinor : 0,
  };
}

function checkTarget(entry: TarEntry): void {
  const isSound =
    entry.linkName !== '' && entry.linkName.length <= MAX_PATH_BYTES && !entry.linkName.includes('\0');
  if (!isSound)
    throw new LayerError(`${quoteName(entry.name)} is a symbolic link with an empty or overlong target`);
}

function checkNumber(entry: TarEntry, what: string, value: number, max: number): void {
  if (value < 0 || value > max) throw new LayerError(`${quoteName(entry.name)} has the ${what} ${value}`);
}

/**
 * Keeps the three kinds of attributes that squashfs supports. ACLs (`system.*`) are dropped; the mode accounts for
 * them. `trusted.overlay.*` is dropped too: the image is the lower layer of the guest's overlay, which would obey it.
 */
function keepXattrs(xattrs: Xattrs): Xattrs {
  if (xattrs.size === 0) return xattrs;
  const kept = [...xattrs].filter(([name]) => XATTR_NAMES.test(name) && !name.startsWith('trusted.overlay.'));
  return new Map(kept);
}
