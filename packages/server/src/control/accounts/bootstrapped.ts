/** Key and invitation that a start has made: shown once, or written to files where output is kept. */
import { join } from 'node:path';
import { writeDurably } from '../../lib/files/durable-file.ts';

/** Without those that the configuration gave: the operator knows them. */
export interface Bootstrapped {
  apiKey?: string;
  /** For the first owner. */
  invitation?: string;
  /** Of the files that hold them; only where they must not be shown. */
  directory?: string;
}

/** Each holds the secret and nothing else. */
const FILES = { apiKey: 'first-api-key', invitation: 'first-invitation' } as const;

/** Writes the files, with mode 0600, and says where they are. An earlier secret is replaced. */
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
