/** The part of migration-rows.ts for versions with teams: people, audit logs, and money. */
import { BUILD_CONTEXTS, IMAGE_BUILDS } from './migration-rows-of-builds.ts';
import { AuditChain, type AuditNote } from '../../audit/audit-chain.ts';
import { bindTeamSecret } from '../../audit/team-secrets.ts';
import { bindGrant } from '../../egress/grants.ts';
import { bindEnvironment } from '../../sandbox/environment/environments.ts';
import { Secret } from '../../../lib/secret.ts';
import { SecretBox } from '../../secrets/secret-box.ts';
import {
  BILLED_MS,
  DAY_MS,
  GRANTED_SECRET,
  HIBERNATED_ID,
  HOUR_MS,
  LIFE_MS,
  MASTER_KEY,
  NOW,
  ROLLBACK_ID,
  RUNNING_ID,
  SNAPSHOT_ID,
  toHex,
} from './migration-names.ts';
import { EVENTS } from './migration-rows-of-events.ts';
import { NAMED_SECRETS, ORGANIZATION_AUDIT } from './migration-rows-of-organizations.ts';
import {
  CAPTURE_OBJECTS,
  LEAVING_CONTROLS,
  OWNERSHIP,
  RUNNER_IDENTITIES,
  RUNNER_REPORTS,
  SEEN_RUNNERS,
} from './migration-rows-of-runners.ts';
import type { Change, Row } from './migration-rows.ts';

const ENDED_ID = `run${'2'.repeat(20)}`;
const RUNNER_ID = `runner-${'1'.repeat(32)}`;
const FAILED_ID = `run${'3'.repeat(20)}`;
const ORGANIZATIONS = ['orgfirst', 'orgsecond'];
const SHAPE = { image: 'node:22-slim', vcpus: 1, mem_mib: 1024, disk_mib: 4096 };
const END = { cpu_ms: 1234, mem_peak_bytes: 2 ** 40, uptime_ms: LIFE_MS };
const CREATED: AuditNote = { event: 'sandbox.created', data: SHAPE };

const teamOf = (organizationId: unknown): string => (organizationId === 'orgfirst' ? 'team1' : 'team2');
const secretOf = (teamId: string) => ({
  id: `ask${teamId.at(-1)?.repeat(20)}`,
  secret: new Secret(`cts_${teamId.at(-1)?.repeat(43)}`),
});

function buildSecretRow(organizationId: string): Row {
  const teamId = teamOf(organizationId);
  const { id, secret } = secretOf(teamId);
  const sealed = new SecretBox(MASTER_KEY).seal(secret, bindTeamSecret({ organizationId, teamId }, id));
  return { id, team_id: teamId, sealed_secret: toHex(sealed), created_at: NOW - DAY_MS };
}

function buildLog(sandboxId: string, organizationId: string, notes: AuditNote[]): Row[] {
  const chain = new AuditChain(sandboxId, secretOf(teamOf(organizationId)).secret, undefined);
  return chain.extend(notes, NOW - HOUR_MS / 4).map((row) => Object.assign({}, row));
}

/** Returns for how many milliseconds a sandbox has been billed. */
function findBilledMs({ status }: Row): number {
  if (status === 'hibernated') return HOUR_MS / 2;
  return status === 'running' ? 1000 : BILLED_MS;
}

interface Stretch {
  startedAt: number;
  billedMs: number;
  vcpus: number;
  mem_mib: number;
}

function buildSegment(sandbox_id: string, organization_id: string, stretch: Stretch): Row {
  const { startedAt, billedMs, vcpus, mem_mib } = stretch;
  const times = { started_at: startedAt, ended_at: startedAt + billedMs };
  return { sandbox_id, organization_id, team_id: teamOf(organization_id), ...times, vcpus, mem_mib };
}

const SMALL = { startedAt: NOW - HOUR_MS, vcpus: 1, mem_mib: 1024 };
const BIG = {
  startedAt: NOW - HOUR_MS / 4 - LIFE_MS,
  billedMs: BILLED_MS,
  vcpus: 63,
  mem_mib: 524_287,
};

