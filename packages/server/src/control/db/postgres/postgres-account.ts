/** The unprivileged account that PostgreSQL, which refuses to run as root, runs as. */
import { readFile, stat } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname } from 'node:path';

export interface Account {
  name: string;
  uid: number;
  gid: number;
}

/**
 * Returns the owner of an existing data directory, else the user `postgres`, else `nobody`. If this process is not
 * root, returns its own account.
 */
export async function findPostgresAccount(postgresDir: string): Promise<Account> {
  if (process.getuid?.() !== 0) return findOwnAccount();
  const accounts = await readAccounts();
  const owner = await stat(postgresDir).then(
    (found) => found.uid,
    () => undefined,
  );
  if (owner !== undefined && owner !== 0) {
    return requireAccount(
      accounts,
      (account) => account.uid === owner,
      `uid ${owner}, owner of ${postgresDir}`,
    );
  }
  const named = (name: string) => accounts.find((account) => account.name === name);
  return named('postgres') ?? requireAccount(accounts, (account) => account.name === 'nobody', 'nobody');
}

/** Asks the system's user database, as PostgreSQL does, which refuses to start for a user without a name. */
function findOwnAccount(): Account {
  try {
    const { username, uid, gid } = userInfo();
    return { name: username, uid, gid };
  } catch (error) {
    throw new Error(
      `uid ${process.getuid?.()} has no name on this machine, and PostgreSQL does not run without one: ` +
        'give it an entry in /etc/passwd, or set DATABASE_URL to your own PostgreSQL',
      { cause: error },
    );
  }
}

/** Throws if `account` cannot reach `directory`; the message names the parent that is in the way. */
export async function checkReachable(directory: string, account: Account): Promise<void> {
  for (let path = directory; path !== dirname(path); path = dirname(path)) {
    const found = await stat(path);
    if (!maySearch(found, account)) {
      throw new Error(
        `PostgreSQL runs as "${account.name}", which may not enter ${path}: chmod o+x it, or move the data directory`,
      );
    }
  }
}

function maySearch(found: { uid: number; gid: number; mode: number }, account: Account): boolean {
  if (account.uid === 0) return true;
  if (found.uid === account.uid) return (found.mode & 0o100) !== 0;
  if (found.gid === account.gid) return (found.mode & 0o010) !== 0;
  return (found.mode & 0o001) !== 0;
}

async function readAccounts(): Promise<Account[]> {
  const lines = (await readFile('/etc/passwd', 'utf8')).split('\n');
  return lines.map((line) => {
    const fields = line.split(':');
    return { name: fields[0] ?? '', uid: Number(fields[2]), gid: Number(fields[3]) };
  });
}

function requireAccount(accounts: Account[], matches: (account: Account) => boolean, what: string): Account {
  const found = accounts.find(matches);
  if (found === undefined)
    throw new Error(`/etc/passwd has no entry for ${what}, which PostgreSQL should run as`);
  return found;
}
