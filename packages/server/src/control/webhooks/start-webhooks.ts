import type { SecureContext } from 'node:tls';
import type { Logger } from 'pino';
import { readTrust, SYSTEM_CERTIFICATES } from '../../lib/tls/trust.ts';
import type { ControlConfig, ControlLimits } from '../control-config.ts';
import type { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { Database } from '../db/database.ts';
import type { Leadership } from '../ownership/leadership.ts';
import type { SecretBox } from '../secrets/secret-box.ts';
import type { Clock } from '../time/clock.ts';
import { DeliveryFanOut } from './delivery-fan-out.ts';
import { DeliveryStore } from './delivery-store.ts';
import { Receivers } from './receivers.ts';
import { WebhookSender } from './webhook-sender.ts';
import { WebhookStore } from './webhook-store.ts';
import { Webhooks } from './webhooks.ts';

export interface WebhooksBase {
  db: Database;
  leadership: Leadership;
  secrets: SecretBox;
  organizationAudit: OrganizationAudit;
  config: Pick<ControlConfig, 'webhookOpenRanges' | 'certificatesPath'>;
  limits: ControlLimits;
  clock: Clock;
  log: Logger;
}

export interface StartedWebhooks {
  webhooks: Webhooks;
  /** Subscribes to events. */
  fanOut: DeliveryFanOut;
  purged: { purge: () => Promise<void> };
  /** Call when another control may have made deliveries. */
  wake: () => void;
}

/** Begins to send webhooks. */
export function startWebhooks(base: WebhooksBase, stack: AsyncDisposableStack): StartedWebhooks {
  const { db, leadership, secrets, organizationAudit: audit, config, limits, clock, log } = base;
  const store = new WebhookStore(db);
  const deliveries = new DeliveryStore(db);
  const receivers = new Receivers(config.webhookOpenRanges ?? []);
  let context: SecureContext | undefined;
  const trust = (): SecureContext => (context ??= readTrust(config.certificatesPath ?? SYSTEM_CERTIFICATES));
  const parts = { deliveries, receivers, secrets, clock };
  const sending = { ...parts, leadership, trust, db, webhooks: store, limits, log };
  const sender = stack.use(new WebhookSender(sending));
  sender.start();
  const onDelivery = (): void => sender.wake();
  const onCrowd = (id: string): void =>
    void deliveries
      .trim(id)
      .catch((error: unknown) =>
        log.warn({ err: error, webhook_id: id }, 'old deliveries are deleted later'),
      );
  return {
    webhooks: new Webhooks({ ...parts, db, audit, store, onDelivery }),
    fanOut: new DeliveryFanOut({ webhooks: store, deliveries, clock, onDelivery, onCrowd }),
    purged: { purge: () => deliveries.purge(clock.wallMs()) },
    wake: onDelivery,
  };
}
