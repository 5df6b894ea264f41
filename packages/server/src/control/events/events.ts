import type { EventSequencer } from './event-sequencer.ts';
import type { EventStore } from './event-store.ts';

/** What readers of events need. */
export interface Events {
  store: EventStore;
  sequencer: EventSequencer;
}
