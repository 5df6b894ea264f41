/** The addresses and user ids that an installation has of its host, and their record in its data directory. */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { writeDurably } from '../../lib/files/durable-file.ts';

/** Of an installation that is alone on its host. */
export const FIRST_RANGES: HostRanges = { guestCidr: '10.202.0.0/16', uidBase: 1_600_000 };
/** Below the data directory. */
const RECORD = join('runner', 'host-ranges.json');

export interface HostRanges {
  guestCidr: string;
  /** First of the user ids. */
  uidBase: number;
}

/** By the settings; the rest is chosen. */
export interface SetRanges {
  guestCidr?: string;
  uidBase?: number;
}

const Recorded = z.object({ version: z.literal(1), guest_cidr: z.string(), uid_base: z.int() });

export function hasRecord(dataDir: string): boolean {
  return existsSync(join(dataDir, RECORD));
}

/** Undefined when the installation has never run. Throws `invalid_request` for a record that cannot be read. */
export function findRecordedRanges(dataDir: string): HostRanges | undefined {
  if (!hasRecord(dataDir)) return undefined;
  const path = join(dataDir, RECORD);
  try {
    const recorded = Recorded.parse(JSON.parse(readFileSync(path, 'utf8')));
    return { guestCidr: recorded.guest_cidr, uidBase: recorded.uid_base };
  } catch (error) {
    const message = `dataDir: ${path} is damaged; remove it while no sandbox runs, others are chosen then`;
    throw new AppError('invalid_request', message, { cause: error });
  }
}

export function recordRanges(dataDir: string, { guestCidr, uidBase }: HostRanges): void {
  const path = join(dataDir, RECORD);
  mkdirSync(dirname(path), { recursive: true, mode: 0o711 });
  const record: z.infer<typeof Recorded> = { version: 1, guest_cidr: guestCidr, uid_base: uidBase };
  writeDurably(path, JSON.stringify(record));
}

/** For a look from beside the service: the ranges that it has, or would get on an empty host. */
export function expectRanges(dataDir: string, set: SetRanges): HostRanges {
  return { ...FIRST_RANGES, ...findRecordedRanges(dataDir), ...set };
}