const TEAMS: Change = {
  columns: {
    api_keys: ({ organization_id }) => ({
      team_id: teamOf(organization_id),
      name: 'CI',
      last_used_at: NOW - 60_000,
      expires_at: NOW + DAY_MS,
    }),
    sandboxes: ({ organization_id }) => ({ team_id: teamOf(organization_id) }),
  },
  adds: {
    teams: ORGANIZATIONS.map((organization_id) => ({
      id: teamOf(organization_id),
      organization_id,
      name: 'default',
      created_at: NOW - DAY_MS,
    })),
    team_secrets: ORGANIZATIONS.map(buildSecretRow),
    users: [
      {
        id: 'user1',
        email: 'ada@example.com',
        name: 'Ada',
        password_hash: '$argon2id$…',
        created_at: NOW - DAY_MS,
      },
    ],
    memberships: [{ organization_id: 'orgfirst', user_id: 'user1', role: 'owner', created_at: NOW - DAY_MS }],
    team_members: [{ team_id: 'team1', user_id: 'user1', created_at: NOW - DAY_MS }],
    login_sessions: [
      {
        sha256: toHex(Buffer.alloc(32, 4)),
        user_id: 'user1',
        created_at: NOW - DAY_MS,
        expires_at: NOW + DAY_MS,
      },
    ],
    invitations: [
      {
        id: 'inv1',
        organization_id: 'orgfirst',
        email: 'bob@example.com',
        role: 'member',
        sha256: toHex(Buffer.alloc(32, 5)),
        created_at: NOW - DAY_MS,
        expires_at: NOW + DAY_MS,
        accepted_at: NOW - HOUR_MS,
      },
    ],
  },
};

const AUDIT: Change = {
  columns: {
    sandboxes: ({ id, organization_id }) => ({
      audit_key_id: secretOf(teamOf(organization_id)).id,
      audit_stored_at: id === ENDED_ID ? NOW - HOUR_MS / 5 : null,
    }),
  },
  adds: {
    audit_entries: [
      ...buildLog(RUNNING_ID, 'orgfirst', [
        CREATED,
        { event: 'exec.start', data: { command: 'echo é \u2028 "x"' } },
      ]),
      ...buildLog(ENDED_ID, 'orgfirst', [
        CREATED,
        { event: 'sandbox.destroyed', data: { ...END, reason: 'requested' } },
      ]),
      ...buildLog(FAILED_ID, 'orgsecond', [
        CREATED,
        { event: 'sandbox.failed', data: { ...END, reason: 'guest_panic' } },
      ]),
      ...buildLog(HIBERNATED_ID, 'orgfirst', [CREATED, { event: 'sandbox.hibernated', data: {} }]),
    ],
  },
};

const ACCOUNTS: Change = {
  columns: {
    organizations: ({ id }) => ({ is_first: id === 'orgfirst' }),
    login_sessions: {
      id: 'ses1',
      last_used_at: NOW - 60_000,
      client_address: '192.0.2.1',
      user_agent: 'a browser',
    },
    previews: { api_key_id: 'key0' },
  },
};

const BILLING: Change = {
  drops: { sandboxes: ['hibernated_boot_ms'] },
  columns: { sandboxes: (row) => ({ billed_ms: findBilledMs(row) }) },
  adds: {
    billing_segments: [
      buildSegment(RUNNING_ID, 'orgfirst', { ...SMALL, billedMs: 1000 }),
      buildSegment(ENDED_ID, 'orgfirst', BIG),
      buildSegment(FAILED_ID, 'orgsecond', BIG),
      buildSegment(HIBERNATED_ID, 'orgfirst', { ...SMALL, billedMs: HOUR_MS / 2 }),
    ],
    billing_accounts: ORGANIZATIONS.map((organization_id) => ({
      organization_id,
      ended_sandboxes: 1,
      vcpu_ms: (63n * BigInt(BILLED_MS)).toString(),
      mem_mib_ms: (524_287n * BigInt(BILLED_MS)).toString(),
      exhausted_at: organization_id === 'orgsecond' ? NOW - 1000 : null,
    })),
    credit_grants: ORGANIZATIONS.map((organization_id) => ({
      id: `grant${organization_id}`,
      organization_id,
      cents: 2 ** 50,
      kind: 'operator',
      note: 'paid',
      created_at: NOW - DAY_MS,
    })),
    organization_limits: [
      {
        organization_id: 'orgfirst',
        sandboxes: 20,
        vcpus: 40,
        mem_mib: 2 ** 33,
        open_requests: 30,
        open_streams: 10,
        snapshot_bytes: 2 ** 50,
        rate_limit_rps: 0,
        rate_limit_burst: 100,
      },
    ],
  },
};

const NETWORK = { version: 1, profile: null, default: 'deny', allow: ['api.test'], deny: ['10.0.0.0/8'] };

function buildGrant(sandboxId: string, service: string, endpoints: object[] | null): Row {
  const context = bindGrant({ id: sandboxId, organization_id: 'orgfirst' }, service);
  const sealed = new SecretBox(MASTER_KEY).seal(new Secret(GRANTED_SECRET), context);
  return {
    sandbox_id: sandboxId,
    service,
    endpoints,
    sealed_secret: toHex(sealed),
    updated_at: NOW - HOUR_MS / 5,
  };
}

