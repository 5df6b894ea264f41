/** Reads the entries of a tar archive (v7, ustar, GNU, PAX) without their contents, which are read later by offset. */
import type { FileHandle } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { ByteWindow } from './byte-window.ts';
import { LayerError, quoteName } from './layer-error.ts';
import { ACL_RECORDS, findAcl, modeWithoutAcl } from './posix-acl.ts';
import {
  TAR_BLOCK_BYTES,
  isZeroBlock,
  padToBlock,
  parsePaxRecords,
  parseTarHeader,
  type TarHeader,
} from './tar-format.ts';

type TarEntryType = 'file' | 'directory' | 'symlink' | 'hardlink' | 'character' | 'block' | 'fifo';

export type Xattrs = ReadonlyMap<string, Buffer>;

/** An entry of an archive. Names and targets are byte strings (latin1). */
export interface TarEntry {
  name: string;
  type: TarEntryType;
  mode: number;
  uid: number;
  gid: number;
  mtimeSeconds: number;
  /** Size of the content, which starts at `dataOffset` of the archive. 0 except for files. */
  sizeBytes: number;
  dataOffset: number;
  /** Target of a symbolic or hard link, else empty. */
  linkName: string;
  deviceMajor: number;
  deviceMinor: number;
  xattrs: Xattrs;
  /** Whether the entry had a POSIX ACL, which is left out; `mode` accounts for it. */
  hasAcl: boolean;
}

/** Limit of one extended header, which is held in memory; the same as in Go's archive/tar. */
const MAX_EXTENSION_BYTES = 1 << 20;
/** Limit of all extended headers of an archive: they do not count as entries, and parsing them is expensive. */
const MAX_EXTENSIONS_BYTES = 512 << 20;
/** Headers after which a reader with a signal lets the event loop run. */
const BURST = 1000;
/** Most extended headers before one entry; GNU tar writes up to three. */
const MAX_EXTENSIONS = 16;
const WINDOW_BYTES = MAX_EXTENSION_BYTES;
const XATTR_KEY = 'SCHILY.xattr.';
const SPARSE_KEY = 'GNU.sparse.';
export const NO_XATTRS: Xattrs = new Map();

const TYPES: Readonly<Record<string, TarEntryType>> = {
  '\0': 'file',
  '0': 'file',
  '7': 'file',
  '1': 'hardlink',
  '2': 'symlink',
  '3': 'character',
  '4': 'block',
  '5': 'directory',
  '6': 'fifo',
};

/** The extended headers before an entry's own header. */
interface Extensions {
  name?: string;
  linkName?: string;
  pax?: Map<string, Buffer>;
}

/** For a reader that shares its process with others. */
export interface TarReading {
  /** Most bytes of one extended header, and of all. */
  extensionBytes?: number;
  extensionsBytes?: number;
  /** If false, extended attributes are left out. An ACL still changes the mode. */
  keepsXattrs?: boolean;
  /** With it, the event loop runs between bursts of headers. */
  signal?: AbortSignal;
}

/** Yields the entries. Throws {@link LayerError} on an archive that is malformed, truncated or not supported. */
export async function* readTar(file: FileHandle, how: TarReading = {}): AsyncGenerator<TarEntry> {
  const { keepsXattrs = true, signal } = how;
  const { size: archiveBytes } = await file.stat();
  const window = new ByteWindow(file, WINDOW_BYTES);
  const budget = new ExtensionBudget(how);
  let extensions: Extensions = {};
  let offset = 0;
  for (let headers = 1; ; headers += 1) {
    if (signal !== undefined && headers % BURST === 0) await setImmediate();
    signal?.throwIfAborted();
    const block = await window.view(offset, TAR_BLOCK_BYTES);
    if (block.length === 0 || isZeroBlock(block)) break;
    if (block.length < TAR_BLOCK_BYTES) throw new LayerError('the archive is cut within a header');
    const header = locate(offset, () => parseTarHeader(block));
    const dataOffset = offset + TAR_BLOCK_BYTES;
    if (isExtension(header.typeFlag)) {
      budget.count(header.sizeBytes);
      extensions = await readExtension({ window, keepsXattrs }, header, dataOffset, extensions);
      offset = dataOffset + padToBlock(header.sizeBytes);
      continue;
    }
    const entry = buildEntry(header, extensions, { dataOffset, keepsXattrs });
    if (entry.sizeBytes < 0 || dataOffset + entry.sizeBytes > archiveBytes) {
      throw new LayerError(`the archive is cut within ${quoteName(entry.name)}`);
    }
    extensions = {};
    budget.nextEntry();
    offset = dataOffset + padToBlock(entry.sizeBytes);
    yield entry;
  }
  if (Object.keys(extensions).length > 0) throw new LayerError('the archive ends after an extended header');
  await checkEnd(window, offset + TAR_BLOCK_BYTES);
}

/** Checks that the archive ends with two empty blocks. A single empty block ends it for some readers only. */
async function checkEnd(window: ByteWindow, offset: number): Promise<void> {
  const next = await window.view(offset, TAR_BLOCK_BYTES);
  if (!isZeroBlock(next))
    throw new LayerError(`an empty block is between the entries, before byte ${offset}`);
}

/** Adds the offset to an error in a header, as the name of the entry may not be readable. */
function locate<T>(offset: number, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof LayerError)) throw error;
    throw new LayerError(`${error.message}, at byte ${offset}`, { cause: error });
  }
}

