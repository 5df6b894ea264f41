/** Makes a tar archive of a few files in memory. */
import { encodeTarHeader, padToBlock, TAR_BLOCK_BYTES } from '../../lib/tar/tar-format.ts';

export interface FileInTar {
  path: string;
  content: string | Buffer;
  mode?: number;
  /** In seconds. */
  mtime?: number;
}

export function layOutTar(files: readonly FileInTar[]): Buffer {
  const parts = files.flatMap(({ path, content, mode = 0o644, mtime = 0 }) => {
    const data = Buffer.from(content);
    const header = encodeTarHeader({
      name: path,
      typeFlag: '0',
      mode,
      uid: 0,
      gid: 0,
      sizeBytes: data.length,
      mtimeSeconds: mtime,
      linkName: '',
      deviceMajor: 0,
      deviceMinor: 0,
    });
    return [header, data, Buffer.alloc(padToBlock(data.length) - data.length)];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * TAR_BLOCK_BYTES)]);
}
