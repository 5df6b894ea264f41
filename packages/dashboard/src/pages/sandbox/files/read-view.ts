import { CoppiceError, type FileInfo, type Sandbox } from '../../../../../sdk/src/index.ts';
import { findRasterType, looksLikeText } from './file-content.ts';
import { joinPath, parentOf } from './paths.ts';

export const MAX_TEXT_BYTES = 256 * 1024;
export const MAX_IMAGE_BYTES = 20 * 2 ** 20;

const MAX_HOPS = 40;

export type FileContent =
  | { kind: 'text'; text: string; isCut: boolean }
  | { kind: 'image'; image: Blob }
  | { kind: 'large_image' }
  | { kind: 'binary' }
  /** Devices, pipes and sockets: reading one may never end, or may take what a program waits for. */
  | { kind: 'special' }
  | { kind: 'directory' };

export interface FileView {
  info: FileInfo;
  content: FileContent;
}

/** Describes a file, and reads as much of it as is shown. A symlink is followed. */
export async function readView(sandbox: Sandbox, path: string, signal: AbortSignal): Promise<FileView> {
  const info = await sandbox.files.stat(path, { signal });
  const target = await follow(sandbox, info, signal);
  if (target.type === 'dir') return { info, content: { kind: 'directory' } };
  if (target.type !== 'file') return { info, content: { kind: 'special' } };
  return { info, content: await readContent(sandbox, path, { size: target.size, signal }) };
}

/** Returns what a chain of symlinks leads to. The kernel follows at most 40, and resolves each `..` of a target. */
async function follow(sandbox: Sandbox, info: FileInfo, signal: AbortSignal): Promise<FileInfo> {
  let found = info;
  for (let hops = 0; found.type === 'symlink' && found.target !== null && hops < MAX_HOPS; hops += 1) {
    const { target, path } = found;
    const next = target.startsWith('/') ? target : joinPath(parentOf(path), target);
    found = await sandbox.files.stat(next, { signal });
  }
  return found;
}

async function readContent(
  sandbox: Sandbox,
  path: string,
  { size, signal }: { size: number; signal: AbortSignal },
): Promise<FileContent> {
  const start = await readStart(sandbox, path, signal);
  const type = findRasterType(start);
  if (type !== undefined) {
    if (size > MAX_IMAGE_BYTES) return { kind: 'large_image' };
    const bytes = await sandbox.downloadBytes(path, { maxBytes: MAX_IMAGE_BYTES, signal });
    return { kind: 'image', image: new Blob([bytes], { type }) };
  }
  if (!looksLikeText(start)) return { kind: 'binary' };
  const isCut = size > start.length && start.length === MAX_TEXT_BYTES;
  // With `stream`, a character that the limit cuts in two is left out.
  return { kind: 'text', text: new TextDecoder().decode(start, { stream: isCut }), isCut };
}

async function readStart(sandbox: Sandbox, path: string, signal: AbortSignal): Promise<Uint8Array> {
  try {
    const stream = await sandbox.downloadStream(path, { length: MAX_TEXT_BYTES, signal });
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (error) {
    // An empty file has no first byte.
    if (error instanceof CoppiceError && error.code === 'range_not_satisfiable') return new Uint8Array();
    throw error;
  }
}
