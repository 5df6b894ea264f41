/** Reads what the disks of an organization or a team have stored so far, in one statement with the rest of its usage. */
import { sql, type RawBuilder } from 'kysely';

/** Sums over disks, in bytes and milliseconds. */
export interface StorageAccount {
  /** Billed up to the last measurement of each disk, also of disks that are deleted. */
  chargedByteMs: bigint;
  /** Of the disks that exist: bytes, and bytes multiplied by the time since which they are not billed yet. */
  bytes: bigint;
  bytesAtMs: bigint;
}

/** Columns of {@link readStorage}. */
export interface StorageColumns {
  charged_byte_ms: string;
  stored_bytes: string;
  stored_bytes_at_ms: string;
}

/** Builds the columns of a query whose rows are organizations or teams: `ofRow` selects those of the row. */
export function selectStorage(ofRow: RawBuilder<boolean>): RawBuilder<unknown> {
  const existing = sql`FROM disks WHERE ${ofRow} AND status = 'ready'`;
  return sql`
    (SELECT coalesce(sum(byte_ms), 0)::text FROM disk_storage WHERE ${ofRow}) AS charged_byte_ms,
    (SELECT coalesce(sum(stored_bytes), 0)::text ${existing}) AS stored_bytes,
    (SELECT coalesce(sum(stored_bytes::numeric * stored_at), 0)::text ${existing}) AS stored_bytes_at_ms`;
}

export function readStorage(row: StorageColumns | undefined): StorageAccount {
  return {
    chargedByteMs: BigInt(row?.charged_byte_ms ?? 0),
    bytes: BigInt(row?.stored_bytes ?? 0),
    bytesAtMs: BigInt(row?.stored_bytes_at_ms ?? 0),
  };
}

/** Returns everything that was stored up to `nowMs`, in byte milliseconds. */
export function sumStorage({ chargedByteMs, bytes, bytesAtMs }: StorageAccount, nowMs: number): bigint {
  const open = bytes * BigInt(Math.floor(nowMs)) - bytesAtMs;
  // Negative while the clock is set back: that time is billed already.
  return chargedByteMs + (open > 0n ? open : 0n);
}
