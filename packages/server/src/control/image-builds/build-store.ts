/** Builds of images in SQL, with their logs. */
import {
  ImageBuildEvent as EventSchema,
  type AuditActor,
  type ErrorCode,
  type ImageBuild,
  type ImageBuildEvent,
} from '@coppice/contract';
import { sql } from 'kysely';
import { lockOrganization } from '../accounts/organizations/lock-organization.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { OrganizationNote } from '../audit/organization/organization-entry.ts';
import type { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { Database } from '../db/database.ts';
import { insertEvent, type NewEvent } from '../events/insert-event.ts';
import type { BuiltImageTable, ImageBuildTable, ImageStepTable } from '../images/built-image-tables.ts';
import { takeName } from '../images/image-names.ts';
import { isAliveSql, isOwnRunnerSql } from '../ownership/live-controls.ts';
import type { Ownership } from '../ownership/ownership.ts';
import { putStep } from './step-cache.ts';

/** An event that has no number yet. */
export type NewBuildEvent = DistributiveOmit<ImageBuildEvent, 'seq'>;
type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

export type BuildEnd =
  | { state: 'done'; digest: string; size_bytes: number }
  | { state: 'failed'; error_code: ErrorCode; error_message: string }
  | { state: 'cancelled' };

export interface Ending {
  end: BuildEnd;
  /** Key of the last step of the new image, under which later builds find it. */
  key?: string | undefined;
  /** The caller who has started the build. */
  by: AuditActor;
  /** The runner that keeps the new image. */
  runnerId?: string;
  atMs: number;
}

export type NewBuild = Pick<
  ImageBuildTable,
  | 'id'
  | 'organization_id'
  | 'team_id'
  | 'team_only'
  | 'name'
  | 'base'
  | 'sandbox_id'
  | 'steps'
  | 'created_at'
  | 'control_id'
>;

const PAGE_EVENTS = 1000;
const KEPT_MS = 30 * 86_400_000;
/** Builds of an organization that are kept: the newest. */
const MAX_KEPT = 100;
/** Builds that one pass of a purge removes. */
const PURGED_BUILDS = 100;
/** Builds that one pass of the keeper cleans up after. */
const MAX_UNCLEAN = 100;

export class BuildStore {
  readonly #db: Database;
  readonly #audit: OrganizationAudit;

  constructor(db: Database, audit: OrganizationAudit) {
    this.#db = db;
    this.#audit = audit;
  }

  /** Returns undefined, and inserts nothing, if the organization runs `limit` builds. */
  insert(row: NewBuild, limit: number): Promise<ImageBuildTable | undefined> {
    return this.#db.transaction().execute(async (transaction) => {
      await lockOrganization(transaction, row.organization_id);
      const { running } = await transaction
        .selectFrom('image_builds')
        .select(({ fn }) => fn.countAll<number>().as('running'))
        .where('organization_id', '=', row.organization_id)
        .where('state', '=', 'running')
        .executeTakeFirstOrThrow();
      if (running >= limit) return undefined;
      return transaction
        .insertInto('image_builds')
        .values({ ...row, ...NOT_ENDED })
        .returningAll()
        .executeTakeFirstOrThrow();
    });
  }

  /** Has a build that runs ended by its control. */
  async cancel(id: string): Promise<void> {
    await this.#db
      .updateTable('image_builds')
      .set({ is_cancelled: true })
      .where('id', '=', id)
      .where('state', '=', 'running')
      .execute();
  }

  /** Returns those of the builds that are to be cancelled. */
  async listCancelled(ids: readonly string[]): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('image_builds')
      .select('id')
      .where('id', 'in', [...ids])
      .where('is_cancelled', '=', true)
      .execute();
    return rows.map(({ id }) => id);
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
      .limit(MAX_KEPT);
    if (reach.onlyTeamId !== null) query = query.where('team_id', '=', reach.onlyTeamId);
    return query.execute();
  }

  /** Lists the builds of this control that run according to their rows, and those of controls that are gone. */
  listRunning(control: string): Promise<ImageBuildTable[]> {
    return this.#db
      .selectFrom('image_builds')
      .selectAll()
      .where('cleaned', '=', false)
      .where('state', '=', 'running')
      .where(isFreeFor(control))
      .execute();
  }

  /**
   * Lists ended builds that may have left something, the oldest first: those whose sandboxes are, or were, at runners of this control,
   * unless another control still works on them. The leading one also lists those that never had a sandbox.
   */
  listUnclean({ id: control, isLeading }: Ownership): Promise<ImageBuildTable[]> {
    return this.#db
      .selectFrom('image_builds')
      .leftJoin('sandboxes', 'sandboxes.id', 'image_builds.sandbox_id')
      .selectAll('image_builds')
      .where('cleaned', '=', false)
      .where('state', '!=', 'running')
      .where(isFreeFor(control))
      .where(sql<boolean>`CASE WHEN sandboxes.id IS NULL OR runner_id IS NULL THEN ${isLeading}
        ELSE ${isOwnRunnerSql('runner_id', control)} END`)
      .orderBy('image_builds.created_at')
      .orderBy('image_builds.id')
      .limit(MAX_UNCLEAN)
      .execute();
  }

  /** Returns whether some may have left something that no control works on: their runners may have no owner yet. */
  async hasUnclean(control: string): Promise<boolean> {
    const row = await this.#db
      .selectFrom('image_builds')
      .select('id')
      .where('cleaned', '=', false)
      .where('state', '!=', 'running')
      .where(isFreeFor(control))
      .limit(1)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Returns the builds that run, or that may have left something, at any control. */
  async listOpen(): Promise<Set<string>> {
    const rows = await this.#db
      .selectFrom('image_builds')
      .select('id')
      .where('cleaned', '=', false)
      .execute();
    return new Set(rows.map(({ id }) => id));
  }

  async setCleaned(id: string): Promise<void> {
    await this.#db.updateTable('image_builds').set({ cleaned: true }).where('id', '=', id).execute();
  }

  async setStepsDone(id: string, steps_done: number): Promise<void> {
    await this.#db.updateTable('image_builds').set({ steps_done }).where('id', '=', id).execute();
  }

  /**
   * Ends a build that runs: its state, the name of its image, the end of its log, the event of the organization and the entry of
   * its audit log, all or nothing.
   * Returns the digests that the name and the step stood for before. A build that has
   * ended stays as it is.
   */
  end(build: ImageBuildTable, { end, key, by, runnerId, atMs }: Ending): Promise<{ replaced: string[] }> {
    const organizationId = build.organization_id;
    return this.#audit.commit(this.#db, { organizationId, by }, async (transaction) => {
      const row = await transaction
        .updateTable('image_builds')
        .set({ ...storable(end), ended_at: atMs })
        .where('id', '=', build.id)
        .where('state', '=', 'running')
        .returningAll()
        .executeTakeFirst();
      if (row === undefined) return { result: { replaced: [] }, notes: [] };
      const { seq } = await transaction
        .selectFrom('image_build_events')
        .select(({ fn }) => fn.max('seq').as('seq'))
        .where('build_id', '=', build.id)
        .executeTakeFirstOrThrow();
      const event: NewBuildEvent = { type: 'end', build: buildBuildRecord(row) };
      await insertEvents(transaction, build.id, [{ seq: (seq ?? 0) + 1, event }]).execute();
      await insertEvent(transaction, describeEnd(row, end, atMs));
      if (end.state !== 'done') return { result: { replaced: [] }, notes: [] };
      const replaced = await takeName(transaction, reachOf(row), {
        ...nameOf(row, end, atMs),
        runner_id: runnerId ?? null,
      });
      const former = key === undefined ? [] : await putStep(transaction, stepOf(row, end, { key, atMs }));
      const result = { replaced: replaced === undefined ? former : [...former, replaced] };
      return { result, notes: [noteBuilt(row, end, replaced)] };
    });
  }

  async addEvents(buildId: string, events: readonly NumberedEvent[]): Promise<void> {
    await insertEvents(this.#db, buildId, events)
      // An attempt may have been stored although its answer was lost.
      .onConflict((conflict) => conflict.doNothing())
      .execute();
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

  /** Deletes the builds of an organization beyond the newest, with their logs. Their images stay. */
  async trim(organizationId: string): Promise<void> {
    const rows = await this.#db
      .selectFrom('image_builds')
      .select(['id', 'cleaned'])
      .where('organization_id', '=', organizationId)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .offset(MAX_KEPT)
      .limit(PURGED_BUILDS)
      .execute();
    for (const { id, cleaned } of rows) if (cleaned) await this.#delete(id);
  }

  /** Deletes old builds with their logs. Their images stay. */
  async purge(): Promise<void> {
    for (;;) {
      const rows = await this.#db
        .selectFrom('image_builds')
        .select('id')
        .where('ended_at', '<', Date.now() - KEPT_MS)
        .where('cleaned', '=', true)
        .limit(PURGED_BUILDS)
        .execute();
      for (const { id } of rows) await this.#delete(id);
      if (rows.length < PURGED_BUILDS) return;
    }
  }

  /** A log is limited, so that one statement can delete it. */
  async #delete(id: string): Promise<void> {
    await this.#db.deleteFrom('image_build_events').where('build_id', '=', id).execute();
    await this.#db.deleteFrom('image_builds').where('id', '=', id).execute();
  }
}

