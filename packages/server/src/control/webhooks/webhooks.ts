/** The webhooks of each organization, and their deliveries. */
import {
  AppError,
  type AuditActor,
  type CreatedWebhook,
  type CreateWebhookRequest,
  type DeliveryRecord,
  type OrganizationAuditData,
  type PatchWebhookRequest,
  type RotateWebhookRequest,
  type WebhookRecord,
} from '@coppice/contract';
import { newId } from '../../lib/new-id.ts';
import type { Changed, OrganizationAudit } from '../audit/organization/organization-audit.ts';
import { hintChange } from '../db/change-hints.ts';
import type { Database } from '../db/database.ts';
import type { SecretBox } from '../secrets/secret-box.ts';
import type { Clock } from '../time/clock.ts';
import { toTimestamp } from '../time/timestamp.ts';
import type { DeliveryFilter, DeliveryStore } from './delivery-store.ts';
import type { Receivers } from './receivers.ts';
import { bindWebhookSecret, generateWebhookSecret } from './webhook-secret.ts';
import type { WebhookStore } from './webhook-store.ts';
import type { WebhookRow, WebhookUpdate } from './webhook-tables.ts';

const MAX_WEBHOOKS = 20;
/** Tests of one webhook that may wait. */
const MAX_TESTS = 10;

export interface WebhooksParts {
  store: WebhookStore;
  db: Database;
  audit: OrganizationAudit;
  deliveries: DeliveryStore;
  receivers: Receivers;
  secrets: SecretBox;
  clock: Pick<Clock, 'wallMs'>;
  /** Called when a delivery may be due. */
  onDelivery: () => void;
}

/** A webhook of an organization. */
interface Address {
  organizationId: string;
  id: string;
}

export class Webhooks {
  readonly #parts: WebhooksParts;

  constructor(parts: WebhooksParts) {
    this.#parts = parts;
  }