class ExtensionBudget {
  readonly #maxOne: number;
  readonly #maxAll: number;
  #bytes = 0;
  #inARow = 0;

  constructor({ extensionBytes, extensionsBytes }: TarReading) {
    this.#maxOne = Math.min(extensionBytes ?? MAX_EXTENSION_BYTES, MAX_EXTENSION_BYTES);
    this.#maxAll = extensionsBytes ?? MAX_EXTENSIONS_BYTES;
  }

  count(sizeBytes: number): void {
    if (sizeBytes < 0 || sizeBytes > this.#maxOne)
      throw new LayerError(`an extended header has ${sizeBytes} bytes, at most ${this.#maxOne} are read`);
    this.#bytes += sizeBytes;
    this.#inARow += 1;
    if (this.#inARow > MAX_EXTENSIONS)
      throw new LayerError(`more than ${MAX_EXTENSIONS} extended headers are before one entry`);
    if (this.#bytes > this.#maxAll)
      throw new LayerError(`its extended headers have more than ${this.#maxAll} bytes`);
  }

  nextEntry(): void {
    this.#inARow = 0;
  }
}

function isExtension(typeFlag: string): boolean {
  return typeFlag === 'x' || typeFlag === 'g' || typeFlag === 'L' || typeFlag === 'K';
}

async function readExtension(
  { window, keepsXattrs }: { window: ByteWindow; keepsXattrs: boolean },
  header: TarHeader,
  dataOffset: number,
  extensions: Extensions,
): Promise<Extensions> {
  const { sizeBytes, typeFlag } = header;
  // Global headers are comments of the archive's maker (git archive); container engines ignore them too.
  if (typeFlag === 'g') return extensions;
  // A copy, because the window is reused.
  const data = Buffer.from(await window.view(dataOffset, sizeBytes));
  if (data.length < sizeBytes) throw new LayerError('the archive is cut within an extended header');
  if (typeFlag === 'x') {
    const isKept = keepsXattrs ? undefined : isNeeded;
    return { ...extensions, pax: locate(dataOffset - TAR_BLOCK_BYTES, () => parsePaxRecords(data, isKept)) };
  }
  const end = data.indexOf(0);
  const text = data.toString('latin1', 0, end === -1 ? data.length : end);
  return typeFlag === 'L' ? { ...extensions, name: text } : { ...extensions, linkName: text };
}

const NEEDED: ReadonlySet<string> = new Set([
  'path',
  'linkpath',
  'size',
  'mtime',
  'uid',
  'gid',
  ...ACL_RECORDS,
]);

/** Whether a record says what the entry is, besides its extended attributes. */
function isNeeded(key: string): boolean {
  return NEEDED.has(key) || key.startsWith(SPARSE_KEY);
}

function buildEntry(
  header: TarHeader,
  extensions: Extensions,
  { dataOffset, keepsXattrs }: { dataOffset: number; keepsXattrs: boolean },
): TarEntry {
  const pax = extensions.pax;
  const name = pax?.get('path')?.toString('latin1') ?? extensions.name ?? header.name;
  const flagType = TYPES[header.typeFlag];
  if (flagType === undefined) {
    throw new LayerError(`${quoteName(name)} has the unsupported tar type ${quoteName(header.typeFlag)}`);
  }
  // Before POSIX a directory was a file whose name ends with a slash.
  const type = flagType === 'file' && name.endsWith('/') ? 'directory' : flagType;
  const acl = pax === undefined ? undefined : findAcl(name, pax);
  return {
    name,
    type,
    mode: acl === undefined ? header.mode : modeWithoutAcl(header.mode, acl),
    uid: paxNumber(pax, 'uid') ?? header.uid,
    gid: paxNumber(pax, 'gid') ?? header.gid,
    mtimeSeconds: Math.floor(paxNumber(pax, 'mtime') ?? header.mtimeSeconds),
    sizeBytes: type === 'file' ? (paxNumber(pax, 'size') ?? header.sizeBytes) : 0,
    dataOffset,
    linkName: pax?.get('linkpath')?.toString('latin1') ?? extensions.linkName ?? header.linkName,
    deviceMajor: header.deviceMajor,
    deviceMinor: header.deviceMinor,
    xattrs: pax === undefined ? NO_XATTRS : findXattrs(name, pax, keepsXattrs),
    hasAcl: acl !== undefined,
  };
}

function paxNumber(pax: Map<string, Buffer> | undefined, key: string): number | undefined {
  const text = pax?.get(key)?.toString('latin1');
  if (text === undefined || text === '') return undefined;
  const value = Number(text);
  if (!/^-?\d+(?:\.\d*)?$/u.test(text) || !Number.isSafeInteger(Math.floor(value))) {
    throw new LayerError(`the PAX record ${key}=${quoteName(text)} is no number`);
  }
  return value;
}

function findXattrs(name: string, pax: Map<string, Buffer>, keeps: boolean): Xattrs {
  const xattrs = new Map<string, Buffer>();
  for (const [key, value] of pax) {
    if (key.startsWith(SPARSE_KEY)) throw new LayerError(`${quoteName(name)} is stored as a sparse file`);
    // A copy, because a short view would keep the whole header in memory.
    if (keeps && key.startsWith(XATTR_KEY)) xattrs.set(key.slice(XATTR_KEY.length), Buffer.from(value));
  }
  return xattrs.size === 0 ? NO_XATTRS : xattrs;
}
