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

let guards = 0;

/** Returns whether work runs that ends by itself when the reader of its output has left. */
export function isGuarded(): boolean {
  return guards > 0;
}

/** Calls the handlers for signals, and when the reader of the output has left, while `work` runs. */
export async function withSignals<Result>(handlers: Handlers, work: () => Promise<Result>): Promise<Result> {
  let count = 0;
  const onInterrupt = (): void => handlers.onInterrupt((count += 1));
  const onEnd = (signal: NodeJS.Signals): void => handlers.onEnd(new Ended(signal));
  const onOutputError = (): void => onEnd('SIGPIPE');
  process.on('SIGINT', onInterrupt).on('SIGTERM', onEnd).on('SIGHUP', onEnd);
  process.stdout.on('error', onOutputError);
  guards += 1;
  try {
    return await work();
  } finally {
    guards -= 1;
    process.stdout.off('error', onOutputError);
    process.off('SIGINT', onInterrupt).off('SIGTERM', onEnd).off('SIGHUP', onEnd);
  }
}