/** The builds of this control, and those of controls that are gone. */
function isFreeFor(control: string) {
  return sql<boolean>`(
    image_builds.control_id = ${control} OR NOT ${isAliveSql('image_builds.control_id')})`;
}

interface NumberedEvent {
  seq: number;
  event: NewBuildEvent;
}

function insertEvents(db: Database, build_id: string, events: readonly NumberedEvent[]) {
  return db
    .insertInto('image_build_events')
    .values(events.map(({ seq, event }) => ({ build_id, seq, event: JSON.stringify(event) })));
}

/** The end without what PostgreSQL does not store. A guest chooses some of the text of an error. */
function storable(end: BuildEnd): BuildEnd {
  if (end.state !== 'failed') return end;
  const error_message = end.error_message.replaceAll('\0', '\u{FFFD}').toWellFormed();
  return { ...end, error_message };
}

function reachOf({ organization_id: organizationId, team_id, team_only }: ImageBuildTable): Reach {
  return { organizationId, onlyTeamId: team_only ? team_id : null };
}

type Done = Extract<BuildEnd, { state: 'done' }>;

function nameOf(
  { organization_id, team_id, name }: ImageBuildTable,
  { digest, size_bytes }: Done,
  built_at: number,
): Omit<BuiltImageTable, 'runner_id'> {
  return { organization_id, team_id, name, digest, size_bytes, built_at };
}

function stepOf(
  { organization_id }: ImageBuildTable,
  { digest, size_bytes }: Done,
  { key, atMs: last_used_at }: { key: string; atMs: number },
): ImageStepTable {
  return { organization_id, key, digest, size_bytes, last_used_at };
}

function describeEnd(row: ImageBuildTable, end: BuildEnd, at: number): NewEvent {
  const { id: build_id, name: image, organization_id: organizationId, team_id: teamId } = row;
  const digest = end.state === 'done' ? end.digest : null;
  const error = end.state === 'failed' ? end.error_code : null;
  const data = { build_id, image, status: end.state, digest, error };
  return { type: 'image.build_ended', data, at, organizationId, teamId };
}

function noteBuilt(
  { id: build_id, team_id, name: image }: ImageBuildTable,
  { digest }: Done,
  replaced: string | undefined,
): OrganizationNote {
  return { event: 'image.built', data: { image, digest, replaced: replaced ?? null, build_id, team_id } };
}

const NOT_ENDED = {
  state: 'running',
  steps_done: 0,
  digest: null,
  size_bytes: null,
  error_code: null,
  error_message: null,
  ended_at: null,
  cleaned: false,
  is_cancelled: false,
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
