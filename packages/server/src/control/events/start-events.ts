import type { Logger } from 'pino';
import { Slots } from '../../lib/waiting/slots.ts';
import type { Database } from '../db/database.ts';
import type { Leadership } from '../ownership/leadership.ts';
import type { Clock } from '../time/clock.ts';
import { EventSequencer, type EventSubscriber } from './event-sequencer.ts';
import { EventStore } from './event-store.ts';
import type { Events } from './events.ts';

/** Of streams, at a time; below the connections to the database. */
const MAX_READS = 4;

export interface EventsBase {
  db: Database;
  leadership: Leadership;
  subscriber: EventSubscriber;
  clock: Clock;
  log: Logger;
}

/** Begins to number events. */
export function startEvents(base: EventsBase, stack: AsyncDisposableStack): Events {
  const sequencer = stack.use(new EventSequencer(base));
  sequencer.start();
  // Open streams are limited elsewhere.
  const reads = new Slots('reads of events', { maxRunning: MAX_READS, maxWaiting: Infinity });
  return { sequencer, store: new EventStore(base.db, base.clock), reads };
}
