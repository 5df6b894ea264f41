/**
 * The names of built images in SQL. A change takes the organization's lock of names, so that the limits hold and no two changes
 * wait for each other. An image that loses its name is noted in the same transaction: `BuiltImages` gives it up later.
 */
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import type { BuiltImageTable } from './built-image-tables.ts';

const MAX_NAMES = 200;

/** Lists the names of an organization. */
export function listNames(db: Database, organizationId: string): Promise<BuiltImageTable[]> {
  return db
    .selectFrom('built_images')
    .selectAll()
    .where('organization_id', '=', organizationId)
    .orderBy('name')
    .execute();
}

/** Returns the runner that is said to have an image; null if none is. */
export async function findImageRunner(db: Database, digest: string): Promise<string | null> {
  const row = await db
    .selectFrom('built_images')
    .select('runner_id')
    .where('digest', '=', digest)
    .where('runner_id', 'is not', null)
    .orderBy('built_at', 'desc')
    .executeTakeFirst();
  return row?.runner_id ?? null;
}

/**
 * Returns what a name stands for. Throws `forbidden` if a key that is limited to a team may not replace it, `capacity` if the
 * organization may have no further name.
 */
export async function checkName(
  db: Database,
  reach: Reach,
  name: string,
): Promise<BuiltImageTable | undefined> {
  const names = await listNames(db, reach.organizationId);
  const found = names.find((row) => row.name === name);
  if (found !== undefined) {
    requireTeam(reach, found);
    return found;
  }
  if (names.length < MAX_NAMES) return undefined;
  throw new AppError(
    'capacity',
    `your organization has ${MAX_NAMES} built images, which is the limit; delete some`,
  );
}

/**
 * Gives an image its name, which belongs to the team of this build from now on: a key that is limited to another team must not
 * put another image under a name that this team relies on. Returns the digest that the name stood for, if it was another one. Throws as
 * {@link checkName}.
 */
export async function takeName(
  transaction: Database,
  reach: Reach,
  row: BuiltImageTable,
): Promise<string | undefined> {
  await lockNames(transaction, row.organization_id);
  const former = await checkName(transaction, reach, row.name);
  const { team_id, digest, size_bytes, built_at, runner_id } = row;
  await transaction
    .insertInto('built_images')
    .values(row)
    .onConflict((conflict) =>
      conflict
        .columns(['organization_id', 'name'])
        .doUpdateSet({ team_id, digest, size_bytes, built_at, runner_id }),
    )
    .execute();
  if (former === undefined || former.digest === digest) return undefined;
  await noteReleases(transaction, [former.digest], built_at);
  return former.digest;
}

/** Removes a name. Builds cannot begin with its image either. Returns undefined if there is none. */
export async function dropName(
  transaction: Database,
  reach: Reach,
  { name, atMs }: { name: string; atMs: number },
): Promise<BuiltImageTable | undefined> {
  const { organizationId } = reach;
  await lockNames(transaction, organizationId);
  const row = (await listNames(transaction, organizationId)).find((each) => each.name === name);
  if (row === undefined) return undefined;
  requireTeam(reach, row);
  await transaction
    .deleteFrom('built_images')
    .where('organization_id', '=', organizationId)
    .where('name', '=', name)
    .execute();
  if (!(await isNamed(transaction, row.digest)))
    await transaction.deleteFrom('image_steps').where('digest', '=', row.digest).execute();
  await noteReleases(transaction, [row.digest], atMs);
  return row;
}

/** Notes images that may have nothing any more that stands for them. Call with the lock of their organization's names. */
export async function noteReleases(
  transaction: Database,
  digests: readonly string[],
  noted_at: number,
): Promise<void> {
  if (digests.length === 0) return;
  await transaction
    .insertInto('image_releases')
    .values([...new Set(digests)].map((digest) => ({ digest, noted_at })))
    // Another value than before: a caller that settles the former note must not delete this one.
    .onConflict((conflict) =>
      conflict.column('digest').doUpdateSet({
        noted_at: sql<number>`greatest(excluded.noted_at, image_releases.noted_at + 1)`,
      }),
    )
    .execute();
}

/** The reason to keep an image: a name, or else only a step of a build of this organization. */
type Standing = { kind: 'name' } | { kind: 'step'; organizationId: string };

export async function findStanding(db: Database, digest: string): Promise<Standing | undefined> {
  if (await isNamed(db, digest)) return { kind: 'name' };
  const step = await db
    .selectFrom('image_steps')
    .select('organization_id')
    .where('digest', '=', digest)
    .executeTakeFirst();
  return step && { kind: 'step', organizationId: step.organization_id };
}

async function isNamed(db: Database, digest: string): Promise<boolean> {
  const row = await db
    .selectFrom('built_images')
    .select('name')
    .where('digest', '=', digest)
    .executeTakeFirst();
  return row !== undefined;
}

function requireTeam({ onlyTeamId }: Reach, { name, team_id }: BuiltImageTable): void {
  if (onlyTeamId === null || onlyTeamId === team_id) return;
  throw new AppError(
    'forbidden',
    `${name} belongs to another team of your organization, and the API key is limited to its own; give the image another name`,
  );
}

/** Until the end of the transaction, no other changes what stands for the images of the organization. */
export async function lockNames(transaction: Database, organizationId: string): Promise<void> {
  await sql`
    SELECT pg_advisory_xact_lock(hashtextextended(${`coppice-built-images:${organizationId}`}, 0))`.execute(
    transaction,
  );
}
