/** Writes a tar archive for tar2sqfs: classic headers, and PAX records for attributes and values that do not fit. */
import type { ByteWindow } from './byte-window.ts';
import type { Inode, InodeType } from './inode.ts';
import { LayerError } from './layer-error.ts';
import {
  TAR_BLOCK_BYTES,
  encodePaxRecord,
  encodeTarHeader,
  fitsOctal,
  padToBlock,
  type TarHeader,
} from './tar-format.ts';

const BUFFER_BYTES = 1 << 20;
const MAX_CLASSIC_NAME_BYTES = 100;
const TYPE_FLAGS: Readonly<Record<InodeType, string>> = {
  file: '0',
  symlink: '2',
  character: '3',
  block: '4',
  directory: '5',
  fifo: '6',
};
const HARDLINK_FLAG = '1';

export class TarWriter {
  readonly #write: (chunk: Buffer) => Promise<void>;
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  #used = 0;

  /** `write` owns a chunk until its promise settles; then the memory is reused. */
  constructor(write: (chunk: Buffer) => Promise<void>) {
    this.#write = write;
  }

  /** Writes all of an inode except the content, which {@link writeContent} writes next. */
  async writeInode(path: string, inode: Inode): Promise<void> {
    const isRoot = path === '';
    const name = inode.type === 'directory' ? `${isRoot ? '.' : path}/` : path;
    await this.#writeHeader(
      {
        name,
        typeFlag: TYPE_FLAGS[inode.type],
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        sizeBytes: inode.sizeBytes,
        mtimeSeconds: inode.mtimeSeconds,
        linkName: inode.target,
        deviceMajor: inode.deviceMajor,
        deviceMinor: inode.deviceMinor,
      },
      inode.xattrs,
    );
  }

  async writeHardlink(path: string, target: string, inode: Inode): Promise<void> {
    const { mode, uid, gid, mtimeSeconds } = inode;
    await this.#writeHeader(
      {
        name: path,
        typeFlag: HARDLINK_FLAG,
        mode,
        uid,
        gid,
        mtimeSeconds,
        sizeBytes: 0,
        linkName: target,
        deviceMajor: 0,
        deviceMinor: 0,
      },
      new Map(),
    );
  }

  /** Copies the content of a file from its layer. */
  async writeContent(source: ByteWindow, inode: Inode): Promise<void> {
    let done = 0;
    while (done < inode.sizeBytes) {
      const wanted = Math.min(inode.sizeBytes - done, source.windowBytes);
      const chunk = await source.view(inode.dataOffset + done, wanted);
      if (chunk.length < wanted) throw new LayerError('the layer became shorter while it was read');
      await this.#append(chunk);
      done += chunk.length;
    }
    await this.#append(Buffer.alloc(padToBlock(inode.sizeBytes) - inode.sizeBytes));
  }

  async end(): Promise<void> {
    await this.#append(Buffer.alloc(2 * TAR_BLOCK_BYTES));
    await this.#flush();
  }

  async #writeHeader(header: TarHeader, xattrs: ReadonlyMap<string, Buffer>): Promise<void> {
    const records = buildPaxRecords(header, xattrs);
    if (records.length > 0) {
      await this.#append(encodeTarHeader({ ...EXTENSION, sizeBytes: records.length }));
      await this.#append(records);
      await this.#append(Buffer.alloc(padToBlock(records.length) - records.length));
    }
    await this.#append(encodeTarHeader(header));
  }

  async #append(data: Buffer): Promise<void> {
    let offset = 0;
    while (offset < data.length) {
      const copied = data.copy(this.#buffer, this.#used, offset);
      this.#used += copied;
      offset += copied;
      if (this.#used === this.#buffer.length) await this.#flush();
    }
  }

  async #flush(): Promise<void> {
    if (this.#used === 0) return;
    await this.#write(this.#buffer.subarray(0, this.#used));
    this.#used = 0;
  }
}

const EXTENSION: TarHeader = {
  name: 'PaxHeader',
  typeFlag: 'x',
  mode: 0o644,
  uid: 0,
  gid: 0,
  mtimeSeconds: 0,
  sizeBytes: 0,
  linkName: '',
  deviceMajor: 0,
  deviceMinor: 0,
};

function buildPaxRecords(header: TarHeader, xattrs: ReadonlyMap<string, Buffer>): Buffer {
  const records: Buffer[] = [];
  const add = (key: string, value: string) =>
    records.push(encodePaxRecord(key, Buffer.from(value, 'latin1')));
  if (header.name.length > MAX_CLASSIC_NAME_BYTES) add('path', header.name);
  if (header.linkName.length > MAX_CLASSIC_NAME_BYTES) add('linkpath', header.linkName);
  if (!fitsOctal(header.uid, 8)) add('uid', String(header.uid));
  if (!fitsOctal(header.gid, 8)) add('gid', String(header.gid));
  if (!fitsOctal(header.sizeBytes, 12)) add('size', String(header.sizeBytes));
  for (const [name, value] of xattrs) records.push(encodePaxRecord(`SCHILY.xattr.${name}`, value));
  return Buffer.concat(records);
}
