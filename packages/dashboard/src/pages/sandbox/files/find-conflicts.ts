import { CoppiceError, type Sandbox } from '../../../../../sdk/src/index.ts';
import type { ChosenFile } from './dropped-files.ts';
import { joinPath, parentOf } from './paths.ts';

/** Returns those of the files whose name is taken in the sandbox. Each directory that receives some is listed once. */
export async function findConflicts(
  sandbox: Sandbox,
  directory: string,
  files: readonly ChosenFile[],
): Promise<readonly ChosenFile[]> {
  const targets = Map.groupBy(files, ({ path }) => parentOf(joinPath(directory, path)));
  const conflicts: ChosenFile[] = [];
  for (const [parent, received] of targets) {
    const names = await listNames(sandbox, parent);
    conflicts.push(...received.filter(({ path }) => names.has(joinPath(directory, path))));
  }
  return conflicts;
}

async function listNames(sandbox: Sandbox, directory: string): Promise<ReadonlySet<string>> {
  try {
    const entries = await sandbox.listFiles(directory);
    return new Set(entries.map(({ name }) => joinPath(directory, name)));
  } catch (error) {
    // The upload creates the directory.
    if (error instanceof CoppiceError && error.code === 'file_not_found') return new Set();
    throw error;
  }
}
