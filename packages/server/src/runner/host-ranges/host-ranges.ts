/** The addresses and user ids that an installation uses on its host, and their record in its data directory. */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { writeDurably } from '../../lib/files/durable-file.ts';

/** Ranges of an installation that is alone on its host. */
export const FIRST_RANGES: HostRanges = { guestCidr: '10.202.0.0/16', uidBase: 1_600_000 };
/** Path below the data directory. */
const RECORD = join('runner', 'host-ranges.json');

export interface HostRanges {
  guestCidr: string;
  /** The first user id. */
  uidBase: number;
}

/** Ranges that the settings give; the runner chooses the rest. */
export interface SetRanges {
  guestCidr?: string;
  uidBase?: number;
}

const Recorded = z.object({ version: z.literal(1), guest_cidr: z.string(), uid_base: z.int() });

export function hasRecord(dataDir: string): boolean {
  return existsSync(join(dataDir, RECORD));
}

/** Returns undefined when the installation has never run. Throws `invalid_request` for a damaged record. */
export function findRecordedRanges(dataDir: string): HostRanges | undefined {
  if (!hasRecord(dataDir)) return undefined;
  const path = join(dataDir, RECORD);
  try {
    const recorded = Recorded.parse(JSON.parse(readFileSync(path, 'utf8')));
    return { guestCidr: recorded.guest_cidr, uidBase: recorded.uid_base };
  } catch (error) {
    const message = `dataDir: ${path} is damaged; remove it while no sandbox runs, and new ranges are chosen`;
    throw new AppError('invalid_request', message, { cause: error });
  }
}

export function recordRanges(dataDir: string, { guestCidr, uidBase }: HostRanges): void {
  const path = join(dataDir, RECORD);
  mkdirSync(dirname(path), { recursive: true, mode: 0o711 });
  const record: z.infer<typeof Recorded> = { version: 1, guest_cidr: guestCidr, uid_base: uidBase };
  writeDurably(path, JSON.stringify(record));
}

/** The ranges that the service has, or would get on an empty host; for programs outside the service. */
export function expectRanges(dataDir: string, set: SetRanges): HostRanges {
  return { ...FIRST_RANGES, ...findRecordedRanges(dataDir), ...set };
}
