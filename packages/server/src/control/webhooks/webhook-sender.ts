/**
 * Sends due deliveries, a few at a time, and writes what became of them:
 *
 *     pending ──► attempt ──► 2xx: delivered
 *        ▲           └──────► else: failed attempt ──► no try left, or 410: failed
 *        └────── its delay ──────────┘                 a webhook that fails for days is disabled
 *
 * A delivery stays pending until its outcome is committed: after a crash it is sent again, with the same id. While the
 * database does not accept outcomes, attempts stay open, so that nothing is sent again and again. A receiver that hangs
 * occupies at most its own share, and its organization's. The control that leads sends the deliveries of all.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { SecureContext } from 'node:tls';
import type { Logger } from 'pino';
import { WakeSignal } from '../../lib/waiting/wake-signal.ts';
import type { ControlLimits } from '../control-config.ts';
import type { Database } from '../db/database.ts';
import type { Leadership } from '../ownership/leadership.ts';
import type { SecretBox } from '../secrets/secret-box.ts';
import type { Clock } from '../time/clock.ts';
import type { DeliveryStore, DueDelivery } from './delivery-store.ts';
import { postWebhook } from './post-webhook.ts';
import { ReceiverError, type Receivers } from './receivers.ts';
import { findRetryDelayMs } from './retry-delay.ts';
import { bindWebhookSecret, signWebhook } from './webhook-secret.ts';
import type { WebhookStore } from './webhook-store.ts';
import type { AttemptRow } from './webhook-tables.ts';

const MAX_OPEN = 64;
const MAX_OPEN_OF_ORGANIZATION = 8;
const MAX_OPEN_OF_WEBHOOK = 2;
/** Other controls make deliveries, too. */
const MAX_REST_MS = 1_000;
const RETRY_MS = 1_000;
const MAX_RETRY_MS = 30_000;
const GONE = 410;
const OWN_FAULT = 'the service could not send it, for a reason of its own; it tries again';

type SenderLimits = Pick<ControlLimits, 'webhookDeadlineMs' | 'webhookRetryDelaysMs' | 'webhookFailingMs'>;

export interface WebhookSenderParts {
  db: Database;
  leadership: Leadership;
  webhooks: WebhookStore;
  deliveries: DeliveryStore;
  receivers: Receivers;
  secrets: SecretBox;
  trust: () => SecureContext;
  clock: Pick<Clock, 'wallMs'>;
  limits: SenderLimits;
  log: Logger;
}

type Attempt = Omit<AttemptRow, 'delivery_id' | 'attempt'>;

export class WebhookSender implements AsyncDisposable {
  readonly #parts: WebhookSenderParts;
  readonly #stop = new AbortController();
  readonly #news = new WakeSignal();
  readonly #open = new Map<string, { delivery: DueDelivery; done: Promise<void> }>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: WebhookSenderParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Call when a delivery may be due. */
  wake(): void {
    this.#news.wake();
  }

  /** Breaks off the attempts in progress. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await Promise.all([...this.#open.values()].map(({ done }) => done));
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.#news.reset();
      let restMs = RETRY_MS;
      try {
        if (this.#parts.leadership.isLeading) restMs = await this.#sendDue();
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'webhooks are sent later; control tries again');
      }
      await this.#news.pause(restMs, signal);
    }
  }

  /** Begins all attempts that are due and within the limits. Returns how long to wait for the next one. */
  async #sendDue(): Promise<number> {
    const { deliveries, clock } = this.#parts;
    const limit = MAX_OPEN - this.#open.size;
    const now = clock.wallMs();
    const open = [...this.#open.values()].map(({ delivery }) => delivery);
    const share = { ofWebhook: MAX_OPEN_OF_WEBHOOK, ofOrganization: MAX_OPEN_OF_ORGANIZATION };
    const due = limit === 0 ? [] : await deliveries.listDue(now, { open, limit, ...share });
    for (const delivery of due) this.#begin(delivery);
    const nextAt = await deliveries.findNextAt(now);
    // The end of an attempt wakes the loop.
    return Math.min(MAX_REST_MS, Math.max(1, (nextAt ?? Infinity) - now));
  }

