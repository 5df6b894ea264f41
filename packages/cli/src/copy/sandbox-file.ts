import { CoppiceError, type CallOptions, type FileInfo, type Sandbox } from '../../../sdk/src/index.ts';

/** Describes a file or directory of a sandbox. A link to a directory counts as the directory. Null if there is none. */
export async function findFile(sandbox: Sandbox, path: string, call: CallOptions): Promise<FileInfo | null> {
  const found = await describe(sandbox, path, call, 'file_not_found');
  if (found?.type !== 'symlink') return found;
  const target = await describe(sandbox, `${path}/`, call, 'file_not_found', 'file_error');
  return target?.type === 'dir' ? target : found;
}

/** Returns whether there is a directory, or a link to one, at this path in the sandbox. */
export async function isDirectory(sandbox: Sandbox, path: string, call: CallOptions): Promise<boolean> {
  return (await findFile(sandbox, path, call))?.type === 'dir';
}

async function describe(
  sandbox: Sandbox,
  path: string,
  call: CallOptions,
  ...missing: readonly string[]
): Promise<FileInfo | null> {
  try {
    return await sandbox.files.stat(path, call);
  } catch (error) {
    if (error instanceof CoppiceError && missing.includes(error.code)) return null;
    throw error;
  }
}