const EGRESS: Change = {
  columns: { sandboxes: { network: NETWORK }, snapshots: { network: NETWORK } },
  adds: {
    sandbox_credentials: [
      buildGrant(RUNNING_ID, 'openai', [{ methods: ['POST'], paths: ['/v1/chat'] }]),
      buildGrant(HIBERNATED_ID, 'github', null),
    ],
    egress_cursors: [{ sandbox_id: RUNNING_ID, seq: 2 ** 50 }],
  },
};

/** Control was killed during a rollback. */
const ROLLBACKS: Change = {
  columns: {
    sandboxes: (row) => ({
      rollback_id: row['id'] === RUNNING_ID ? ROLLBACK_ID : null,
      rollback_snapshot_id: row['id'] === RUNNING_ID ? SNAPSHOT_ID : null,
    }),
  },
};
const KEY_SCOPES: Change = {
  columns: { api_keys: ({ id }) => ({ scope: id === 'key2' ? 'read' : 'full', team_only: id === 'key2' }) },
  adds: {
    team_accounts: ORGANIZATIONS.map((organization_id) => ({
      team_id: teamOf(organization_id),
      ended_sandboxes: 1,
      vcpu_ms: (63n * BigInt(BILLED_MS)).toString(),
      mem_mib_ms: (524_287n * BigInt(BILLED_MS)).toString(),
    })),
  },
};
const DISK_ID = `disk${'1'.repeat(20)}`;
const FORK_ID = `disk${'2'.repeat(20)}`;

function buildDisk(id: string, name: string, more: Row): Row {
  return {
    id,
    organization_id: 'orgfirst',
    team_id: 'team1',
    name,
    status: 'ready',
    size_gb: 10,
    growing_to_gb: null,
    durability: 'local',
    sandbox_id: null,
    attachment: null,
    parent_id: null,
    parent_version: null,
    version: 3,
    drained_at: NOW - HOUR_MS,
    dirty_bytes: 2 ** 33,
    waits_for: null,
    stored_bytes: 2 ** 40,
    stored_at: NOW - HOUR_MS / 2,
    stored_version: 2,
    created_at: NOW - DAY_MS,
    ...more,
  };
}

const DISKS: Change = {
  columns: {
    sandboxes: ({ id }) =>
      id === ENDED_ID
        ? {
            disk_id: DISK_ID,
            disk_name: 'data',
            disk_version: 3,
            disk_recovered_version: 2,
            disk_recovered_at: NOW - HOUR_MS,
            rollback_disk_version: 1,
          }
        : {},
    organization_limits: { disks: 5, disk_gb: 500 },
  },
  adds: {
    disks: [
      buildDisk(DISK_ID, 'data', {
        sandbox_id: RUNNING_ID,
        attachment: 'detaching',
        growing_to_gb: 20,
        waits_for: 'the object store cannot be reached',
      }),
      buildDisk(FORK_ID, 'data-1', { parent_id: DISK_ID, parent_version: 2 }),
    ],
    snapshots: [
      {
        id: `snap${'2'.repeat(20)}`,
        organization_id: 'orgfirst',
        status: 'ready',
        run_id: ENDED_ID,
        name: 'with a disk',
        ...SHAPE,
        size_bytes: 2 ** 33,
        bound_to: { qemu: '10.0.2' },
        created_at: NOW - DAY_MS,
        timeout_s: 300,
        max_lifetime_s: 7200,
        labels: {},
        auto_hibernate: false,
        network: NETWORK,
        disk_id: DISK_ID,
        disk_name: 'data',
        disk_version: 3,
        disk_gb: 10,
      },
    ],
    disk_snapshots: [
      {
        id: `dsnap${'1'.repeat(20)}`,
        organization_id: 'orgfirst',
        disk_id: DISK_ID,
        name: 'v1',
        status: 'ready',
        version: 2,
        size_gb: 10,
        created_at: NOW - HOUR_MS,
      },
    ],
    disk_storage: [
      {
        disk_id: DISK_ID,
        month: '2026-01',
        organization_id: 'orgfirst',
        team_id: 'team1',
        name: 'data',
        byte_ms: (2n ** 40n * BigInt(LIFE_MS)).toString(),
      },
    ],
  },
};
const EGRESS_GENERATION: Change = { columns: { egress_cursors: { generation: 'first' } } };

