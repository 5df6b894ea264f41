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

export interface Handlers {
  /** Called for Ctrl-C with the number of times so far, from 1. */
  onInterrupt: (count: number) => void;
  /** Called for a signal that ends the command line. */
  onEnd: (reason: Ended) => void;
}

/** The innermost work that runs is last. Only its handlers are called, so there is no moment without a handler in between. */
const guards: { handlers: Handlers; interrupts: number }[] = [];

/** Returns whether work runs that ends by itself when the reader of its output has left. */
export function isGuarded(): boolean {
  return guards.length > 0;
}

/** Calls the handlers for signals, and when the reader of the output has left, while `work` runs. */
export async function withSignals<Result>(handlers: Handlers, work: () => Promise<Result>): Promise<Result> {
  const guard = { handlers, interrupts: 0 };
  if (guards.length === 0) listen();
  guards.push(guard);
  try {
    return await work();
  } finally {
    guards.splice(guards.indexOf(guard), 1);
    if (guards.length === 0) stopListening();
  }
}

/**
 * Returns handlers for work that ends when `controller` is aborted. A second Ctrl-C ends the process without waiting for the
 * work.
 */
export function abortOnSignal(controller: AbortController): Handlers {
  const onEnd = (reason: Ended): void => controller.abort(reason);
  const onInterrupt = (count: number): void => {
    const reason = new Ended('SIGINT');
    onEnd(reason);
    if (count > 1) process.exit(reason.exitCode);
  };
  return { onEnd, onInterrupt };
}

function onInterrupt(): void {
  const guard = guards.at(-1);
  if (guard !== undefined) guard.handlers.onInterrupt((guard.interrupts += 1));
}

function onEnd(signal: NodeJS.Signals): void {
  guards.at(-1)?.handlers.onEnd(new Ended(signal));
}

function onOutputError(): void {
  onEnd('SIGPIPE');
}

function listen(): void {
  process.on('SIGINT', onInterrupt).on('SIGTERM', onEnd).on('SIGHUP', onEnd);
  for (const stream of [process.stdout, process.stderr]) stream.on('error', onOutputError);
}

function stopListening(): void {
  for (const stream of [process.stdout, process.stderr]) stream.off('error', onOutputError);
  process.off('SIGINT', onInterrupt).off('SIGTERM', onEnd).off('SIGHUP', onEnd);
}
