import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import type { Clock } from '../time/clock.ts';
import { EventSequencer } from './event-sequencer.ts';
import { EventStore } from './event-store.ts';
import type { Events } from './events.ts';

/** Begins to number events. */
export function startEvents(
  { db, clock, log }: { db: Database; clock: Clock; log: Logger },
  stack: AsyncDisposableStack,
): Events {
  const sequencer = stack.use(new EventSequencer({ db, clock, log }));
  sequencer.start();
  return { sequencer, store: new EventStore(db, clock) };
}
