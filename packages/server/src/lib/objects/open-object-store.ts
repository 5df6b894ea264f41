import type { Logger } from 'pino';
import { DeadlineError, withDeadline } from '../waiting/deadline.ts';
import { checkCreateOnly } from './check-object-store.ts';
import { DirectoryObjects } from './directory-objects.ts';
import type { ObjectStoreConfig } from './object-store-config.ts';
import { ObjectStoreError } from './object-store-error.ts';
import type { ObjectStore } from './object-store.ts';
import { VerifiedObjects } from './verified-objects.ts';

/** How long a start waits for the answers of a server that may be away. */
const START_CHECK_MS = 5000;

/** Loads the code of the configured store: control later loses the right to read it. */
export async function preloadObjectStore(config: ObjectStoreConfig): Promise<void> {
  if (config.kind === 's3') await loadS3();
}

/**
 * Opens the configured store; `directory` is for the default one. Throws ObjectStoreError for a server that refuses the
 * service or ignores its conditions. A server that is away is verified before its first use.
 */
export async function openObjectStore(
  config: ObjectStoreConfig,
  { directory, log }: { directory: string; log: Logger },
  stack: AsyncDisposableStack,
): Promise<ObjectStore> {
  if (config.kind === 'directory') return DirectoryObjects.open(directory);
  const { S3Objects } = await loadS3();
  const objects = stack.use(S3Objects.open(config));
  const verified = new VerifiedObjects(objects, () => checkCreateOnly(objects));
  try {
    await withDeadline('the check of the object store', START_CHECK_MS, verified.verify());
  } catch (error) {
    const isOutage =
      error instanceof DeadlineError || (error instanceof ObjectStoreError && error.isTransient);
    if (!isOutage) throw error;
    log.warn({ err: error }, 'the object store is away; it is checked before its first use');
  }
  return verified;
}

function loadS3() {
  return import('./s3/s3-objects.ts');
}
