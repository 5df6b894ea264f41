/** The unprivileged account that control and its PostgreSQL run as, and becoming it. */
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { become, type Account } from './lib/process/become.ts';
import { ConfigError, type Config } from './config/config.ts';

/** The account that set-up made. */
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

/** Control and its PostgreSQL need no privilege once their directories are theirs. All modules are loaded by now. */
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

/** Of a command beside the service: PostgreSQL lets in nobody else, and control's files are its own. */
export function becomeServiceAccount(config: Config): void {
  if (process.getuid?.() === 0 && config.user !== 'root') becomeUnprivileged(config);
}
