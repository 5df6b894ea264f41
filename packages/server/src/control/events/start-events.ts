import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import type { Clock } from '../time/clock.ts';
import { EventSequencer, type EventSubscriber } from './event-sequencer.ts';
import { EventStore } from './event-store.ts';
import type { Events } from './events.ts';

export interface EventsBase {
  db: Database;
  subscriber: EventSubscriber;
  clock: Clock;
  log: Logger;
}

/** Begins to number events. */
export function startEvents(base: EventsBase, stack: AsyncDisposableStack): Events {
  const sequencer = stack.use(new EventSequencer(base));
  sequencer.start();
  return { sequencer, store: new EventStore(base.db, base.clock) };
}
