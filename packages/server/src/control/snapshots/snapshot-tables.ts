import type { Generated, Insertable, JSONColumnType, Selectable } from 'kysely';
import type { NetworkColumn } from '../sandbox/record/sandbox-tables.ts';

export interface SnapshotTable {
  id: string;
  organization_id: string;
  /** Callers see only `ready` snapshots; the others are being made or removed. */
  status: 'creating' | 'ready' | 'deleting';
  run_id: string;
  /** The runner that has its files. Null: only the object store has them, or a snapshot from before this was recorded. */
  runner_id: Generated<string | null>;
  name: string | null;
  image: string;
  vcpus: number;
  mem_mib: number;
  disk_mib: number;
  size_bytes: number;
  bound_to: JSONColumnType<Record<string, string>>;
  created_at: number;
  /** Null: it is kept until it is deleted. */
  expires_at: Generated<number | null>;
  /** This and the fields below: settings of the sandbox, for sandboxes that are restored from it. */
  timeout_s: number;
  max_lifetime_s: number | null;
  labels: JSONColumnType<Record<string, string>>;
  auto_hibernate: boolean;
  network: NetworkColumn;
  sealed_env: Generated<Buffer | null>;
  cwd: Generated<string | null>;
  /** The disk of the sandbox, and the version that the capture keeps; null without one. */
  disk_id: Generated<string | null>;
  disk_name: Generated<string | null>;
  disk_version: Generated<number | null>;
  disk_gb: Generated<number | null>;
}

/** Without what only sandboxes that are restored from it need. */
export type SnapshotRow = Omit<Selectable<SnapshotTable>, 'network' | 'sealed_env' | 'cwd'>;
export type WholeSnapshotRow = Selectable<SnapshotTable>;
export type NewSnapshotRow = Insertable<SnapshotTable>;
