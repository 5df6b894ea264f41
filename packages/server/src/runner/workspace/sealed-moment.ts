/** The disk of one moment, among the drains of its attachment. */
import { AppError } from '@coppice/contract';
import type { SerialQueue } from '../../lib/waiting/serial-queue.ts';

/** The disk of the moment of a seal. Nothing is drained from the seal until this is used or disposed. */
export interface SealedMoment extends Disposable {
  /**
   * Drains the disk of the moment, and then runs `work`, while nothing later is drained: the head has the content of the
   * moment. Throws {@link BlockServerError}.
   */
  drain: <T>(work: (version: number) => Promise<T>) => Promise<T>;
}

/** Reserves the place of a moment among the drains, before any later overlay can be drained. */
export function reserveMoment(
  drains: SerialQueue,
  drain: <T>(work: (version: number) => Promise<T>) => Promise<T>,
): SealedMoment {
  const begun = Promise.withResolvers<(() => Promise<void>) | undefined>();
  const reserved = drains.run(async () => (await begun.promise)?.());
  reserved.catch(() => undefined);
  return {
    drain: async <T>(work: (version: number) => Promise<T>) => {
      const result = Promise.withResolvers<T>();
      begun.resolve(async () => result.resolve(await drain(work)));
      reserved.then(
        () => result.reject(new AppError('invalid_state', 'the moment of a disk is used already')),
        (error: unknown) => result.reject(error),
      );
      return result.promise;
    },
    [Symbol.dispose]: () => begun.resolve(undefined),
  };
}
