/** The logins of each organization at image registries. A change applies from the next create or build on. */
import {
  AppError,
  isBuiltinImage,
  parseRegistryName,
  type ImageReference,
  type PutRegistryRequest,
  type RegistryRecord,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { Secret } from '../../lib/secret.ts';
import type { Change, Changed, OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { Database } from '../db/database.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import type { RegistryRow, RegistryStore } from './registry-store.ts';

/** The login at a registry. */
export interface RegistryLogin {
  username: string;
  password: Secret;
}

const MAX_REGISTRIES = 100;

export interface RegistriesParts {
  db: Database;
  audit: OrganizationAudit;
  store: RegistryStore;
  secrets: SecretBox;
  log: Logger;
}

export class Registries {
  readonly #db: Database;
  readonly #audit: OrganizationAudit;
  readonly #store: RegistryStore;
  readonly #secrets: SecretBox;
  readonly #log: Logger;

  constructor({ db, audit, store, secrets, log }: RegistriesParts) {
    this.#db = db;
    this.#audit = audit;
    this.#store = store;
    this.#secrets = secrets;
    this.#log = log;
  }

  /** Stores or replaces a login. `name` may be any spelling of the registry. */
  async put(change: Change, name: string, request: PutRegistryRequest): Promise<RegistryRecord> {
    const { organizationId } = change;
    const registry = parseRegistryName(name);
    const context = bindRegistryPassword(organizationId, registry);
    const row = {
      organization_id: organizationId,
      registry,
      username: request.username,
      sealed_password: this.#secrets.seal(new Secret(request.password), context),
      updated_at: Date.now(),
    };
    const stored = await this.#commit(change, async (store) => {
      const result = await store.put(row, MAX_REGISTRIES);
      const data = { registry, username: request.username };
      return { result, notes: result ? [{ event: 'registry.stored', data }] : [] };
    });
    if (stored !== undefined) return buildRegistryRecord(stored);
    throw new AppError(
      'capacity',
      `the organization has credentials for ${MAX_REGISTRIES} registries, which is the limit; delete some`,
    );
  }

  /** Lists the logins, sorted by registry. */
  async list(organizationId: string): Promise<RegistryRecord[]> {
    return (await this.#store.list(organizationId)).map(buildRegistryRecord);
  }

  async remove(change: Change, name: string): Promise<void> {
    const registry = parseRegistryName(name);
    const isRemoved = await this.#commit(change, async (store) => {
      const result = await store.remove(change.organizationId, registry);
      return { result, notes: result ? [{ event: 'registry.deleted', data: { registry } }] : [] };
    });
    if (isRemoved) return;
    throw new AppError('not_found', `there are no credentials for the registry ${JSON.stringify(registry)}`);
  }

  #commit<T>(change: Change, work: (store: RegistryStore) => Promise<Changed<T>>): Promise<T> {
    return this.#audit.commit(this.#db, change, (transaction) => work(this.#store.within(transaction)));
  }

  /** Returns undefined for anonymous access. Throws `secret_unreadable` without the right master key. */
  async findLogin(organizationId: string, reference: ImageReference): Promise<RegistryLogin | undefined> {
    if (isBuiltinImage(reference)) return undefined;
    const row = await this.#store.find(organizationId, reference.registry);
    if (row === undefined) return undefined;
    const { username, registry, sealed_password } = row;
    try {
      return {
        username,
        password: this.#secrets.open(sealed_password, bindRegistryPassword(organizationId, registry)),
      };
    } catch (error) {
      this.#log.warn(
        { err: error, organization_id: organizationId, registry },
        'stored credentials cannot be read',
      );
      throw error;
    }
  }
}

/** The context that a registry's password is bound to when sealed. */
export function bindRegistryPassword(organizationId: string, registry: string): SecretContext {
  return { organizationId, purpose: 'registry password', name: registry };
}

function buildRegistryRecord({ registry, username, updated_at }: RegistryRow): RegistryRecord {
  return { registry, username, updated_at: new Date(updated_at).toISOString() };
}
