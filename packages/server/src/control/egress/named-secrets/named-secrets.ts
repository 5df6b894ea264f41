/**
 * The named secrets of each organization. A new value takes effect in sandboxes without their help:
 *
 *     PUT ─► commit version n ─► sandboxes whose credentials name it ─► runner ─► log entry, version n in the grant
 *                                ├─ not reached: tried again by the egress keeper
 *                                └─ at a runner of another control: found there (secret-watch.ts)
 *     hibernated ─ resume ─► the current value
 */
import { setTimeout as delay } from 'node:timers/promises';
import {
  AppError,
  type AuditActor,
  SECRET_NAME,
  SecretName,
  type PutSecretRequest,
  type SecretRecord,
} from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import { Secret } from '../../../lib/secret.ts';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import type { Reach } from '../../accounts/organizations/reach.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import { hintChange } from '../../db/change-hints.ts';
import type { Database } from '../../db/database.ts';
import type { SecretBox } from '../../secrets/secret-box.ts';
import type { NamedSecretStore, SecretUse } from './named-secret-store.ts';
import { bindNamedSecret } from './secret-values.ts';

const MAX_SECRETS = 1_000;
/** How many sandboxes a refusal names. */
const MAX_NAMED = 20;
const LOOK_AGAIN_MS = 250;
/** How long a PUT waits until sandboxes have the new value, before it answers that they are outdated. */
const TELL_DEADLINE_MS = 5_000;

export interface NamedSecretsParts {
  db: Database;
  audit: OrganizationAudit;
  store: NamedSecretStore;
  secrets: SecretBox;
  /** Sends stored credentials to these sandboxes. Resolves when each has been tried, and never rejects. */
  tell: (sandboxIds: readonly string[]) => Promise<void>;
  /** Id of this control. */
  control: string;
}

/** The caller who changes a secret, and what the caller sees of the organization. */
interface Change {
  reach: Reach;
  by: AuditActor;
}

export class NamedSecrets {
  readonly #db: Database;
  readonly #audit: OrganizationAudit;
  readonly #store: NamedSecretStore;
  readonly #secrets: SecretBox;
  readonly #tell: NamedSecretsParts['tell'];
  readonly #control: string;

  constructor({ db, audit, store, secrets, tell, control }: NamedSecretsParts) {
    this.#db = db;
    this.#audit = audit;
    this.#store = store;
    this.#secrets = secrets;
    this.#tell = tell;
    this.#control = control;
  }

  /** Stores a secret, or replaces its value, also in the sandboxes that use it. */
  async put({ reach, by }: Change, name: string, { value }: PutSecretRequest): Promise<SecretRecord> {
    requireName(name);
    const { organizationId } = reach;
    const row = {
      id: newId('sec'),
      organization_id: organizationId,
      name,
      sealed_value: this.#secrets.seal(new Secret(value), bindNamedSecret(organizationId, name)),
      updated_at: Date.now(),
    };
    const stored = await this.#audit.commit(this.#db, { organizationId, by }, async (transaction) => {
      const result = await this.#store.within(transaction).put(row, MAX_SECRETS);
      if (result === undefined) return { result, notes: [] };
      await hintChange(transaction, 'secrets');
      const data = { name, version: result.version };
      return { result, notes: [{ event: 'secret.stored', data }] };
    });
    if (stored === undefined)
      throw new AppError(
        'capacity',
        `the organization has ${MAX_SECRETS} secrets, which is the limit; delete some`,
      );
    // Read after the commit: credentials that are stored later are stored with the new version.
    const users = await this.#store.listUsers(stored.id);
    if (users.length > 0) {
      const told = Promise.all([this.#tell(users), this.#waitForOthers(stored.id)]);
      await withDeadline('sandboxes get a secret', TELL_DEADLINE_MS, told).catch(() => undefined);
    }
    return this.get(reach, name);
  }

  /** Resolves when no sandbox of another control that is alive has an older version, or after a while. */
  async #waitForOthers(id: string): Promise<void> {
    const end = performance.now() + TELL_DEADLINE_MS;
    while (performance.now() < end && (await this.#store.isOutdatedElsewhere(id, this.#control)))
      await delay(LOOK_AGAIN_MS);
  }

  /** Lists the secrets, sorted by name. */
  async list(reach: Reach): Promise<SecretRecord[]> {
    return (await this.#store.list(reach)).map(buildSecretRecord);
  }

  async get(reach: Reach, name: string): Promise<SecretRecord> {
    const use = SECRET_NAME.test(name) ? await this.#store.find(reach, name) : undefined;
    if (use === undefined) throw notFound();
    return buildSecretRecord(use);
  }

  /** Throws `secret_in_use`, which names sandboxes, if credentials of one that has not ended name the secret. */
  async remove({ reach: { organizationId }, by }: Change, name: string): Promise<void> {
    if (!SECRET_NAME.test(name)) throw notFound();
    await this.#audit.commit(this.#db, { organizationId, by }, async (transaction) => {
      const found = await this.#store.within(transaction).remove(organizationId, name);
      if (found === undefined) throw notFound();
      if (found.users.length > 0) throw inUse(name, found.users);
      const data = { name, version: found.version };
      return { result: undefined, notes: [{ event: 'secret.deleted', data }] };
    });
  }
}

function requireName(name: string): void {
  const { error } = SecretName.safeParse(name);
  if (error !== undefined) throw new AppError('invalid_request', `name: ${error.issues[0]?.message}`);
}

/** Does not show the name: a caller who confuses name and value puts the secret there. */
function notFound(): AppError {
  return new AppError('not_found', 'the organization has no secret of this name');
}

function inUse(name: string, users: readonly string[]): AppError {
  const named = users.slice(0, MAX_NAMED).join(', ');
  const more = users.length > MAX_NAMED ? ` and ${users.length - MAX_NAMED} more` : '';
  const remedy =
    'set their credentials without it or destroy them, or store another value to stop its use at once';
  return new AppError(
    'secret_in_use',
    `credentials of sandboxes name the secret ${name}: ${named}${more}; ${remedy}`,
  );
}

function buildSecretRecord(use: SecretUse): SecretRecord {
  const { name, version, sandboxes, outdated_sandboxes, created_at, updated_at } = use;
  return {
    name,
    version,
    sandboxes,
    outdated_sandboxes,
    created_at: new Date(created_at).toISOString(),
    updated_at: new Date(updated_at).toISOString(),
  };
}
