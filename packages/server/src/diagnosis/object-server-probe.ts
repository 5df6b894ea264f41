import { checkObjectStore } from '../lib/objects/check-object-store.ts';
import type { S3Location } from '../lib/objects/object-store-config.ts';
import { untilAborted } from '../lib/waiting/deadline.ts';

/** Less than the doctor waits, so that it gets the reason. */
const DEADLINE_MS = 12_000;

/** Runs all checks of the conditions. Throws ObjectStoreError with the reason if one does not hold. */
export async function probeObjectServer(
  location: S3Location,
  signal: AbortSignal,
): Promise<{ store: string; conditions: string[] }> {
  const { describeLocation, S3Objects } = await import('../lib/objects/s3/s3-objects.ts');
  using objects = S3Objects.open(location, { deadlineMs: DEADLINE_MS, attemptMs: DEADLINE_MS });
  return {
    store: describeLocation(location),
    conditions: await untilAborted(signal, checkObjectStore(objects)),
  };
}
