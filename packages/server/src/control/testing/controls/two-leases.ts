/** The leases of two controls on one database of their own: for tests of the parts that know of other controls. */
import { sql } from 'kysely';
import pino from 'pino';
import { newId } from '../../../lib/new-id.ts';
import { insertOrganization, type Owner } from '../../accounts/organizations/organization-store.ts';
import { openDatabase, type Database } from '../../db/database.ts';
import { ControlLease } from '../../ownership/control-lease.ts';
import { DATABASE_NOW } from '../../ownership/database-time.ts';
import { makeMigratedDatabase } from '../test-postgres.ts';

const LEASE_MS = 30_000;
const log = pino({ level: 'silent' });

export interface TwoLeases extends AsyncDisposable {
  db: Database;
  owner: Owner;
  /** The one that leads. */
  first: ControlLease;
  second: ControlLease;
  /** Ends the first one as SIGKILL would, when its lease is over in SQL, too. */
  killFirst: () => Promise<void>;
  /** Adds a runner of one of them, or of none. Returns its id. */
  addRunner: (owner: ControlLease | undefined) => Promise<string>;
}

export async function startTwoLeases(): Promise<TwoLeases> {
  const connection = { connectionString: await makeMigratedDatabase() };
  let isKilled = false;
  const assertUsable = (): void => {
    if (isKilled) throw new Error('the process is gone');
  };
  const db = openDatabase(connection, log);
  const dbOfFirst = openDatabase(connection, log, { assertUsable });
  const register = (on: Database): Promise<ControlLease> =>
    ControlLease.register({ db: on, nodeId: newId('node'), version: '0.0.0', leaseMs: LEASE_MS, log });
  const first = await register(dbOfFirst);
  const second = await register(db);
  const owner = await db
    .transaction()
    .execute((transaction) => insertOrganization(transaction, { name: 'two controls', region: 'us' }));
  if (owner === undefined) throw new Error('the name is taken');
  return {
    db,
    owner,
    first,
    second,
    killFirst: async () => {
      isKilled = true;
      await sql`UPDATE controls SET lease_until = ${DATABASE_NOW} - 1 WHERE id = ${first.id}`.execute(db);
    },
    addRunner: async (owned) => {
      const id = newId('runner-');
      await db
        .insertInto('runners')
        .values({ id, region: 'us', owner: owned?.id ?? null })
        .execute();
      return id;
    },
    [Symbol.asyncDispose]: async () => {
      await first[Symbol.asyncDispose]();
      await second[Symbol.asyncDispose]();
      await dbOfFirst.destroy();
      await db.destroy();
    },
  };
}
