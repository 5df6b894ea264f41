import { constants } from 'node:os';
import { EXIT } from '../output/failure.ts';

/** A signal asked the command line to end. The command in the guest is not to run on. */
export class Ended extends Error {
  readonly exitCode: number;

  constructor(signal: NodeJS.Signals) {
    super(`ended by ${signal}`);
    this.exitCode = EXIT.signal + constants.signals[signal];
  }
}

interface Handlers {
  /** Called for Ctrl-C with the number of times so far, from 1. */
  onInterrupt: (count: number) => void;
  /** Called for a signal that ends the command line. */
  onEnd: (reason: Ended) => void;
}

/** Calls the handlers for signals, while `work` runs. */
export async function withSignals<Result>(handlers: Handlers, work: () => Promise<Result>): Promise<Result> {
  let count = 0;
  const onInterrupt = (): void => handlers.onInterrupt((count += 1));
  const onEnd = (signal: NodeJS.Signals): void => handlers.onEnd(new Ended(signal));
  process.on('SIGINT', onInterrupt).on('SIGTERM', onEnd).on('SIGHUP', onEnd);
  try {
    return await work();
  } finally {
    process.off('SIGINT', onInterrupt).off('SIGTERM', onEnd).off('SIGHUP', onEnd);
  }
}
