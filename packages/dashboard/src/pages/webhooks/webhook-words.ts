/** States of webhooks and deliveries in words. */
import type { DeliveryInfo, WebhookInfo } from '../../../../sdk/src/index.ts';
import type { Tone } from '../../ui/Badge.tsx';

/** Types of events that can be sent, by subject. The contract has the same; a test compares them. */
export const EVENT_GROUPS: readonly (readonly [subject: string, types: readonly string[]])[] = [
  [
    'Sandboxes',
    [
      'sandbox.created',
      'sandbox.forked',
      'sandbox.hibernated',
      'sandbox.resumed',
      'sandbox.rolled_back',
      'sandbox.destroyed',
      'sandbox.failed',
    ],
  ],
  ['Snapshots', ['snapshot.created', 'snapshot.deleted']],
  ['Commands', ['command.exited']],
  ['Network', ['network.blocked']],
  ['Disks', ['disk.created', 'disk.attached', 'disk.detached', 'disk.snapshot_created', 'disk.deleted']],
  ['Images', ['image.build_ended']],
  ['Cost', ['usage.billed', 'credit.exhausted', 'credit.restored', 'budget.reached']],
  ['Webhooks', ['webhook.disabled']],
];

const DISABLED: Readonly<Record<string, string>> = {
  failing: 'The service has paused it, because every delivery of five days failed.',
  gone: 'The service has paused it, because the receiver answered that it is gone (HTTP 410).',
  backlog: 'The service has paused it, because 10 000 deliveries were waiting.',
};

/** Explains why nothing is sent; undefined if something is. */
export function explainPause({ enabled, disabledReason }: WebhookInfo): string | undefined {
  if (enabled) return undefined;
  if (disabledReason === null) return 'It was paused by hand. New events are not sent.';
  return DISABLED[disabledReason] ?? `The service has paused it: ${disabledReason}.`;
}

export function describeState({ enabled, disabledReason, failingSince }: WebhookInfo): {
  tone: Tone;
  text: string;
} {
  if (!enabled)
    return disabledReason === null ? { tone: 'calm', text: 'paused' } : { tone: 'bad', text: 'disabled' };
  return failingSince === null ? { tone: 'good', text: 'active' } : { tone: 'warn', text: 'failing' };
}

export function describeTypes(types: readonly string[]): string {
  if (types.length === 0) return 'all events';
  return types.length <= 2 ? types.join(', ') : `${types.length} types of events`;
}

const DELIVERY_TONES: Readonly<Record<DeliveryInfo['state'], Tone>> = {
  pending: 'busy',
  delivered: 'good',
  failed: 'bad',
};

export function toneOf(state: DeliveryInfo['state']): Tone {
  return DELIVERY_TONES[state] ?? 'calm';
}

/** The service has not noted the end of an attempt that is due for this long. */
const ATTEMPT_MS = 1000;
/** An attempt ends after 15 s; a delivery that is older and still due waits for others. */
const LATE_MS = 15_000;

/**
 * Returns after how many milliseconds the list of deliveries should be read again, because an attempt will be over then.
 * Attempts have no events. Undefined if none is due in the next hour.
 */
export function findNextReadMs(deliveries: readonly DeliveryInfo[], now: number): number | undefined {
  const waits = deliveries
    .filter(({ state }) => state === 'pending')
    .map(({ nextAttemptAt }) => (nextAttemptAt === null ? 0 : Date.parse(nextAttemptAt) - now))
    .map((ms) => (ms > 0 ? ms + ATTEMPT_MS : ms > -LATE_MS ? ATTEMPT_MS : LATE_MS))
    .filter((ms) => ms < 3_600_000);
  return waits.length === 0 ? undefined : Math.min(...waits);
}
