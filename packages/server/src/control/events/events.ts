import type { EventSequencer } from './event-sequencer.ts';
import type { EventStore } from './event-store.ts';
import type { Slots } from '../../lib/waiting/slots.ts';

/** What readers of events need. */
export interface Events {
  store: EventStore;
  sequencer: EventSequencer;
  /** Reads of streams take turns, so that all of them do not wait for connections that other requests need. */
  reads: Slots;
}
