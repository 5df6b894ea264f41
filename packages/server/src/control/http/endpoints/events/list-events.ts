import { AppError, EVENT_ID, EventFrame, EventRecord, ListEventsQuery } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { EventFilter, EventStore } from '../../../events/event-store.ts';
import { followEvents } from '../../../events/follow-events.ts';
import { endOf } from '../../access/end-with-key.ts';
import { answers, contents, eventOf } from '../../answers/answers.ts';
import { EventStream } from '../../answers/event-stream.ts';
import { buildErrorFrame } from '../../answers/stream-error.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { parseLabels } from '../../requests/label-filter.ts';
import { linkNext } from '../../requests/page.ts';

const Page = z.array(EventRecord);
const OK = contents('A page of events, or events as they happen.', {
  'application/json': Page,
  'text/event-stream': eventOf(EventFrame),
});

type Parts = Pick<HttpParts, 'events' | 'openRequests'>;

export function addListEvents(app: App, { events, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/events',
    config: { access: 'read' },
    schema: {
      operationId: 'listEvents',
      summary: 'List what happened in the organization, oldest first, or follow it as a stream',
      description:
        'A key that is limited to its team gets the events of the team. With `Accept: text/event-stream`: server-sent ' +
        'events, one EventFrame per `data:` line, without an end. A client that continues sends the id of the last one as ' +
        '`Last-Event-ID` or as `after`; nothing is repeated, and events that are no longer kept are reported as `lost`. A ' +
        'page has a link to the next one in the header `Link: <…>; rel="next"`, if there is one.',
      querystring: ListEventsQuery,
      response: { ...answers(200, Page, [400, 401, 410, 429, 503]), 200: OK },
    },
    handler: async (request, reply) => {
      const { organizationId, query } = request;
      const filter = readFilter(request.reach, query);
      const after = readLastId(request) ?? query.after;
      if (request.headers.accept?.includes('text/event-stream') !== true)
        return openRequests.limit(organizationId, () =>
          readPage(reply, events.store, { ...query, after, filter }),
        );
      await openRequests.eventStream(organizationId, async () => {
        const stream = new EventStream(reply);
        const left = AbortSignal.any([stream.left, endOf(request, openRequests)]);
        try {
          for await (const frame of followEvents({ ...events, filter, after, left }))
            await stream.send(EventFrame.parse(frame), frame.id);
          request.keyEnd?.throwIfAborted();
        } catch (error) {
          // The end of the service is no error: a client continues at the next one.
          const isOver = left.aborted && request.keyEnd?.aborted !== true;
          if (!isOver) await stream.send(buildErrorFrame(error, request, openRequests));
        } finally {
          stream.end();
        }
      });
      return reply;
    },
  });
}

interface PageOptions extends ListEventsQuery {
  filter: EventFilter;
}

async function readPage(
  reply: FastifyReply,
  store: EventStore,
  { after = 0, limit, filter, type = [], run_id, label = [] }: PageOptions,
): Promise<EventRecord[]> {
  const { records, lostThrough, lastId } = await store.listPage(filter, after, limit);
  if (after > lastId || (after > 0 && after < lostThrough))
    throw new AppError('events_lost', 'after: events after this id are no longer kept; begin with after=0');
  const last = records.at(-1);
  if (last !== undefined && records.length === limit) {
    const next = new URLSearchParams({ after: String(last.id), limit: String(limit) });
    for (const one of type) next.append('type', one);
    for (const one of label) next.append('label', one);
    if (run_id !== undefined) next.set('run_id', run_id);
    linkNext(reply, '/v1/events', next);
  }
  return records;
}

function readFilter(
  reach: EventFilter['reach'],
  { type: types, run_id: runId, label }: ListEventsQuery,
): EventFilter {
  return { reach, types, runId, labels: label && parseLabels(label) };
}

/** Returns the id from which a client continues. */
function readLastId({ headers }: FastifyRequest): number | undefined {
  const id = headers['last-event-id'];
  if (id === undefined) return undefined;
  if (typeof id === 'string' && EVENT_ID.test(id)) return Number(id);
  throw new AppError('invalid_request', 'Last-Event-ID: is not the id of an event of this stream');
}
