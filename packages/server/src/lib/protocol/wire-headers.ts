/**
 * Headers of every request to a runner, and how it refuses a request for their sake, with 409 and a code that only this
 * protocol has:
 *
 * - `coppice-protocol`: version that the request is written in.
 * - `coppice-epoch`: of the runner's owner. A runner refuses a lower one than it has seen: another control owns it now.
 * - `coppice-endless`: the answer may have no end. A runner that stops does not wait for it.
 */
import { z } from 'zod';

export const PROTOCOL_HEADER = 'coppice-protocol';
export const EPOCH_HEADER = 'coppice-epoch';
export const ENDLESS_HEADER = 'coppice-endless';
export const REFUSED_STATUS = 409;
/** The highest epoch that a runner may report: a false one must not leave the range of numbers in SQL. */
export const MAX_SEEN_EPOCH = 2 ** 50;

/** The versions that this program speaks, as control and as runner. Since 2, runners store built images, and fetch those they lack. */
export const PROTOCOL_VERSIONS: ProtocolVersions = { oldest: 1, newest: 2 };
/** The first version with built images in the object store. */
export const SHARED_IMAGES_VERSION = 2;

export const ProtocolVersions = z.object({ oldest: z.int().positive(), newest: z.int().positive() });
export type ProtocolVersions = z.infer<typeof ProtocolVersions>;

export const WireRefusalCode = z.enum(['fenced', 'protocol_unsupported']);
export type WireRefusalCode = z.infer<typeof WireRefusalCode>;

export const WireRefusal = z.object({ code: WireRefusalCode, message: z.string().max(4096) });

/** The request was refused before it was looked at. */
export class WireRefusedError extends Error {
  readonly code: WireRefusalCode;

  constructor(code: WireRefusalCode, message: string) {
    super(message);
    this.name = 'WireRefusedError';
    this.code = code;
  }
}

/** Returns the newest version that both sides speak; undefined if there is none. */
export function findCommonVersion(
  peer: ProtocolVersions,
  own: ProtocolVersions = PROTOCOL_VERSIONS,
): number | undefined {
  const newest = Math.min(own.newest, peer.newest);
  return newest >= Math.max(own.oldest, peer.oldest) ? newest : undefined;
}

export function describeVersions({ oldest, newest }: ProtocolVersions): string {
  return oldest === newest ? `version ${oldest}` : `versions ${oldest} to ${newest}`;
}
