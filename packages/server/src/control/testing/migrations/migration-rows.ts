/**
 * The contents of a database of every version: rows in each of its tables, a value in each of its columns. A new
 * migration needs an entry here; schema/migrations.test.ts fails until its tables and columns are filled.
 */
import { computeCostUnits } from '@coppice/contract';
import { hashApiKey } from '../../auth/hash-api-key.ts';
import { API_KEY } from '../control-harness.ts';
import {
  BILLED_MS,
  DAY_MS,
  HIBERNATION_ID,
  HOUR_MS,
  LIFE_MS,
  NOW,
  OTHER_KEY,
  REGISTRY,
  RUNNING_ID,
  SEALED_PASSWORD,
  SNAPSHOT_ID,
  toHex,
} from './migration-names.ts';
import { CHANGES_SINCE_TEAMS } from './migration-rows-since-teams.ts';

export type Row = Record<string, unknown>;
export type Rows = Record<string, Row[]>;

export interface Change {
  /** Rows that exist from this version on. */
  adds?: Rows;
  /** Columns that earlier rows of a table get, as the migration fills them, or as the service has since. */
  columns?: Record<string, Row | ((row: Row) => Row)>;
  /** New names of columns by their earlier names, for each table. */
  renames?: Record<string, Record<string, string>>;
  /** Columns that are dropped, of each table. */
  drops?: Record<string, string[]>;
}

const IMAGE = `registry.test/library/node:22-slim@sha256:${'a'.repeat(64)}`;

const sandbox = (digit: string, row: Row): Row => ({
  id: `run${digit.repeat(20)}`,
  organization_id: 'orgfirst',
  status: 'running',
  status_reason: null,
  image: IMAGE,
  region: 'us',
  vcpus: 1,
  mem_mib: 1024,
  disk_mib: 4096,
  timeout_s: 0,
  max_lifetime_s: null,
  labels: { of: 'an old version', 'with é': '\u2028' },
  parent_id: null,
  create_ms: 900,
  created_at: NOW - HOUR_MS,
  last_active_at: NOW - HOUR_MS / 2,
  last_seen_at: NOW - 1000,
  ended_at: null,
  cpu_ms: 0,
  mem_peak_bytes: 0,
  uptime_ms: 0,
  cost_units: '0',
  ...row,
});

/** Large, old and odd in each number: JavaScript's numbers cannot represent its cost. */
const ENDED = {
  status: 'destroyed',
  status_reason: 'requested',
  vcpus: 63,
  mem_mib: 524_287,
  max_lifetime_s: 63_072_000,
  parent_id: RUNNING_ID,
  created_at: NOW - HOUR_MS / 4 - LIFE_MS,
  ended_at: NOW - HOUR_MS / 4,
  cpu_ms: 1234,
  mem_peak_bytes: 2 ** 40,
  uptime_ms: LIFE_MS,
  cost_units: computeCostUnits({ vcpus: 63, memMiB: 524_287, billedMs: BILLED_MS }).toString(),
};

export const CHANGES: Record<string, Change> = {
  '0001_first': {
    adds: {
      organizations: [
        { id: 'orgfirst', name: 'default', region: 'us', created_at: NOW - DAY_MS },
        { id: 'orgsecond', name: 'second', region: 'us', created_at: NOW - DAY_MS },
      ],
      api_keys: [API_KEY, OTHER_KEY, `${OTHER_KEY.slice(0, -1)}x`].map((key, index) => ({
        id: `key${index}`,
        organization_id: index === 1 ? 'orgsecond' : 'orgfirst',
        sha256: toHex(hashApiKey(key)),
        last4: key.slice(-4),
        created_at: NOW - DAY_MS,
        revoked_at: index === 2 ? NOW - HOUR_MS : null,
      })),
      sandboxes: [
        sandbox('1', {}),
        sandbox('2', ENDED),
        sandbox('3', {
          ...ENDED,
          status: 'failed',
          status_reason: 'guest_panic',
          organization_id: 'orgsecond',
        }),
      ],
      idempotency_keys: [
        {
          organization_id: 'orgfirst',
          route: 'POST /v1/runs',
          key: 'once',
          body_sha256: toHex(Buffer.alloc(32, 3)),
          sandbox_id: RUNNING_ID,
          created_at: NOW - HOUR_MS,
          status_code: 201,
          answer: '{"id":"x\ty\\n"}',
        },
      ],
    },
  },
  '0002_private_images': {
    adds: {
      registry_credentials: [
        {
          organization_id: 'orgfirst',
          registry: REGISTRY,
          username: 'somebody',
          sealed_password: SEALED_PASSWORD,
          updated_at: NOW - HOUR_MS,
        },
      ],
      image_uses: [
        {
          organization_id: 'orgfirst',
          image: IMAGE,
          digest: `sha256:${'a'.repeat(64)}`,
          last_used_at: NOW - HOUR_MS,
        },
      ],
    },
  },
  '0003_time_since_boot': {
    columns: {
      sandboxes: { boot_id: 'an-earlier-boot', created_boot_ms: 1234.567, last_seen_boot_ms: 99_999.125 },
    },
  },
  '0004_previews': {
    adds: {
      previews: [
        {
          id: `prev${'1'.repeat(20)}`,
          organization_id: 'orgfirst',
          sandbox_id: RUNNING_ID,
          port: 3000,
          created_at: NOW - HOUR_MS,
          expires_at: NOW + HOUR_MS,
          revoked_at: NOW - 1000,
        },
      ],
    },
  },
  '0005_captures': {
    renames: { idempotency_keys: { sandbox_id: 'subject_id' } },
    columns: { sandboxes: { auto_hibernate: true, hibernated_ms: LIFE_MS - BILLED_MS, origin: SNAPSHOT_ID } },
    adds: {
      sandboxes: [
        sandbox('4', {
          status: 'hibernated',
          hibernation_id: HIBERNATION_ID,
          hibernated_at: NOW - HOUR_MS / 2,
          hibernated_boot_ms: 77.5,
          auto_hibernate: false,
          hibernated_ms: 0,
          boot_id: 'an-earlier-boot',
        }),
      ],
      snapshots: [
        {
          id: SNAPSHOT_ID,
          organization_id: 'orgfirst',
          status: 'ready',
          run_id: RUNNING_ID,
          name: 'before the update',
          image: IMAGE,
          vcpus: 1,
          mem_mib: 1024,
          disk_mib: 4096,
          size_bytes: 2 ** 33,
          bound_to: { qemu: '10.0.2' },
          created_at: NOW - HOUR_MS / 2,
          timeout_s: 300,
          max_lifetime_s: 7200,
          labels: {},
          auto_hibernate: false,
        },
      ],
    },
  },
  ...CHANGES_SINCE_TEAMS,
};
