import { CoppiceError, type Sandbox } from '../../../sdk/src/index.ts';

/** Answers of the service for a path that is no directory. Whether it is a file shows when it is used. */
const NOT_A_DIRECTORY = new Set(['file_not_found', 'file_error', 'invalid_request']);

/** Returns whether there is a directory at this path in the sandbox. */
export async function isDirectory(sandbox: Sandbox, path: string): Promise<boolean> {
  try {
    await sandbox.listFiles(path, { limit: 1 });
    return true;
  } catch (error) {
    if (error instanceof CoppiceError && NOT_A_DIRECTORY.has(error.code)) return false;
    throw error;
  }
}
