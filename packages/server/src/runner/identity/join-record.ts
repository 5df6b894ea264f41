/** The installation that this runner has joined, as a file in its data directory. It is written once. */
import { join } from 'node:path';
import { z } from 'zod';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { findFile } from '../../lib/files/find-file.ts';
import { RunnerId } from '../../lib/protocol/runner-protocol.ts';

const NAME = 'joined.json';

const JoinRecord = z.strictObject({
  runner_id: RunnerId,
  /** Certificate of the installation's authority, PEM. */
  authority: z.string(),
  /** The control that admitted this runner. */
  control: z.string(),
  /** `host:port` at which controls reach this runner. */
  address: z.string(),
  joined_at: z.iso.datetime(),
});
export type JoinRecord = z.infer<typeof JoinRecord>;

/** The setting is there, and the runner may not serve the network with it. */
export class NotJoinedError extends Error {
  constructor(message: string) {
    super(`COPPICE_RUNNER_LISTEN: ${message}`);
    this.name = 'NotJoinedError';
  }
}

export function joinRecordPath(dataDir: string): string {
  return join(dataDir, NAME);
}

export function findJoinRecord(dataDir: string): JoinRecord | undefined {
  const path = joinRecordPath(dataDir);
  const text = findFile(path)?.toString('utf8');
  if (text === undefined) return undefined;
  try {
    return JoinRecord.parse(JSON.parse(text));
  } catch {
    throw new NotJoinedError(
      `${path} is damaged: put back a copy, or delete it and join again with "coppice admin runner join"`,
    );
  }
}

export function writeJoinRecord(dataDir: string, record: JoinRecord): void {
  writeDurably(joinRecordPath(dataDir), `${JSON.stringify(record, undefined, 2)}\n`);
}

/** Returns the record. Throws {@link NotJoinedError} if there is none, or if it is that of another runner. */
export function getJoinRecord(dataDir: string, runnerId: string): JoinRecord {
  const record = findJoinRecord(dataDir);
  if (record === undefined)
    throw new NotJoinedError(
      'this runner has not joined an installation, so it knows no control that may connect: get a token with ' +
        '"coppice admin runner token" on the machine of a control, run "coppice admin runner join <https://control:port> ' +
        '--token <token>" here, and start again; or remove the setting',
    );
  if (record.runner_id !== runnerId)
    throw new NotJoinedError(
      `${joinRecordPath(dataDir)} is a copy from ${record.runner_id}, and this runner is ${runnerId}: delete it and ` +
        'identity.pem next to it, and join with a token of its own',
    );
  return record;
}
