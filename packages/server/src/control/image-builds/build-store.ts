/** Builds of images in SQL, with their logs. */
import type { ImageBuild, ImageBuildEvent } from '@coppice/contract';
import { ImageBuildEvent as EventSchema } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { Reach } from '../accounts/organizations/reach.ts';

/** An event that has no number yet. */
export type NewBuildEvent = DistributiveOmit<ImageBuildEvent, 'seq'>;
type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

export type BuildEnd = Pick<ImageBuildTable, 'state'> &
  Partial<Pick<ImageBuildTable, 'digest' | 'size_bytes' | 'error_code' | 'error_message'>>;

const PAGE_EVENTS = 1000;
const KEPT_MS = 30 * 86_400_000;
const MAX_LISTED = 100;

export class BuildStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async insert(
    row: Pick<
      ImageBuildTable,
      'id' | 'organization_id' | 'team_id' | 'name' | 'base' | 'sandbox_id' | 'steps' | 'created_at'
    >,
  ): Promise<void> {
    await this.#db
      .insertInto('image_builds')
      .values({ ...row, ...NOT_ENDED })
      .execute();
  }

  /** Returns undefined if the build is out of reach. */
  find(reach: Reach, id: string): Promise<ImageBuildTable | undefined> {
    let query = this.#db
      .selectFrom('image_builds')
      .selectAll()
      .where('id', '=', id)
      .where('organization_id', '=', reach.organizationId);
    if (reach.onlyTeamId !== null) query = query.where('team_id', '=', reach.onlyTeamId);
    return query.executeTakeFirst();
  }

  /** Lists the newest first. */
  list(reach: Reach): Promise<ImageBuildTable[]> {
    let query = this.#db
      .selectFrom('image_builds')
      .selectAll()
      .where('organization_id', '=', reach.organizationId)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(MAX_LISTED);
    if (reach.onlyTeamId !== null) query = query.where('team_id', '=', reach.onlyTeamId);
    return query.execute();
  }

  listRunning(): Promise<ImageBuildTable[]> {
    return this.#db.selectFrom('image_builds').selectAll().where('state', '=', 'running').execute();
  }

  async setStepsDone(id: string, steps_done: number): Promise<void> {
    await this.#db.updateTable('image_builds').set({ steps_done }).where('id', '=', id).execute();
  }

  /** Ends a build that runs, and names its image. Returns the digest that the name stood for before. */
  end(build: ImageBuildTable, end: BuildEnd, ended_at: number): Promise<{ replaced: string | undefined }> {
    return this.#db.transaction().execute(async (transaction) => {
      await transaction
        .updateTable('image_builds')
        .set({ ...end, ended_at })
        .where('id', '=', build.id)
        .where('state', '=', 'running')
        .execute();
      const { digest, size_bytes } = end;
      if (typeof digest !== 'string' || typeof size_bytes !== 'number') return { replaced: undefined };
      const { organization_id, name } = build;
      const former = await transaction
        .selectFrom('built_images')
        .select('digest')
        .where('organization_id', '=', organization_id)
        .where('name', '=', name)
        .forUpdate()
        .executeTakeFirst();
      await transaction
        .insertInto('built_images')
        .values({ organization_id, name, digest, size_bytes, built_at: ended_at })
        .onConflict((conflict) =>
          conflict
            .columns(['organization_id', 'name'])
            .doUpdateSet({ digest, size_bytes, built_at: ended_at }),
        )
        .execute();
      return { replaced: former?.digest === digest ? undefined : former?.digest };
    });
  }

  async addEvent(build_id: string, seq: number, event: NewBuildEvent): Promise<void> {
    await this.#db
      .insertInto('image_build_events')
      .values({ build_id, seq, event: JSON.stringify(event) })
      .execute();
  }

  async lastSeq(buildId: string): Promise<number> {
    const row = await this.#db
      .selectFrom('image_build_events')
      .select('seq')
      .where('build_id', '=', buildId)
      .orderBy('seq', 'desc')
      .limit(1)
      .executeTakeFirst();
    return row?.seq ?? 0;
  }

  async readEvents(buildId: string, after: number): Promise<ImageBuildEvent[]> {
    const rows = await this.#db
      .selectFrom('image_build_events')
      .selectAll()
      .where('build_id', '=', buildId)
      .where('seq', '>', after)
      .orderBy('seq')
      .limit(PAGE_EVENTS)
      .execute();
    return rows.map(({ seq, event }) => EventSchema.parse({ ...(JSON.parse(event) as object), seq }));
  }

  /** Deletes old builds with their logs. Their images stay. */
  async purge(): Promise<void> {
    await this.#db
      .deleteFrom('image_builds')
      .where('ended_at', '<', Date.now() - KEPT_MS)
      .execute();
  }
}

const NOT_ENDED = {
  state: 'running',
  steps_done: 0,
  digest: null,
  size_bytes: null,
  error_code: null,
  error_message: null,
  ended_at: null,
} as const;

export function buildBuildRecord(row: ImageBuildTable): ImageBuild {
  const { error_code: code, error_message: message } = row;
  return {
    id: row.id,
    status: row.state,
    name: row.name,
    from: row.base,
    image: row.digest === null ? null : `${row.name}@${row.digest}`,
    size_bytes: row.size_bytes,
    run_id: row.sandbox_id,
    steps: row.steps,
    steps_done: row.steps_done,
    error: code === null || message === null ? null : { code, message },
    created_at: new Date(row.created_at).toISOString(),
    ended_at: row.ended_at === null ? null : new Date(row.ended_at).toISOString(),
  };
}