  #begin(delivery: DueDelivery): void {
    const done = this.#send(delivery).finally(() => {
      this.#open.delete(delivery.id);
      this.wake();
    });
    this.#open.set(delivery.id, { delivery, done });
  }

  async #send(delivery: DueDelivery): Promise<void> {
    const startedAtMs = performance.now();
    const started_at = this.#parts.clock.wallMs();
    let outcome: Pick<Attempt, 'status' | 'error' | 'response'>;
    try {
      const { status, response } = await this.#post(delivery);
      const error = status >= 200 && status < 300 ? null : `the receiver answered ${status}`;
      outcome = { status, error, response };
    } catch (error) {
      // It stays due, and the next control sends it.
      if (this.#stop.signal.aborted) return;
      outcome = { status: null, error: this.#explain(delivery, error), response: '' };
    }
    const duration_ms = Math.round(performance.now() - startedAtMs);
    await this.#noteUntilWritten(delivery, { started_at, duration_ms, ...outcome });
  }

  /** Returns what the owner of the webhook sees. */
  #explain({ id, webhook_id }: DueDelivery, error: unknown): string {
    if (error instanceof ReceiverError) return error.message;
    this.#parts.log.error({ err: error, delivery_id: id, webhook_id }, 'a webhook cannot be sent');
    return OWN_FAULT;
  }

  async #noteUntilWritten(delivery: DueDelivery, attempt: Attempt): Promise<void> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted; failures += 1) {
      try {
        return await this.#note(delivery, attempt);
      } catch (error) {
        const what = { err: error, delivery_id: delivery.id };
        this.#parts.log.warn(what, 'the outcome of a webhook is written later; control tries again');
        const retryMs = Math.min(MAX_RETRY_MS, RETRY_MS * 2 ** failures);
        await delay(retryMs, undefined, { signal }).catch(() => undefined);
      }
    }
  }

  async #post(delivery: DueDelivery) {
    const { receivers, limits } = this.#parts;
    const { id, payload: body } = delivery;
    const timestamp = Math.floor(this.#parts.clock.wallMs() / 1000);
    const signature = signWebhook(this.#openSecrets(delivery), { id, timestamp, body });
    return postWebhook(await receivers.find(delivery.url), {
      headers: {
        'content-type': 'application/json',
        'user-agent': 'coppice-webhooks/1',
        'webhook-id': id,
        'webhook-timestamp': String(timestamp),
        'webhook-signature': signature,
      },
      body,
      trust: this.#parts.trust,
      deadlineMs: limits.webhookDeadlineMs,
      signal: this.#stop.signal,
    });
  }

  #openSecrets({ webhook_id, organization_id, sealed_secret, ...row }: DueDelivery) {
    const { secrets, clock } = this.#parts;
    const context = bindWebhookSecret(organization_id, webhook_id);
    const isOldValid = (row.old_secret_until ?? 0) > clock.wallMs();
    const sealed = isOldValid && row.sealed_old_secret !== null ? [row.sealed_old_secret] : [];
    return [sealed_secret, ...sealed].map((one) => secrets.open(one, context));
  }

  /** Commits an attempt, and what follows from it. */
  async #note(delivery: DueDelivery, attempt: Attempt): Promise<void> {
    const { db, limits, clock } = this.#parts;
    const now = clock.wallMs();
    const hasFailed = attempt.error !== null;
    const isGone = attempt.status === GONE;
    const delayMs = isGone
      ? undefined
      : findRetryDelayMs(limits.webhookRetryDelaysMs, delivery.tries + 1, Math.random());
    const next_at = hasFailed && delayMs !== undefined ? now + delayMs : null;
    const state = hasFailed ? (next_at === null ? 'failed' : 'pending') : 'delivered';
    await db.transaction().execute(async (transaction) => {
      const webhooks = this.#parts.webhooks.within(transaction);
      if (!(await webhooks.lock(delivery.webhook_id))) return;
      const row = { ...attempt, delivery_id: delivery.id, attempt: delivery.attempts + 1 };
      const outcome = { state, next_at, was_due_at: delivery.next_at } as const;
      const isNew = await this.#parts.deliveries.within(transaction).noteAttempt(row, outcome);
      if (!isNew || attempt.error === OWN_FAULT) return;
      if (!hasFailed) return webhooks.noteSuccess(delivery.webhook_id);
      const failingSince = await webhooks.noteFailure(delivery.webhook_id, now);
      const webhook = { id: delivery.webhook_id, organization_id: delivery.organization_id };
      if (isGone) await webhooks.disable(webhook, 'gone', now);
      else if (now - failingSince >= limits.webhookFailingMs) await webhooks.disable(webhook, 'failing', now);
    });
  }
}