  async create(
    organizationId: string,
    request: CreateWebhookRequest,
    by: AuditActor,
  ): Promise<CreatedWebhook> {
    const { receivers, secrets, clock } = this.#parts;
    const id = newId('hook');
    const secret = generateWebhookSecret();
    const given = {
      ...request,
      url: receivers.checkUrl(request.url),
      id,
      organization_id: organizationId,
      sealed_secret: secrets.seal(secret, bindWebhookSecret(organizationId, id)),
      created_at: clock.wallMs(),
    };
    const row = await this.#commit(organizationId, by, async (store) => {
      const result = await store.insert(given, MAX_WEBHOOKS);
      return { result, notes: result ? [{ event: 'webhook.created', data: describeWebhook(result) }] : [] };
    });
    if (row !== undefined) return { ...buildRecord(row), secret: secret.reveal() };
    throw new AppError(
      'capacity',
      `the organization has ${MAX_WEBHOOKS} webhooks, which is the limit; delete some`,
    );
  }

  async list(organizationId: string): Promise<WebhookRecord[]> {
    return (await this.#parts.store.list(organizationId)).map(buildRecord);
  }

  async get(address: Address): Promise<WebhookRecord> {
    return buildRecord(await this.#get(address));
  }

  /** Enabling it forgets why it was disabled, and sends what waits. A new URL has not failed yet. */
  async patch(address: Address, request: PatchWebhookRequest, by: AuditActor): Promise<WebhookRecord> {
    const { url, types, description, enabled } = request;
    const change: WebhookUpdate = {
      ...(url === undefined ? {} : { url: this.#parts.receivers.checkUrl(url), failing_since: null }),
      ...(types === undefined ? {} : { types }),
      ...(description === undefined ? {} : { description }),
      ...(enabled === undefined ? {} : { enabled }),
      ...(enabled === true ? { disabled_reason: null, failing_since: null } : {}),
    };
    if (Object.keys(change).length === 0) return this.get(address);
    const row = await this.#update(address, change, by);
    if (enabled === true) await this.#announce();
    return buildRecord(row);
  }

  async remove({ organizationId, id }: Address, by: AuditActor): Promise<void> {
    await this.#commit(organizationId, by, async (store) => {
      if (!(await store.remove(organizationId, id))) throw noWebhook();
      return { result: undefined, notes: [{ event: 'webhook.deleted', data: { id } }] };
    });
  }

  /** Makes a new secret. Deliveries are signed with both until the overlap ends. */
  async rotate(
    address: Address,
    { overlap_seconds }: RotateWebhookRequest,
    by: AuditActor,
  ): Promise<CreatedWebhook> {
    const { secrets, clock } = this.#parts;
    const { organizationId, id } = address;
    const secret = generateWebhookSecret();
    const change = {
      sealed: secrets.seal(secret, bindWebhookSecret(organizationId, id)),
      oldUntil: overlap_seconds > 0 ? clock.wallMs() + overlap_seconds * 1000 : null,
    };
    const row = await this.#commit(organizationId, by, async (store) => {
      const result = await store.rotate(address, change);
      if (result === undefined) throw noWebhook();
      const data = { id, old_secret_until: toTimestamp(change.oldUntil) };
      return { result, notes: [{ event: 'webhook.rotated', data }] };
    });
    return { ...buildRecord(row), secret: secret.reveal() };
  }

  /** Sends a message of the type `webhook.test`. */
  async test(address: Address): Promise<DeliveryRecord> {
    await this.#getEnabled(address);
    const { deliveries, clock } = this.#parts;
    if ((await deliveries.countTests(address.id, MAX_TESTS)) >= MAX_TESTS)
      throw new AppError('rate_limited', `${MAX_TESTS} tests of the webhook wait already; try again later`);
    const id = newId('msg');
    const now = clock.wallMs();
    const type = 'webhook.test';
    const payload = { type, timestamp: new Date(now).toISOString(), data: { webhook_id: address.id } };
    await deliveries.insert([
      {
        id,
        webhook_id: address.id,
        event_id: null,
        type,
        payload: JSON.stringify(payload),
        state: 'pending',
        next_at: now,
        created_at: now,
      },
    ]);
    await this.#announce();
    return this.#getDelivery(address, id);
  }

  async listDeliveries(
    address: Address,
    filter: Omit<DeliveryFilter, 'webhookId'>,
  ): Promise<{ records: DeliveryRecord[]; createdAt: number[] }> {
    await this.#get(address);
    return this.#parts.deliveries.list({ ...filter, webhookId: address.id });
  }

  /** Sends a delivery once more, whatever became of it. */
  async retry(address: Address, deliveryId: string): Promise<DeliveryRecord> {
    await this.#getEnabled(address);
    const { deliveries, clock } = this.#parts;
    if (!(await deliveries.retry(address.id, deliveryId, clock.wallMs()))) throw noDelivery();
    await this.#announce();
    return this.#getDelivery(address, deliveryId);
  }

  /** A delivery may be due, which the control that leads sends. */
  async #announce(): Promise<void> {
    this.#parts.onDelivery();
    // Without the hint it is sent a second later.
    await hintChange(this.#parts.db, 'deliveries').catch(() => undefined);
  }

  async #getDelivery({ id }: Address, deliveryId: string): Promise<DeliveryRecord> {
    const record = await this.#parts.deliveries.find(id, deliveryId);
    if (record === undefined) throw noDelivery();
    return record;
  }

  async #getEnabled(address: Address): Promise<void> {
    const { enabled } = await this.#get(address);
    if (!enabled) throw new AppError('invalid_state', 'the webhook is disabled; enable it first');
  }

  async #get({ organizationId, id }: Address): Promise<WebhookRow> {
    const row = await this.#parts.store.find(organizationId, id);
    if (row === undefined) throw noWebhook();
    return row;
  }

  #update({ organizationId, id }: Address, change: WebhookUpdate, by: AuditActor): Promise<WebhookRow> {
    return this.#commit(organizationId, by, async (store) => {
      const result = await store.update(organizationId, id, change);
      if (result === undefined) throw noWebhook();
      return { result, notes: [{ event: 'webhook.changed', data: describeWebhook(result) }] };
    });
  }

  #commit<T>(
    organizationId: string,
    by: AuditActor,
    change: (store: WebhookStore) => Promise<Changed<T>>,
  ): Promise<T> {
    const { db, audit, store } = this.#parts;
    return audit.commit(db, { organizationId, by }, (transaction) => change(store.within(transaction)));
  }
}

const noWebhook = (): AppError => new AppError('not_found', 'there is no such webhook in this organization');
const noDelivery = (): AppError => new AppError('not_found', 'there is no such delivery of this webhook');

/** Returns what the audit log says of a webhook. Path and query of its URL may be secret. */
function describeWebhook({ id, url, types, enabled }: WebhookRow): OrganizationAuditData<'webhook.created'> {
  return { id, origin: new URL(url).origin, types, enabled };
}

function buildRecord(row: WebhookRow): WebhookRecord {
  const { id, url, types, description, enabled, disabled_reason } = row;
  return {
    id,
    url,
    types,
    description,
    enabled,
    disabled_reason,
    failing_since: toTimestamp(row.failing_since),
    old_secret_until: toTimestamp(row.old_secret_until),
    created_at: new Date(row.created_at).toISOString(),
  };
}
