/** The part of migration-rows.ts for controls, runners, and how they know each other. */
import { NOW, RUNNING_ID, SEALED_PASSWORD, SNAPSHOT_ID } from './migration-names.ts';
import type { Change } from './migration-rows.ts';

/** That of the fake runner. */
const RUNNER_ID = `runner-${'0'.repeat(32)}`;

export const OWNERSHIP: Change = {
  columns: {
    // Sandboxes from before have none until a runner is connected.
    sandboxes: ({ id }) => ({
      version: 0,
      runner_id: id === RUNNING_ID ? RUNNER_ID : null,
      is_resuming: false,
    }),
    snapshots: ({ id }) => ({ runner_id: id === SNAPSHOT_ID ? RUNNER_ID : null }),
    idempotency_keys: { control_id: 'ctl1' },
  },
  adds: {
    used_tickets: [{ nonce: 'bm9uY2Uxbm9uY2Ux', expires_at: NOW }],
    controls: [
      {
        id: 'ctl1',
        node_id: 'node1',
        version: '0.1.0',
        started_at: NOW,
        lease_until: NOW,
        is_fenced: true,
        address: '192.0.2.1:7443',
      },
    ],
    runners: [
      {
        id: RUNNER_ID,
        region: 'us',
        local_to: null,
        owner: 'ctl1',
        epoch: 3,
        mem_free_mib: 1024,
        vcpus_free: 2,
        cordoned_at: null,
        drain_until: null,
      },
      {
        id: `runner-${'1'.repeat(32)}`,
        region: 'us',
        local_to: 'node1',
        owner: null,
        epoch: 1,
        mem_free_mib: 0,
        vcpus_free: 0,
        cordoned_at: NOW,
        drain_until: NOW,
      },
    ],
  },
};

export const RUNNER_IDENTITIES: Change = {
  columns: { runners: { address: null, fingerprint: null, joined_at: null, revoked_at: null } },
  adds: {
    runners: [
      {
        id: `runner-${'2'.repeat(32)}`,
        region: 'us',
        local_to: null,
        owner: null,
        epoch: 1,
        mem_free_mib: 0,
        vcpus_free: 0,
        cordoned_at: null,
        drain_until: null,
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

export const RUNNER_REPORTS: Change = {
  columns: {
    runners: ({ owner }) => {
      const at = owner === null ? null : NOW;
      const report = owner === null ? null : { accelerator: 'kvm' };
      return { heard_at: at, report, handed_at: at, taking_until: at };
    },
  },
};

export const LEAVING_CONTROLS: Change = { columns: { controls: { is_leaving: false } } };

export const SEEN_RUNNERS: Change = {
  columns: { runners: { seen_at: null, seen_boot_id: null, seen_boot_ms: null } },
  adds: {
    runners: [
      {
        id: `runner-${'3'.repeat(32)}`,
        region: 'us',
        local_to: null,
        owner: null,
        epoch: 1,
        mem_free_mib: 0,
        vcpus_free: 0,
        cordoned_at: null,
        drain_until: null,
        address: '10.0.0.6:9443',
        fingerprint: 'd'.repeat(64),
        joined_at: NOW,
        revoked_at: null,
        heard_at: NOW,
        report: null,
        handed_at: null,
        taking_until: null,
        seen_at: NOW,
        seen_boot_id: 'an-earlier-boot',
        seen_boot_ms: 77.5,
      },
    ],
  },
};

export const CAPTURE_OBJECTS: Change = {
  adds: {
    capture_objects: [
      {
        capture_id: SNAPSHOT_ID,
        organization_id: 'orgfirst',
        runner_id: `runner-${'1'.repeat(32)}`,
        created_at: NOW,
        stored_at: NOW,
        stored_bytes: 2 ** 33,
        removed_at: NOW,
      },
    ],
  },
};
