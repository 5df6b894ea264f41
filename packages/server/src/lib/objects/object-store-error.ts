import { AppError } from '@coppice/contract';

/** The object store cannot be used. The message names the store, the cause and the remedy, and contains no secret. */
export class ObjectStoreError extends AppError {
  /** Whether the same request may succeed later, without a change of the configuration or the server. */
  readonly isTransient: boolean;

  constructor(message: string, { isTransient, cause }: { isTransient: boolean; cause?: unknown }) {
    super('unavailable', message, { cause });
    this.name = 'ObjectStoreError';
    this.isTransient = isTransient;
  }
}