const COMMANDS: Change = {
  adds: {
    commands: [
      {
        id: `cmd${'1'.repeat(20)}`,
        organization_id: 'orgfirst',
        sandbox_id: RUNNING_ID,
        guest_id: `cmd${'1'.repeat(20)}`,
        command: 'npm run dev',
        tag: 'server',
        state: 'running',
        start_seq: 2,
        started_at: NOW - HOUR_MS,
      },
      {
        id: `cmd${'2'.repeat(20)}`,
        organization_id: 'orgfirst',
        sandbox_id: ENDED_ID,
        guest_id: `cmd${'1'.repeat(20)}`,
        command: 'npm test',
        state: 'exited',
        exit_code: 124,
        timed_out: true,
        output_bytes: (2n ** 40n).toString(),
        dropped_bytes: (2n ** 40n - 2n ** 26n).toString(),
        started_at: NOW - LIFE_MS,
        ended_at: NOW - LIFE_MS + 1,
      },
    ],
  },
};
function sealEnvironment(id: string): string {
  const context = bindEnvironment({ id, organization_id: 'orgfirst' });
  return toHex(new SecretBox(MASTER_KEY).seal(new Secret(JSON.stringify({ OF: 'an old version' })), context));
}

const SETTINGS: Change = {
  columns: {
    sandboxes: ({ id }) => ({
      name: id === RUNNING_ID || id === ENDED_ID ? 'ci “é”' : null,
      ends_at: id === RUNNING_ID ? NOW + DAY_MS : null,
      sealed_env: id === RUNNING_ID ? sealEnvironment(RUNNING_ID) : null,
      cwd: id === RUNNING_ID ? '/srv' : null,
    }),
    snapshots: ({ id }) =>
      id === SNAPSHOT_ID
        ? { expires_at: NOW + DAY_MS, sealed_env: sealEnvironment(SNAPSHOT_ID), cwd: '/srv' }
        : { expires_at: null, sealed_env: null, cwd: null },
  },
};

const SESSION_KEYS: Change = {
  columns: { api_keys: ({ id }) => ({ session_id: id === 'key2' ? 'ses1' : null }) },
};

const BUDGETS: Change = {
  adds: {
    budgets: [
      {
        organization_id: 'orgfirst',
        scope: 'team1',
        team_id: 'team1',
        month_cents: 100_000,
        alert_percents: [50, 100],
        updated_at: NOW,
      },
    ],
    budget_alerts: [
      { organization_id: 'orgfirst', scope: 'team1', month: '2026-01', percent: 50, reached_at: NOW },
    ],
  },
};

const LIVE_COLUMNS: Change = {
  columns: {
    sandboxes: ({ status }) => ({
      operation: status === 'running' ? 'snapshotting' : null,
      is_in_use: status === 'running',
    }),
  },
};

const WORK_OF_CONTROLS: Change = {
  columns: {
    disks: { control_id: 'ctl1' },
    disk_snapshots: { control_id: 'ctl1' },
    image_builds: { control_id: 'ctl1', is_cancelled: false },
  },
};

const RUNNERS_OF_IMAGES: Change = { columns: { built_images: { runner_id: RUNNER_ID } } };

export const CHANGES_SINCE_TEAMS: Record<string, Change> = {
  '0006_teams': TEAMS,
  '0007_audit': AUDIT,
  '0008_accounts': ACCOUNTS,
  '0009_billing': BILLING,
  '0010_egress': EGRESS,
  // The id of the database is not a row that is kept.
  '0011_installation': {},
  '0012_key_scopes': KEY_SCOPES,
  '0013_rollbacks': ROLLBACKS,
  '0014_history': {},
  '0015_egress_generation': EGRESS_GENERATION,
  '0016_disks': DISKS,
  '0017_commands': COMMANDS,
  '0018_settings': SETTINGS,
  '0021_events': EVENTS,
  '0022_named_secrets': NAMED_SECRETS,
  '0023_organization_audit': ORGANIZATION_AUDIT,
  '0024_image_builds': IMAGE_BUILDS,
  '0025_session_keys': SESSION_KEYS,
  '0026_budgets': BUDGETS,
  '0027_ownership': OWNERSHIP,
  '0028_runner_identities': RUNNER_IDENTITIES,
  '0029_capture_objects': CAPTURE_OBJECTS,
  '0030_live_columns': LIVE_COLUMNS,
  '0031_work_of_controls': WORK_OF_CONTROLS,
  '0032_runners_of_images': RUNNERS_OF_IMAGES,
  '0033_runner_reports': RUNNER_REPORTS,
  '0035_leaving_controls': LEAVING_CONTROLS,
  '0036_seen_runners': SEEN_RUNNERS,
  '0037_build_contexts': BUILD_CONTEXTS,
  '0038_images_by_runner': {},
  '0039_uses_by_digest': {},
};
