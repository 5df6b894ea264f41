/** Selects files of a context, as COPY names them, and writes them as an archive for the guest. */
import { open } from 'node:fs/promises';
import { PassThrough, type Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import { ByteWindow } from '../../lib/tar/byte-window.ts';
import { buildInode } from '../../lib/tar/inode.ts';
import { parseLayerPath } from '../../lib/tar/layer-path.ts';
import { readTar, type TarEntry } from '../../lib/tar/tar-reader.ts';
import { TarWriter } from '../../lib/tar/tar-writer.ts';

const WINDOW_BYTES = 1 << 20;

export interface Selection {
  /** `sources`: files that were named themselves; then their names are in the target. */
  files: number;
  /** Whether a directory was named, whose content is copied. */
  hasDirectory: boolean;
  entries: { entry: TarEntry; path: string }[];
}

export interface PackOptions {
  name?: string | undefined;
  mode?: number | undefined;
  withoutTimes?: boolean;
}

/** Finds what a source names. `*` and `?` stand for characters of one name. Throws `invalid_request` if there is nothing. */
export async function selectFiles(contextPath: string, source: string): Promise<Selection> {
  const wanted = readPattern(source);
  const selection: Selection = { files: 0, hasDirectory: wanted.length === 0, entries: [] };
  await using file = await open(contextPath, 'r');
  for await (const entry of readTar(file)) {
    const path = parseLayerPath(entry.name);
    if (
      path.length < wanted.length ||
      !wanted.every((pattern, index) => matchesName(pattern, path[index] ?? ''))
    )
      continue;
    const below = path.slice(wanted.length);
    if (below.length > 0) {
      selection.hasDirectory = true;
      selection.entries.push({ entry, path: below.join('/') });
    } else if (entry.type === 'directory') selection.hasDirectory = true;
    else {
      selection.files += 1;
      selection.entries.push({ entry, path: path.at(-1) ?? '' });
    }
  }
  if (selection.entries.length > 0 || selection.hasDirectory) return selection;
  throw new AppError(
    'build_failed',
    `the context has no ${JSON.stringify(source)}; check the path, and whether .dockerignore leaves it out`,
  );
}

function readPattern(source: string): string[] {
  const components: string[] = [];
  for (const component of source.split('/')) {
    if (component === '' || component === '.') continue;
    if (component === '..') components.pop();
    // Names of an archive are bytes, one character each.
    else components.push(Buffer.from(component).toString('latin1'));
  }
  return components;
}

/** Takes at most as many steps as the product of the lengths: a regular expression with many stars would not end. */
export function matchesName(pattern: string, name: string): boolean {
  let at = 0;
  let inPattern = 0;
  let star = -1;
  let afterStar = 0;
  while (at < name.length) {
    if (pattern[inPattern] === '*') {
      star = inPattern;
      afterStar = at;
      inPattern += 1;
    } else if (pattern[inPattern] === '?' || pattern[inPattern] === name[at]) {
      inPattern += 1;
      at += 1;
    } else if (star >= 0) {
      inPattern = star + 1;
      afterStar += 1;
      at = afterStar;
    } else return false;
  }
  return /^\**$/u.test(pattern.slice(inPattern));
}

/** Writes the selected files. `name` replaces that of a single file. With `withoutTimes`, equal files give equal bytes. */
export function packSelection(
  contextPath: string,
  { entries }: Selection,
  { name, mode, withoutTimes = false }: PackOptions,
): Readable {
  const output = new PassThrough({ highWaterMark: WINDOW_BYTES });
  const write = (chunk: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      // The writer uses its memory again once this settles, and a reader may still hold the chunk then.
      output.write(Buffer.from(chunk), (error) => (error ? reject(error) : resolve()));
    });
  const pack = async (): Promise<void> => {
    await using file = await open(contextPath, 'r');
    const window = new ByteWindow(file, WINDOW_BYTES);
    const writer = new TarWriter(write);
    for (const { entry, path } of entries) {
      if (entry.type === 'hardlink') continue;
      const changed = {
        ...buildInode(entry, entry.type, 0),
        ...(mode !== undefined && entry.type !== 'symlink' && { mode }),
        // The guest gives all files to the owner of the step.
        ...(withoutTimes && { mtimeSeconds: 0, uid: 0, gid: 0 }),
      };
      await writer.writeInode(name === undefined ? path : Buffer.from(name).toString('latin1'), changed);
      if (entry.type === 'file') await writer.writeContent(window, changed);
    }
    await writer.end();
    output.end();
  };
  pack().catch((error: unknown) => output.destroy(error instanceof Error ? error : new Error(String(error))));
  return output;
}
