import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Slots } from '../../lib/waiting/slots.ts';
import type { EventPage } from './event-store.ts';
import type { Events } from './events.ts';
import { followEvents } from './follow-events.ts';

const MAX_READS = 2;
const reach = { organizationId: 'org1', onlyTeamId: null };

/** Events of which there is always one more, and whoever follows them hears of it all the time. */
class BusyEvents {
  reads = 0;
  mostAtOnce = 0;
  #atOnce = 0;
  #lastId = 0;
  readonly #listeners = new Set<() => void>();

  readonly events = {
    reads: new Slots('reads', { maxRunning: MAX_READS, maxWaiting: Infinity }),
    sequencer: {
      watch: (_id: string, listener: () => void) => {
        this.#listeners.add(listener);
        return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
      },
    },
    store: { listPage: () => this.#read() },
  } as unknown as Events;

  tell(): void {
    for (const listener of this.#listeners) listener();
  }

  async #read(): Promise<EventPage> {
    this.reads += 1;
    this.#atOnce += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#atOnce);
    await delay(1);
    this.#atOnce -= 1;
    this.#lastId += 1;
    const record = { id: this.#lastId } as EventPage['records'][number];
    return { records: [record], throughId: this.#lastId, lastId: this.#lastId, lostThrough: 0 };
  }
}

test('streams read a few times a second, and a few at a time, however fast events come', async () => {
  const busy = new BusyEvents();
  const stop = new AbortController();
  const streams = 10;
  const follow = async (): Promise<void> => {
    const options = { ...busy.events, filter: { reach }, after: 1, left: stop.signal };
    for await (const _ of followEvents(options)) continue;
  };
  const following = Promise.allSettled(Array.from({ length: streams }, follow));
  const telling = setInterval(() => busy.tell(), 1);
  await delay(1_000);
  stop.abort();
  clearInterval(telling);
  await following;
  assert.ok(busy.reads > 3 * streams, `${busy.reads} reads`);
  assert.ok(busy.reads <= 13 * streams, `${busy.reads} reads`);
  assert.equal(busy.mostAtOnce, MAX_READS);
});
