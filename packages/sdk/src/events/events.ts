import { readEventData } from '../streams/event-stream.ts';
import { parseFrame } from '../streams/stream-frame.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { CoppiceError } from '../transport/errors.ts';
import { Persistence } from '../transport/lost-connection.ts';
import { fetchPage, formatLabels, PagedList, requireLimit, toPageItems } from '../transport/paged-list.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery, readArray, readNumber } from '../transport/wire.ts';
import { parseEvent, type EventInfo, type LostEvents } from './event-record.ts';

/** Which events are wanted. */
export interface EventsOptions extends CallOptions {
  /** Begins after the event with this id; 0 begins with the oldest that is kept. */
  after?: number | undefined;
  /** Only these types. Default: all. */
  types?: readonly string[] | undefined;
  /** Only events of this sandbox. */
  runId?: string | undefined;
  /** Only events of sandboxes that have all these labels. */
  labels?: Record<string, string> | undefined;
}

/** Options of the list of events. */
export interface ListEventsOptions extends EventsOptions {
  /** Maximum number over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

const PATH = '/v1/events';
const SOURCE = { label: `GET ${PATH}`, status: 200 };
/** In characters; far above any event. */
const MAX_EVENT_LENGTH = 1 << 20;
/** The service sends something every 15 seconds. */
const STALL_MS = 60_000;
/** Attempts to continue, one after the other, before the error is the caller's: about five minutes, if each fails at once. */
const MAX_FAILURES = 35;

/** Lists kept events, oldest first. Throws `TypeError` for an invalid `limit`. */
export function listEvents(transport: Transport, options: ListEventsOptions): PagedList<EventInfo> {
  const { limit, signal } = options;
  requireLimit(limit);
  return new PagedList({
    firstQuery: buildQuery({ ...filterOf(options), after: options.after, limit: toPageItems(limit) }),
    fetchPage: (query) =>
      fetchPage(transport, { path: PATH, query, signal }, (value) =>
        readArray(value, 'the list of events', parseEvent),
      ),
    limit,
  });
}

/**
 * Yields events as they happen. After a lost connection it continues where it was: nothing is repeated, and events that
 * the service no longer keeps are reported as one {@link LostEvents}.
 */
export async function* readEvents(
  transport: Transport,
  options: EventsOptions,
): AsyncGenerator<EventInfo | LostEvents, never> {
  const persistence = new Persistence(MAX_FAILURES);
  const reading = new Reading(transport, options);
  for (;;) {
    const before = reading.after;
    try {
      yield* reading.readOn(persistence);
    } catch (error) {
      // A service that only repeats the position, and then fails, makes no progress.
      if (reading.after !== before) persistence.noteProgress();
      await persistence.waitAfter(error, options.signal);
    }
  }
}

class Reading {
  /** Id of the last event that was received, or that is not wanted. Undefined: begin with the next one. */
  after: number | undefined;
  readonly #transport: Transport;
  readonly #options: EventsOptions;

  constructor(transport: Transport, options: EventsOptions) {
    this.#transport = transport;
    this.#options = options;
    this.after = options.after;
  }

  async *readOn(persistence: Persistence): AsyncGenerator<EventInfo | LostEvents, never> {
    const body = await this.#transport.callStream({
      method: 'GET',
      path: PATH,
      query: buildQuery({ ...filterOf(this.#options), after: this.after }),
      headers: { accept: 'text/event-stream' },
      idempotent: true,
      signal: this.#options.signal,
      stallMs: Math.max(STALL_MS, this.#transport.timeoutMs),
    });
    for await (const text of persistence.watch(readEventData(body, MAX_EVENT_LENGTH))) {
      const { type, frame } = parseFrame(text, SOURCE);
      const id = readNumber(frame, 'id');
      this.after = id;
      if (type === 'lost') yield { type, id };
      else if (type !== 'position') yield parseEvent(frame);
    }
    throw new CoppiceError(`${SOURCE.label}: the service has ended the stream`, {
      status: 0,
      code: 'connection_failed',
    });
  }
}

function filterOf({ types, runId, labels }: EventsOptions) {
  return { type: types, run_id: runId, label: labels && formatLabels(labels) };
}
