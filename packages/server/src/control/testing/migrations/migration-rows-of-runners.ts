/** The part of migration-rows.ts for controls, runners, and how they know each other. */
import { NOW, SEALED_PASSWORD } from './migration-names.ts';
import type { Change } from './migration-rows.ts';

export const OWNERSHIP: Change = {
  columns: {
    sandboxes: { version: 0, runner_id: `runner-${'0'.repeat(32)}`, is_resuming: false },
    idempotency_keys: { control_id: 'ctl1' },
  },
  adds: {
    used_tickets: [{ nonce: 'bm9uY2Uxbm9uY2Ux', expires_at: NOW }],
    controls: [
      { id: 'ctl1', node_id: 'node1', version: '0.1.0', started_at: NOW, lease_until: NOW, is_fenced: true },
    ],
    runners: [{ id: `runner-${'1'.repeat(32)}`, region: 'us', owner: 'ctl1', epoch: 3 }],
  },
};

export const RUNNER_IDENTITIES: Change = {
  columns: { runners: { address: null, fingerprint: null, joined_at: null, revoked_at: null } },
  adds: {
    runners: [
      {
        id: `runner-${'2'.repeat(32)}`,
        region: 'us',
        owner: null,
        epoch: 1,
        address: '10.0.0.5:9443',
        fingerprint: 'f'.repeat(64),
        joined_at: NOW,
        revoked_at: NOW,
      },
    ],
    authorities: [
      { id: 'installation', certificate: 'a certificate', sealed_key: SEALED_PASSWORD, created_at: NOW },
    ],
    join_tokens: [
      {
        secret_hash: 'e'.repeat(64),
        runner_id: `runner-${'2'.repeat(32)}`,
        created_at: NOW,
        expires_at: NOW,
        used_at: NOW,
        used_by: `runner-${'2'.repeat(32)}`,
      },
    ],
  },
};
