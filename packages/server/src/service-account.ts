/** The unprivileged account of control and its PostgreSQL. */
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { become, type Account } from './lib/process/become.ts';
import { ConfigError, type Config } from './config/config.ts';

/** Finds the account that set-up created. Throws ConfigError if it does not exist. */
export function findServiceAccount(name: string): Account {
  try {
    const fields = execFileSync('getent', ['passwd', name], { encoding: 'utf8' }).split(':');
    return { uid: Number(fields[2]), gid: Number(fields[3]) };
  } catch {
    throw new ConfigError(
      `there is no user "${name}" on this machine: run "npm run setup", or set COPPICE_USER`,
    );
  }
}

/**
 * Gives the directories of control and its PostgreSQL to the service account and switches to it; they then need no
 * privilege. Load all modules before this call.
 */
export function becomeUnprivileged(config: Config): void {
  const account = findServiceAccount(config.user);
  for (const directory of [config.control.dataDir, config.control.runDir]) {
    mkdirSync(dirname(directory), { recursive: true, mode: 0o711 });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    chmodSync(directory, 0o700);
    chownSync(directory, account.uid, account.gid);
  }
  become(account);
}

/**
 * Switches a command that root started to the service account: PostgreSQL accepts no other user, and control's files
 * belong to that account.
 */
export function becomeServiceAccount(config: Config): void {
  if (process.getuid?.() === 0 && config.user !== 'root') becomeUnprivileged(config);
}
