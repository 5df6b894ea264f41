/** Lists the files of a program of the host for a jail: itself and the libraries that it loads, under the host's paths. */
import { realpathSync } from 'node:fs';
import { runCommand } from '../../lib/process/run-command.ts';
import type { Mount } from './jail-plan.ts';

const TOOL_TIMEOUT_MS = 30_000;

export async function mountProgram(program: string): Promise<Mount[]> {
  const paths = [program, ...(await findLibraries(program))];
  return paths.map((path) => ({ source: realpathSync(path), target: path, executable: true }));
}

/** Returns the paths of the libraries, among them that of the dynamic linker. Throws when one is missing. */
export async function findLibraries(program: string): Promise<string[]> {
  const output = await runCommand('ldd', [program], TOOL_TIMEOUT_MS);
  const missing = /^\s*(\S+) => not found/mu.exec(output)?.[1];
  if (missing !== undefined) throw new Error(`${program} needs ${missing}, which is not installed`);
  // `name => /path (address)`, or `/path (address)` for the dynamic linker
  const paths = [...output.matchAll(/(\/\S+) \(0x/gu)].map(([, path]) => path ?? '');
  return [...new Set(paths)];
}
