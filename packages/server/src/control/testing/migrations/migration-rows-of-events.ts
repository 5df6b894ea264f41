/** The part of migration-rows.ts for events and webhooks. */
import { Secret } from '../../../lib/secret.ts';
import { SecretBox } from '../../secrets/secret-box.ts';
import { bindWebhookSecret } from '../../webhooks/webhook-secret.ts';
import { DAY_MS, HOUR_MS, MASTER_KEY, NOW, RUNNING_ID, toHex } from './migration-names.ts';
import type { Change } from './migration-rows.ts';

const ENDED_ID = `run${'2'.repeat(20)}`;

function sealWebhookSecret(id: string): string {
  const secret = new Secret(`whsec_${'A'.repeat(43)}=`);
  return toHex(new SecretBox(MASTER_KEY).seal(secret, bindWebhookSecret('orgfirst', id)));
}

export const EVENTS: Change = {
  adds: {
    pending_events: [
      {
        ordinal: 1,
        organization_id: 'orgfirst',
        team_id: 'team1',
        sandbox_id: RUNNING_ID,
        type: 'sandbox.resumed',
        at: NOW - 1000,
        labels: { job: 'nightly' },
        data: '{}',
      },
    ],
    events: [
      {
        id: 1,
        organization_id: 'orgfirst',
        team_id: 'team1',
        sandbox_id: ENDED_ID,
        type: 'snapshot.deleted',
        at: NOW - HOUR_MS,
        labels: {},
        data: '{"snapshot_id":"é \u2028"}',
        numbered_at: NOW - HOUR_MS + 1,
      },
    ],
    webhooks: [
      {
        id: 'hook1',
        organization_id: 'orgfirst',
        url: 'https://example.test/hook',
        types: ['sandbox.failed'],
        description: 'alerts',
        enabled: true,
        disabled_reason: 'failing',
        failing_since: NOW - HOUR_MS,
        sealed_secret: sealWebhookSecret('hook1'),
        sealed_old_secret: sealWebhookSecret('hook1'),
        old_secret_until: NOW,
        created_at: NOW - DAY_MS,
      },
    ],
    webhook_deliveries: [
      {
        id: 'msg1',
        webhook_id: 'hook1',
        event_id: 1,
        type: 'snapshot.deleted',
        payload: '{}',
        state: 'pending',
        attempts: 2,
        tries: 2,
        next_at: NOW + 1000 * DAY_MS,
        created_at: NOW - HOUR_MS,
      },
    ],
    webhook_attempts: [
      {
        delivery_id: 'msg1',
        attempt: 2,
        started_at: NOW - HOUR_MS / 2,
        duration_ms: 12,
        status: 500,
        error: 'the receiver answered 500',
        response: 'é',
      },
    ],
    event_counter: [{ is_only: true, last_id: 1 }],
    event_gaps: [{ after_id: 2 ** 40, through_id: 2 ** 41 }],
    event_horizons: [{ organization_id: 'orgsecond', lost_through: 2 ** 50 }],
  },
};
