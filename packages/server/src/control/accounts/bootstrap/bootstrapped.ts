/** The key and invitation that a start has created: shown once, or written to files if the output is kept. */
import { join } from 'node:path';
import { writeDurably } from '../../../lib/files/durable-file.ts';

/** Excludes configured secrets, which the operator knows. */
export interface Bootstrapped {
  apiKey?: string;
  /** For the first owner. */
  invitation?: string;
  /** Directory of the files that hold them; set only if they must not be shown. */
  directory?: string;
}

/** Each file holds one secret and nothing else. */
const FILES = { apiKey: 'first-api-key', invitation: 'first-invitation' } as const;

/** Writes the files with mode 0600, replacing earlier secrets, and returns `made` with their directory. */
export function keepBootstrapped(made: Bootstrapped, directory: string): Bootstrapped {
  for (const name of ['apiKey', 'invitation'] as const) {
    const secret = made[name];
    if (secret !== undefined) writeDurably(bootstrapFile(directory, name), `${secret}\n`);
  }
  return { ...made, directory };
}

export function bootstrapFile(directory: string, name: keyof typeof FILES): string {
  return join(directory, FILES[name]);
}
